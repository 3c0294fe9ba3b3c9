"""Requests become commands, and commands are stamped and proposed: the only place that does either.

Everything random is drawn here and goes into the command, and the stamp is this leader's cluster clock at the
moment of proposing. Nothing that a caller sent is a time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

from tenure_cluster.lease import commands
from tenure_cluster.lease.audit_trail import NoteAudit
from tenure_cluster.lease.commands import AnyCommand, Command
from tenure_cluster.lease.credentials import CreateCredential, RevokeCredential, RotateCredential
from tenure_cluster.lease.quota import Quota, SetQuota
from tenure_cluster.raft import Applied, NotExecuted, Raft
from tenure_cluster.raft import Outcome as RaftOutcome
from tenure_cluster.service.answers import RETRY_S
from tenure_cluster.service.asks import Ask, NoAnswer
from tenure_cluster.service.audit_messages import NoteAuditRequest, within_bounds
from tenure_cluster.service.credential_requests import (
    EntrustRequest,
    ReplaceSecretRequest,
    ResetQuotaRequest,
    RevokeCredentialRequest,
    SetQuotaRequest,
)
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.requests import (
    AbandonRequest,
    AcquireRequest,
    BreakRequest,
    CloseSessionRequest,
    CommitRequest,
    DeleteRecordRequest,
    HandoverRequest,
    OpenSessionRequest,
    ParkRequest,
    ReleaseRequest,
    RenewRequest,
    ResizeRequest,
    UnparkRequest,
)
from tenure_cluster.service.validation import commit_value
from tenure_cluster.service.versions import NEWER, tag_of

Settled: TypeAlias = object
"""A result of the state machine, or a Problem or NoAnswer if the command did not get that far."""
Then: TypeAlias = Callable[[Settled], None]


NEEDED: Final[dict[type, int]] = {ResizeRequest: tag_of(commands.Resize)}
"""The requests of requests.OPERATIONS that need a command which not every node knows that may run beside this
one, with its tag."""


class Proposer:
    """Stamps, encodes and proposes. `pending` counts what was proposed and has not come back."""

    def __init__(
        self,
        raft: Raft,
        mint: Callable[[], str],
        wall_ms: Callable[[], int],
        held_back: Callable[[int], Problem | None] = lambda tag: None,
    ) -> None:
        """`held_back` says why a command with this tag can't be proposed yet; see versions.py."""
        self._raft = raft
        self._held_back = held_back
        self._mint = mint
        self._wall_ms = wall_ms
        self.pending = 0
        self.asked = 0
        """How much was ever proposed because somebody asked for it."""
        self.on_ask: Callable[[Ask], Callable[[RaftOutcome], None] | None] | None = None
        """Told of what is asked for alone; what it gives is told the outcome."""

    def propose(
        self, command: AnyCommand, then: Then, hear: Callable[[RaftOutcome], None] | None = None
    ) -> None:
        """Propose `command` now. `then` is called exactly once, perhaps before this returns; `hear` before
        it."""
        tag = NEWER.get(type(command))
        if tag is not None and (refusal := self._held_back(tag)) is not None:
            then(refusal)
            return
        encoded = commands.encode(command)
        self.pending += 1

        def settled(outcome: RaftOutcome) -> None:
            self.pending -= 1
            if hear is not None:
                hear(outcome)
            then(outcome.result if type(outcome) is Applied else _without_result(outcome))

        self._raft.propose(self._raft.now_ms(), encoded, settled)

    def ask(self, ask: Ask, then: Then) -> None:
        """Propose what `ask` asks for."""
        self.asked += 1
        hear = None if self.on_ask is None else self.on_ask(ask)
        self.propose(_COMMANDS[type(ask.request)](ask, ask.request, self._mint, self._wall_ms()), then, hear)

    def ask_all(self, asks: Sequence[Ask], then: Callable[[range, RaftOutcome | Problem], None]) -> None:
        """Propose what several ask for that came together, with one stamp. What becomes of them is told as
        consensus tells it, for a part of them each time: whoever is told gives it to `settled`. What can't be
        proposed yet is told at once, and the rest goes on."""
        mint, wall_ms = self._mint, self._wall_ms()
        made = [_COMMANDS[type(ask.request)](ask, ask.request, mint, wall_ms) for ask in asks]
        held_back: dict[int, Problem] = {}
        if not NEWER.keys().isdisjoint(map(type, made)):
            for place, command in enumerate(made):
                tag = NEWER.get(type(command))
                if tag is not None and (refusal := self._held_back(tag)) is not None:
                    held_back[place] = refusal
        encoded = [commands.encode(command) for command in made]
        self.pending += len(asks)
        self.asked += len(asks)
        if not held_back:
            self._raft.propose_all(self._raft.now_ms(), encoded, then)
            return
        now_ms, start = self._raft.now_ms(), 0
        for place in (*held_back, len(made)):
            self._raft.propose_all(now_ms, encoded[start:place], partial(_further_on, then, start))
            start = place + 1
        for place, refusal in held_back.items():
            then(range(place, place + 1), refusal)

    def settled(self, count: int, outcome: RaftOutcome | Problem) -> Sequence[Settled]:
        """What so many proposals of `ask_all` came to; to be called once for each time that one was told."""
        self.pending -= count
        if type(outcome) is Applied:
            return cast("Sequence[Settled]", outcome.result)
        return [outcome if isinstance(outcome, Problem) else _without_result(outcome)] * count

    def claim(self, tenant: str, lease_id: str, then: Then) -> None:
        """Confirm a grant on behalf of a waiter that is connected."""
        self.propose(commands.Claim(tenant=tenant, lease_id=lease_id, wall_ms=self._wall_ms()), then)

    def abandon(
        self,
        tenant: str,
        request_id: str,
        session_id: str | None,
        then: Then,
        *,
        poll_deadline_ms: int | None = None,
    ) -> None:
        """Give up an acquire that was proposed before; see commands.Abandon."""
        self.propose(
            commands.Abandon(
                tenant=tenant,
                request_id=request_id,
                session_id=session_id,
                wall_ms=self._wall_ms(),
                poll_deadline_ms=poll_deadline_ms,
            ),
            then,
        )

    def expire(self, items: list[commands.ExpireItem], then: Then) -> None:
        self.propose(commands.Expire(items=items, wall_ms=self._wall_ms()), then)

    def tick(self, then: Then) -> None:
        self.propose(commands.Tick(wall_ms=self._wall_ms()), then)


