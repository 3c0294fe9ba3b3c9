"""The plain layer of the asyncio client: every call of the public contract, typed, with retries that can't
do a thing twice.

It holds no lease alive by itself. Whoever acquires through ``acquire`` renews before ``expires_in_ms`` is
over, counted from before the call was made; ``lease`` (aio.py) does that for you.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from tenure import _requests
from tenure._acquisition import Acquisition, mint_id
from tenure._backup import save
from tenure._calls import Calls
from tenure._endpoints import Endpoints, parse_endpoints
from tenure._options import Options
from tenure._terms import milliseconds as _ms
from tenure._watch import Watch
from tenure.answers import (
    Accepted,
    AuditPage,
    Broken,
    Cluster,
    Credential,
    Event,
    Grant,
    LeaseInfo,
    LeasePage,
    Members,
    NewCredential,
    Nodes,
    Queue,
    Quota,
    Record,
    Released,
    Resized,
    SavedBackup,
    Session,
    Tenant,
    Transferred,
    Validation,
)
from tenure.errors import LeaseLost


class PlainClient:
    """Calls of one tenant, from one event loop, any number at a time. Durations are in seconds.

    Every call raises ``ClusterUnavailable`` if it certainly was not executed within the time-out,
    ``OutcomeUnknown`` if it may have been, ``InvalidRequest``, ``NotAuthorized`` or ``QuotaExceeded`` if
    the cluster would not take it. A cancelled call may have been executed.
    """

    def __init__(self, options: Options) -> None:
        self._calls = Calls(options)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The base URLs as configured."""
        return self._calls.endpoints.urls

    # -- leases
    # -------------------------------------------------------------------------------------------------

    async def acquire(
        self,
        key: str,
        *,
        owner: str,
        ttl: float | None = None,
        wait: float = 0.0,
        request_id: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        grace: float = 0.0,
        if_held: Literal["return", "conflict"] = "return",
        mode: Literal["exclusive", "shared", "permit"] = "exclusive",
        slots: int | None = None,
        progress: float | None = None,
    ) -> Grant:
        """Acquire ``key``, waiting in its queue for ``wait`` seconds at most.

        When it returns, the key is held by ``owner`` and nobody with an older token can write through the
        guard. The time left counts from before the call; a grant that came while waiting has been renewed
        before it is returned. When it raises LeaseUnavailable, nothing is left behind. LeaseLost: the
        session is over, or this ``request_id`` had been granted and that lease has ended. OutcomeUnknown:
        with a ``request_id`` of your own, ask again with it and you find the same grant, if there was one;
        without, it ends at its TTL. ``ttl`` is required without ``session_id`` and refused with it.
        Cancelling gives the acquire up: it is abandoned, in the background if need be (``close`` waits for
        that), and a grant that raced with it is released. With ``progress`` the lease demands news of its
        progress every so many seconds.
        """
        [grant] = await self._acquire(
            {"key": key},
            wait=wait,
            request_id=request_id,
            owner=owner,
            ttl=ttl,
            session_id=session_id,
            metadata=metadata,
            grace=grace,
            if_held=if_held,
            mode=mode,
            slots=slots,
            progress=progress,
        )
        return grant

    async def acquire_set(
        self,
        keys: Sequence[str],
        *,
        owner: str,
        ttl: float | None = None,
        wait: float = 0.0,
        request_id: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        grace: float = 0.0,
        if_held: Literal["return", "conflict"] = "return",
        mode: Literal["exclusive", "shared", "permit"] = "exclusive",
        slots: int | None = None,
        progress: float | None = None,
    ) -> list[Grant]:
        """As ``acquire``, for several different keys: all are granted, in one entry, or none. The leases are
        in the order of the keys, and share a session."""
        return await self._acquire(
            {"keys": list(keys)},
            wait=wait,
            request_id=request_id,
            owner=owner,
            ttl=ttl,
            session_id=session_id,
            metadata=metadata,
            grace=grace,
            if_held=if_held,
            mode=mode,
            slots=slots,
            progress=progress,
        )

    async def _acquire(
        self,
        what: dict[str, Any],
        *,
        wait: float,
        request_id: str | None,
        owner: str,
        ttl: float | None,
        session_id: str | None,
        metadata: Mapping[str, str] | None,
        grace: float,
        if_held: str,
        mode: str,
        slots: int | None,
        progress: float | None,
    ) -> list[Grant]:
        body = {
            **what,
            "owner": owner,
            "ttl_ms": None if ttl is None else _ms(ttl, "ttl"),
            "session_id": session_id,
            "metadata": dict(metadata) if metadata else None,
            "grace_ms": _ms(grace, "grace") or None,
            "if_held": None if if_held == "return" else if_held,
            "mode": None if mode == "exclusive" else mode,
            "slots": slots,
            "progress_ms": _ms(progress or 0.0, "progress") or None,
        }
        wait_s = _ms(wait, "wait") / 1000
        answer = await Acquisition(self._calls, body, wait_s=wait_s, request_id=request_id).run()
        return answer.value

    async def renew(self, lease_id: str, *, ttl: float | None = None) -> Grant:
        """Renew the lease's session. The new time counts from before the call; it is never shorter than
        before. Raises LeaseLost once the lease has ended, even if nobody holds the key."""
        request = _requests.renew(lease_id=lease_id, ttl_ms=None if ttl is None else _ms(ttl, "ttl"))
        return (await self._calls.ask(request)).lease

    async def progress(self, lease_id: str, step: str = "", *, text: str = "", counter: int = 0) -> Grant:
        """Tell how far the holder is, and renew. Saying the same again is no progress. Raises LeaseLost."""
        note = {"step": step, "text": text, "counter": counter}
        return (await self._calls.ask(_requests.renew(lease_id=lease_id, progress=note))).lease

    async def release(self, lease_id: str, *, whole_set: bool = False) -> Released:
        """End the lease and hand the key to the next waiter; with ``whole_set`` all that is left of the set
        that it was granted in. Never touches a later lease. Raises LeaseLost if it had ended otherwise."""
        return await self._calls.ask(_requests.release(lease_id=lease_id, whole_set=whole_set))

    async def handover(self, lease_id: str, to_session_id: str) -> Grant:
        """Give the lease to another session, past all who wait, with its metadata and progress. Returns the
        successor's lease. Raises LeaseLost, LeaseUnavailable if the successor can't have it, InvalidRequest
        if there is no such session."""
        request = _requests.handover(lease_id=lease_id, to_session_id=to_session_id)
        return (await self._calls.ask(request)).lease

    async def park(self, lease_id: str, *, limit: float) -> Grant:
        """Keep the lease without renewals for ``limit`` seconds from now. It keeps its id, and can't write.
        Asked again, the limit counts anew. Raises LeaseLost, and InvalidRequest (unsupported) for a shared
        lease or one of a set."""
        return (await self._calls.ask(_requests.park(lease_id=lease_id, limit_ms=_ms(limit, "limit")))).lease

    async def unpark(
        self, lease_id: str, *, ttl: float | None = None, session_id: str | None = None
    ) -> Grant:
        """Take a parked lease up again, with a new token: in a session, or by itself with ``ttl`` (default:
        the TTL that it had). One that is not parked is answered as it is. It has to be renewed from here on;
        ``take_up`` does that for you. Raises LeaseLost."""
        request = _requests.unpark(
            lease_id=lease_id, session_id=session_id, ttl_ms=None if ttl is None else _ms(ttl, "ttl")
        )
        return (await self._calls.ask(request)).lease

    async def abandon(self, request_id: str, *, session_id: str | None = None) -> None:
        """Give up the acquire with this request_id: its place in the queue, or its grant."""
        await self._calls.ask(_requests.abandon(request_id=request_id, session_id=session_id))

    async def break_(self, key: str, *, reason: str) -> Broken:
        """End the lease of whoever holds ``key``; for operators. Not repeated after an unknown outcome."""
        return await self._calls.ask(_requests.break_(key=key, reason=reason))

    async def resize(self, key: str, *, slots: int) -> Resized:
        """Give the pool of permits ``key`` another number of slots while it is in use; for operators. Nobody
        loses a permit by it, and whoever asks from then on has to name the new number. Raises TenureError if
        nobody holds it or waits for it, or if it is no pool."""
        return await self._calls.ask(_requests.resize(key=key, slots=slots))

    async def get(self, key: str) -> LeaseInfo | None:
        """The present lease of ``key``, or None."""
        return await self._calls.find(_requests.lease(key))

    async def leases(
        self, prefix: str = "", *, owner: str | None = None, page: int | None = None
    ) -> AsyncIterator[LeaseInfo]:
        """All leases whose key begins with ``prefix``, in the order of the keys' bytes. Each page is read
        as of its own moment."""
        after: str | None = None
        while True:
            answer = await self.leases_page(prefix, owner=owner, limit=page, after=after)
            for lease in answer.leases:
                yield lease
            if answer.next is None:
                return
            after = answer.next

    async def leases_page(
        self,
        prefix: str = "",
        *,
        owner: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> LeasePage:
        """One page of ``leases``; ``after`` is the ``next`` of the page before."""
        return await self._calls.ask(_requests.leases(prefix=prefix, limit=limit, after=after, owner=owner))

    async def queue(self, key: str) -> Queue:
        """Holders and waiters of ``key``, in order, and the chain of those who wait for one another."""
        return await self._calls.ask(_requests.queue(key))

    # -- guard and record
    # ---------------------------------------------------------------------------------------

    async def validate(self, key: str, token: int) -> Validation:
        """Whether ``token`` could write now. Advice: the moment of checking is not the moment of writing."""
        return await self._calls.ask(_requests.validate(key=key, token=token))

    async def commit(
        self,
        key: str,
        *,
        lease_id: str,
        token: int,
        mode: Literal["current", "once", "sequence"] = "once",
        value: str | bytes | None = None,
        seq: int | None = None,
        slot: int | None = None,
        op_id: str | None = None,
        if_revision: int | None = None,
        require_live: bool = True,
        digest: str | None = None,
    ) -> Accepted:
        """Write through the key's guard; without a ``value`` only mark the token as used.

        When it returns, the write was accepted and ``value`` is the key's record. Raises CommitRefused:
        nothing was written, and ``code`` and ``floor`` say why. OutcomeUnknown: ask again with the same
        ``op_id`` (one of your own; else it is minted for this call).
        """
        body = {
            "key": key,
            "lease_id": lease_id,
            "token": token,
            "mode": mode,
            "seq": seq,
            "slot": slot or None,
            "op_id": op_id or mint_id(),
            "if_revision": if_revision,
            "require_live": None if require_live else False,
            "digest": digest,
            **_requests.encoded(value),
        }
        return await self._calls.ask(_requests.commit(body))

    async def record(self, key: str) -> Record | None:
        """The value last accepted for ``key``, or None."""
        return await self._calls.find(_requests.record(key))

    async def delete_record(self, key: str, *, if_revision: int | None = None) -> bool:
        """Delete the key's record; false if it had none. Without ``if_revision`` not repeated after an
        unknown outcome."""
        return await self._calls.find(_requests.delete_record(key, if_revision=if_revision)) is not None

    # -- sessions
    # -----------------------------------------------------------------------------------------------

    async def open_session(
        self, *, owner: str, ttl: float, metadata: Mapping[str, str] | None = None
    ) -> Session:
        """Open a session that keeps any number of leases alive. If the outcome is unknown, a session that
        nobody knows ends at its TTL."""
        body = {"owner": owner, "ttl_ms": _ms(ttl, "ttl"), "metadata": dict(metadata) if metadata else None}
        return (await self._calls.ask(_requests.open_session(body))).session

    async def renew_session(self, session_id: str, *, ttl: float | None = None) -> Session:
        """Renew the session and so all its leases. Raises LeaseLost when it is over."""
        request = _requests.renew_session(
            session_id=session_id, ttl_ms=None if ttl is None else _ms(ttl, "ttl")
        )
        return (await self._calls.ask(request)).session

    async def session(self, session_id: str) -> Session | None:
        """The session as it stands, or None if there is no such session any more."""
        try:
            answer = await self._calls.find(_requests.session(session_id))
        except LeaseLost:
            return None
        return None if answer is None else answer.session

    async def close_session(self, session_id: str) -> bool:
        """End the session and all its leases; false if it was over already."""
        try:
            return await self._calls.find(_requests.close_session(session_id)) is not None
        except LeaseLost:
            return False

    # -- events

    async def watch(self, prefix: str = "", *, after: int | None = None) -> AsyncGenerator[Event, None]:
        """What happens to the keys that begin with ``prefix``: each event once, in the order of revisions.

        ``event.kind`` is one of EventKind. Begins now, or after the revision ``after``; to know the state as
        well, list it first and watch after the ``revision`` of that page. Goes on by itself through lost
        connections, nodes that stop and changes of leader, for as long as it is iterated. What no node
        remembers any more is told as an event of the kind ``gap``. A change of leader is not told: it is what
        one node sees, has no revision, and no lease ends by it. Raises what the cluster refuses for good.
        """
        watch = Watch(self._calls, prefix, after)
        try:
            while True:
                yield await watch.next()
        finally:
            await watch.close()

    # -- credentials
    # --------------------------------------------------------------------------------------------

    async def create_credential(
        self,
        name: str,
        *,
        rights: Sequence[str],
        tenant: str = "default",
        prefixes: Sequence[str] = ("",),
        lifetime: float | None = None,
    ) -> NewCredential:
        """Make a credential for keys that begin with one of ``prefixes``, valid for ``lifetime`` seconds, or
        always. Needs the right `admin`.

        The answer's ``bearer`` is its secret, which nobody can be told again. If the outcome is unknown, look
        for one of that name and revoke it. Raises NotAuthorized, QuotaExceeded or InvalidRequest.
        """
        body = {
            "name": name,
            "tenant": tenant,
            "rights": list(rights),
            "prefixes": list(prefixes),
            "lifetime_ms": None if lifetime is None else _ms(lifetime, "lifetime"),
        }
        return await self._calls.ask(_requests.create_credential(body))

    async def credentials(self, *, tenant: str | None = None) -> list[Credential]:
        """All credentials, or those of one tenant, without their secrets."""
        found: list[Credential] = []
        after: str | None = None
        while True:
            page = await self._calls.ask(_requests.credentials(tenant=tenant, after=after))
            found += page.credentials
            after = page.next
            if after is None:
                return found

    async def rotate_credential(self, credential_id: str, *, overlap: float | None = None) -> NewCredential:
        """Give a credential a new secret; the present one stays valid for ``overlap`` seconds, an hour unless
        said otherwise, and with 0 not at all. Raises NotFound if there is no such credential. If the outcome
        is unknown, rotate again: what is in its overlap stays valid."""
        overlap_ms = None if overlap is None else _ms(overlap, "overlap")
        request = _requests.rotate_credential(credential_id=credential_id, overlap_ms=overlap_ms)
        return await self._calls.ask(request)

    async def revoke_credential(self, credential_id: str) -> bool:
        """Take a credential away; false if there was none. The last one with the right `admin` is refused by
        InvalidRequest."""
        return await self._calls.find(_requests.revoke_credential(credential_id)) is not None

    # -- tenants
    # ------------------------------------------------------------------------------------------------

    async def tenants(self) -> list[Tenant]:
        """All tenants with what they have. Needs the right `admin`, as all about tenants does."""
        found: list[Tenant] = []
        after: str | None = None
        while True:
            page = await self._calls.ask(_requests.tenants(after=after))
            found += page.tenants
            after = page.next
            if after is None:
                return found

    async def set_quota(self, tenant: str, quota: Quota) -> None:
        """Set the whole of what a tenant may have. What it has beyond that it keeps. Raises InvalidRequest
        for bounds that can't be."""
        await self._calls.ask(_requests.set_quota(tenant, msgspec.structs.asdict(quota)))

    async def reset_quota(self, tenant: str) -> None:
        """Let a tenant have what the nodes' configuration says."""
        await self._calls.ask(_requests.reset_quota(tenant))

    # -- backups
    # ------------------------------------------------------------------------------------------------

    async def backup(self, path: str | os.PathLike[str]) -> SavedBackup:
        """Save the state of the whole cluster as a file, while it serves. It has everything that was
        acknowledged before this call. Needs the right `admin`.

        The file takes its name when it is whole and durable; when this raises, ``path`` is what it was
        before. Raises OSError if it can't be written. It takes as long as it takes: no time-out ends it, save
        that a node must not be silent for minutes.
        """
        return await save(self._calls, Path(path))

    # -- audit
    # --------------------------------------------------------------------------------------------------

    async def audit(self, *, after: int = 0, limit: int = 1_000) -> AuditPage:
        """A page of who did what to which key, and of what was refused, behind the record number ``after``.
        Needs the right `admin`."""
        return await self._calls.ask(_requests.audit(after=after, limit=limit))

    # -- cluster
    # ------------------------------------------------------------------------------------------------

    async def cluster(self, *, endpoint: str | None = None) -> Cluster:
        """One node's view of the cluster: of any node, or of the one at ``endpoint``, which is then asked
        alone."""
        if endpoint is None:
            return await self._calls.ask(_requests.cluster())
        alone = Endpoints(parse_endpoints([endpoint]))
        return (await self._calls.perform(self._calls.call(_requests.cluster(), endpoints=alone))).value

    async def nodes(self) -> Nodes:
        """Every member as it describes itself to the node that is asked: role, lag, disk, version. Needs no
        leader and no quorum; a member that isn't reached within a second is told as such."""
        return await self._calls.ask(_requests.nodes())

    async def add_member(self, id: str, *, peer: str, http: str, readdress: bool = False) -> Members:
        """Make a node that waits for it a member, which is a learner until it has caught up; ``cluster``
        tells when it is a voter. With ``readdress``: say where a member that is there is to be reached. Needs
        the right `admin`. Raises InvalidRequest if that can't be, or not now; if the outcome is unknown, ask
        again: what has come about is answered so."""
        return await self._calls.ask(_requests.add_member(id, peer, http, readdress))

    async def remove_member(self, id: str) -> Members:
        """Remove a member for ever; its name is not given again. Needs the right `admin`. Raises
        InvalidRequest if the voters that are left could not go on, or another change is under way; if the
        outcome is unknown, ask again."""
        return await self._calls.ask(_requests.remove_member(id))

    async def transfer(self, to: str | None = None) -> Transferred:
        """Let another node lead: the one with that name, or one that is up to date. Needs the right `admin`.
        Raises InvalidRequest if the leader keeps its office, after an election time-out at the latest; if the
        outcome is unknown, ``cluster`` tells who leads."""
        return await self._calls.ask(_requests.transfer(to))