def _further_on(
    then: Callable[[range, RaftOutcome | Problem], None], start: int, which: range, outcome: RaftOutcome
) -> None:
    """Tell of a part of what came together by its places in the whole."""
    then(range(start + which.start, start + which.stop), outcome)


def _without_result(outcome: RaftOutcome) -> Problem | NoAnswer:
    if type(outcome) is NotExecuted:
        if outcome.reason == "queue_full":
            return Problem("overloaded", "the leader's queue of proposals is full", {}, RETRY_S)
        if outcome.reason == "too_large":
            return Problem("too_large", "the operation does not fit into a log entry")
        return NoAnswer.NOT_EXECUTED
    return NoAnswer.UNKNOWN


def _acquire(ask: Ask, request: AcquireRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    if request.key is not None:
        keys, lease_ids = [request.key], [mint()]
    else:
        keys = request.keys or []
        lease_ids = [mint() for _ in keys]
    return commands.Acquire(  # by position: this is made very often
        ask.tenant,
        keys,
        lease_ids,
        request.owner,
        request.session_id,
        request.ttl_ms,
        request.request_id or "",
        ask.remember,
        request.wait_ms > 0,
        request.mode,
        request.slots or 1,
        request.grace_ms,
        request.if_held,
        request.metadata,
        wall_ms,
        request.progress_ms or 0,
    )


def _renew(ask: Ask, request: RenewRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    note = request.progress
    return commands.Renew(  # by position, likewise
        ask.tenant,
        request.lease_id,
        request.session_id,
        request.ttl_ms,
        wall_ms,
        commands.ProgressNote(note.step, note.text, note.counter) if note is not None else None,
    )


def _handover(ask: Ask, request: HandoverRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.Handover(
        tenant=ask.tenant,
        lease_id=request.lease_id,
        to_session_id=request.to_session_id,
        new_lease_id=mint(),
        wall_ms=wall_ms,
    )


def _park(ask: Ask, request: ParkRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.Park(
        tenant=ask.tenant,
        lease_id=request.lease_id,
        limit_ms=request.limit_ms,
        wall_ms=wall_ms,
        token=request.token,
    )


def _unpark(ask: Ask, request: UnparkRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.Unpark(
        tenant=ask.tenant,
        lease_id=request.lease_id,
        session_id=request.session_id,
        ttl_ms=request.ttl_ms,
        wall_ms=wall_ms,
        token=request.token,
    )


def _release(ask: Ask, request: ReleaseRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.Release(
        tenant=ask.tenant, lease_id=request.lease_id, wall_ms=wall_ms, whole_set=request.whole_set
    )


def _abandon(ask: Ask, request: AbandonRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.Abandon(
        tenant=ask.tenant, request_id=request.request_id, session_id=request.session_id, wall_ms=wall_ms
    )


def _break(ask: Ask, request: BreakRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.Break(
        tenant=ask.tenant,
        key=request.key,
        reason=request.reason,
        actor=ask.actor,
        wall_ms=wall_ms,
        origin=ask.origin,
    )


def _resize(ask: Ask, request: ResizeRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.Resize(
        tenant=ask.tenant,
        key=request.key,
        slots=request.slots,
        actor=ask.actor or ask.tenant,
        wall_ms=wall_ms,
    )


def _commit(ask: Ask, request: CommitRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.Commit(
        tenant=ask.tenant,
        key=request.key,
        slot=request.slot,
        lease_id=request.lease_id,
        token=request.token,
        mode=request.mode,
        seq=request.seq,
        op_id=request.op_id,
        require_live=request.require_live,
        if_revision=request.if_revision,
        value=commit_value(request),
        binary=request.value_encoding == "base64",
        digest=request.digest or "",
        wall_ms=wall_ms,
        actor=ask.actor,
        origin=ask.origin,
    )


def _delete_record(ask: Ask, request: DeleteRecordRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.DeleteRecord(
        ask.tenant, request.key, request.if_revision, wall_ms, actor=ask.actor, origin=ask.origin
    )


def _open_session(ask: Ask, request: OpenSessionRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.OpenSession(
        tenant=ask.tenant,
        session_id=mint(),
        owner=request.owner,
        ttl_ms=request.ttl_ms,
        metadata=request.metadata,
        wall_ms=wall_ms,
    )


def _close_session(ask: Ask, request: CloseSessionRequest, mint: Callable[[], str], wall_ms: int) -> Command:
    return commands.CloseSession(tenant=ask.tenant, session_id=request.session_id, wall_ms=wall_ms)


def _entrust(ask: Ask, request: EntrustRequest, mint: Callable[[], str], wall_ms: int) -> AnyCommand:
    asked = request.asked
    return CreateCredential(
        credential_id=request.credential_id,
        tenant=asked.tenant,
        name=asked.name,
        rights=asked.rights,
        prefixes=asked.prefixes,
        digest=request.digest,
        lifetime_ms=asked.lifetime_ms or 0,
        first=request.first,
        actor=ask.actor,
        wall_ms=wall_ms,
        origin=ask.origin,
    )


def _replace_secret(
    ask: Ask, request: ReplaceSecretRequest, mint: Callable[[], str], wall_ms: int
) -> AnyCommand:
    return RotateCredential(
        credential_id=request.asked.credential_id,
        digest=request.digest,
        overlap_ms=request.asked.overlap_ms,
        actor=ask.actor,
        wall_ms=wall_ms,
        origin=ask.origin,
    )


def _revoke(ask: Ask, request: RevokeCredentialRequest, mint: Callable[[], str], wall_ms: int) -> AnyCommand:
    return RevokeCredential(request.credential_id, ask.actor, wall_ms, ask.origin)


def _set_quota(ask: Ask, request: SetQuotaRequest, mint: Callable[[], str], wall_ms: int) -> AnyCommand:
    quota = Quota(*(getattr(request, name) for name in Quota.__struct_fields__))
    return SetQuota(request.tenant, quota, ask.actor, wall_ms, ask.origin)


def _reset_quota(ask: Ask, request: ResetQuotaRequest, mint: Callable[[], str], wall_ms: int) -> AnyCommand:
    return SetQuota(request.tenant, None, ask.actor, wall_ms, ask.origin)


def _note_audit(ask: Ask, request: NoteAuditRequest, mint: Callable[[], str], wall_ms: int) -> AnyCommand:
    return NoteAudit([within_bounds(note) for note in request.notes], wall_ms)


_COMMANDS: Final[dict[type, Callable[[Ask, Any, Callable[[], str], int], AnyCommand]]] = {
    AcquireRequest: _acquire,
    RenewRequest: _renew,
    ReleaseRequest: _release,
    HandoverRequest: _handover,
    ParkRequest: _park,
    UnparkRequest: _unpark,
    AbandonRequest: _abandon,
    BreakRequest: _break,
    ResizeRequest: _resize,
    CommitRequest: _commit,
    DeleteRecordRequest: _delete_record,
    OpenSessionRequest: _open_session,
    CloseSessionRequest: _close_session,
    EntrustRequest: _entrust,
    ReplaceSecretRequest: _replace_secret,
    RevokeCredentialRequest: _revoke,
    SetQuotaRequest: _set_quota,
    ResetQuotaRequest: _reset_quota,
    NoteAuditRequest: _note_audit,
}
