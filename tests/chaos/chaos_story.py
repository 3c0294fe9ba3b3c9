"""Small histories, told call by call, of a service that does everything right unless it is told to lie.

A ``Story`` goes on by a tenth of a second with every call. The cluster's clock is the true one, and an effect
is applied in the middle of its call.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from tenure_chaos.history import DEFAULT_TENANT, CallRecord, Effect, History

APPLIED_S = 0.01
RETURNED_S = 0.02
STEP_S = 0.1


@dataclass
class Grant:
    client: str
    key: str
    token: int
    ttl_ms: int
    request_id: str
    lease_id: str
    session_id: str
    owner: str
    grace_ms: int = 0
    deadline_ms: int = 0
    waited: bool = False
    mode: str = "exclusive"
    slot: int = 0
    slots: int = 1
    progress_ms: int = 0


@dataclass
class Waiter:
    client: str
    key: str
    ttl_ms: int
    request_id: str
    grace_ms: int
    session_id: str = ""
    keys: tuple[str, ...] = ()
    mode: str = "exclusive"
    slots: int = 1


@dataclass
class Story:
    """``now`` is when the next call is made."""

    tenant: str = DEFAULT_TENANT
    history: History = field(default_factory=lambda: History(clock_rate_bound=0.005, complete=True))
    now: float = 1.0
    index: int = 0
    token: int = 0
    revision: int = 0
    requests: int = 0
    held: dict[str, Grant] = field(default_factory=dict)
    queues: dict[str, list[Waiter]] = field(default_factory=dict)
    records: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    # -- what stories are made of

    @property
    def calls(self) -> list[CallRecord]:
        return self.history.calls

    @property
    def effects(self) -> list[Effect]:
        return self.history.effects

    def call(self, client: str, name: str, asked: dict[str, Any], **became: Any) -> CallRecord:
        """A call is made and answered, and the story goes on. ``became`` are fields of the record."""
        record = CallRecord(
            number=len(self.calls),
            client=client,
            name=name,
            asked=asked,
            invoked_at=self.now,
            tenant=self.tenant,
            **{"returned_at": self.now + RETURNED_S, "outcome": "ok", **became},
        )
        if record.outcome == "ok" and not record.answered_attempt_at:
            record.answered_attempt_at = record.invoked_at
        self.calls.append(record)
        self.now += STEP_S
        self.history.duration_s = self.now
        return record

    def effect(
        self,
        command: str,
        fields: dict[str, Any],
        result: str,
        told: dict[str, Any] | None = None,
        events: tuple[dict[str, Any], ...] = (),
    ) -> Effect:
        """An entry is applied, in the middle of the call that comes next."""
        self.index += 1
        effect = Effect(
            index=self.index,
            place=0,
            first_applied_at=self.now + APPLIED_S,
            at_ms=self.now_ms,
            command=command,
            fields={
                "wall_ms": 0,
                **({} if command in ("Expire", "Tick") else {"tenant": self.tenant}),
                **fields,
            },
            result=result,
            result_fields=told or {},
            events=events,
        )
        self.effects.append(effect)
        return effect

    @property
    def now_ms(self) -> int:
        return round((self.now + APPLIED_S) * 1000)

    def event(
        self,
        kind: str,
        key: str,
        owner: str,
        token: int = 0,
        detail: str = "",
        mode: str = "exclusive",
        slot: int = 0,
    ) -> dict[str, Any]:
        self.revision += 1
        return {
            "tenant": self.tenant,
            "revision": self.revision,
            "kind": kind,
            "key": key,
            "owner": owner,
            "token": token,
            "at_ms": self.now_ms,
            "wall_ms": 0,
            "detail": detail,
            "mode": mode,
            "slot": slot,
        }

    def of(self, kind: str, grant: Grant, detail: str = "") -> dict[str, Any]:
        """An event of a lease."""
        return self.event(kind, grant.key, grant.owner, grant.token, detail, grant.mode, grant.slot)

    def edit(self, n: int, **changes: Any) -> None:
        """Change an effect afterwards."""
        self.effects[n] = dataclasses.replace(self.effects[n], **changes)

    def forget(self, n: int) -> None:
        """Take an effect out of the log, and its revisions with it."""
        gone = len(self.effects.pop(n).events)
        for later in self.effects[n:]:
            for event in later.events:
                event["revision"] -= gone
        self.revision -= gone

    def told(self, grant: Grant, *, claim_ms: int = 0) -> dict[str, Any]:
        """A grant as the machine answers it."""
        lease = {
            "tenant": self.tenant,
            "lease_id": grant.lease_id,
            "key": grant.key,
            "mode": grant.mode,
            "slot": grant.slot,
            "session_id": grant.session_id,
            "owner": grant.owner,
            "token": grant.token,
            "grace_ms": grant.grace_ms,
            "metadata": {},
            "request_id": grant.request_id,
            "claim_deadline_ms": claim_ms,
            "granted_ms": self.now_ms,
            "granted_wall_ms": 0,
            "revision": self.revision,
        }
        session = {
            "tenant": self.tenant,
            "session_id": grant.session_id,
            "owner": grant.owner,
            "ttl_ms": grant.ttl_ms,
            "deadline_ms": grant.deadline_ms,
            "private": grant.session_id == grant.lease_id,
            "metadata": {},
            "opened_wall_ms": 0,
            "renewed_wall_ms": 0,
        }
        return {"lease": lease, "session": session}

    def lease(self, grant: Grant) -> dict[str, Any]:
        """A grant as its holder is told of it."""
        return {
            "key": grant.key,
            "owner": grant.owner,
            "token": grant.token,
            "mode": grant.mode,
            "slot": grant.slot,
            "ttl_ms": grant.ttl_ms,
            "expires_in_ms": max(0, grant.deadline_ms - self.now_ms),
            "lease_id": grant.lease_id,
            "session_id": grant.session_id,
        }

    # -- acquiring

    def acquire(self, client: str, key: str, *, ttl_ms: int = 5_000, **lies: Any) -> Grant:
        """Granted. Whoever holds the key is passed over without a word, so see that nobody does. ``lies``:
        ``token``, ``request_id``, ``grace_ms``, ``mode``, ``slot``, ``slots``, ``progress_ms``; ``answer``
        None: no answer comes; or the answer's fields.
        """
        grant = self._grant(client, key, ttl_ms, lies)
        asked = self._asked(grant, wait=False)
        told = {"grants": [self.told(grant)], "replayed": False, "claimed": True}
        self.effect("Acquire", asked, "Granted", told, (self.of("granted", grant),))
        became: dict[str, Any] = {
            "answer": {"status": "granted", "lease": self.lease(grant), "replayed": False}
        }
        if "answer" in lies:
            became = lies["answer"] or {"outcome": "unknown"}
        self.call(client, "acquire", self._sent(grant), **became)
        return grant

    def _grant(self, client: str, key: str, ttl_ms: int, lies: dict[str, Any]) -> Grant:
        self.requests += 1
        self.token = lies.get("token", self.token + 1)
        name = lies.get("request_id", f"{client}-{self.requests}")
        lease_id = f"lease-{self.tenant}-{self.requests}"
        session_id = lies.get("session_id", lease_id)
        grant = Grant(client, key, self.token, ttl_ms, name, lease_id, session_id, client)
        grant.grace_ms = lies.get("grace_ms", 0)
        grant.mode, grant.slot = lies.get("mode", "exclusive"), lies.get("slot", 0)
        grant.slots, grant.progress_ms = lies.get("slots", 1), lies.get("progress_ms", 0)
        grant.deadline_ms = self.now_ms + (grant.progress_ms or ttl_ms)
        self.held[key] = grant
        return grant

    def _asked(self, grant: Grant | Waiter, *, wait: bool) -> dict[str, Any]:
        lease_id = grant.lease_id if isinstance(grant, Grant) else f"lease-of-{grant.request_id}"
        private = grant.session_id in ("", lease_id)
        keys = getattr(grant, "keys", ()) or (grant.key,)
        return {
            "keys": list(keys),
            "lease_ids": [lease_id] if len(keys) == 1 else [f"{lease_id}-{key}" for key in keys],
            "owner": grant.client,
            "session_id": None if private else grant.session_id,
            "ttl_ms": grant.ttl_ms if private else None,
            "request_id": grant.request_id,
            "remember": True,
            "wait": wait,
            "mode": grant.mode,
            "slots": grant.slots,
            "grace_ms": grant.grace_ms,
            "if_held": "return",
            "metadata": {},
            "progress_ms": getattr(grant, "progress_ms", 0),
        }

    def _sent(self, grant: Grant | Waiter) -> dict[str, Any]:
        sent = {
            "key": grant.key,
            "owner": grant.client,
            "ttl_ms": grant.ttl_ms,
            "request_id": grant.request_id,
        }
        if grant.session_id not in ("", getattr(grant, "lease_id", "")):
            sent["session_id"] = grant.session_id
        return sent

    def is_held(self, client: str, key: str, **became: Any) -> CallRecord:
        """An acquire that is refused because of who holds."""
        self.requests += 1
        waiter = Waiter(client, key, 5_000, f"{client}-{self.requests}", 0)
        holder = self.held.get(key)
        self.effect("Acquire", self._asked(waiter, wait=False), "Held", {"key": key})
        answer = {"holder": {"token": holder.token}} if holder else {}
        refused = {"outcome": "refused", "code": "held", "answer": answer}
        return self.call(client, "acquire", self._sent(waiter), **{**refused, **became})

    def open_session(self, client: str, *, ttl_ms: int = 5_000) -> str:
        """A session; its id."""
        self.requests += 1
        session_id = f"session-{self.requests}"
        grant = Grant(client, "", 0, ttl_ms, "", "", session_id, client, deadline_ms=self.now_ms + ttl_ms)
        told = {"session": self.told(grant)["session"], "leases": 0}
        self.effect(
            "OpenSession", {"session_id": session_id, "owner": client, "ttl_ms": ttl_ms}, "SessionIs", told
        )
        self.call(client, "open_session", {"owner": client, "ttl_ms": ttl_ms}, answer=told)
        return session_id

    def wait(self, client: str, key: str, *, ttl_ms: int = 5_000, session_id: str = "") -> Waiter:
        """Queued."""
        self.requests += 1
        waiter = Waiter(client, key, ttl_ms, f"{client}-{self.requests}", 0, session_id)
        self.queues.setdefault(key, []).append(waiter)
        joined = self.event("queue_joined", key, client)
        told = {"position": len(self.queues[key]), "holders": [], "ahead": []}
        self.effect("Acquire", self._asked(waiter, wait=True), "Waiting", told, (joined,))
        answer = {"status": "waiting", "position": len(self.queues[key])}
        self.call(client, "acquire", self._sent(waiter), answer=answer)
        return waiter

    def serve(self, key: str, *, place: int = 0, **lies: Any) -> tuple[Grant, dict[str, Any]]:
        """Who waits longest is granted the key: the grant, to be claimed, and its event."""
        waiter = self.queues[key].pop(place)
        grant = self._grant(waiter.client, key, waiter.ttl_ms, {"request_id": waiter.request_id, **lies})
        grant.lease_id = f"lease-of-{waiter.request_id}"
        grant.session_id = waiter.session_id or grant.lease_id
        grant.waited = True
        return grant, self.event("granted", key, grant.owner, grant.token)

    def claim(self, grant: Grant) -> None:
        """A poll of the waiter finds its grant."""
        grant.deadline_ms = self.now_ms + grant.ttl_ms
        told = {"grants": [self.told(grant)], "replayed": False, "claimed": True}
        self.effect("Claim", {"lease_id": grant.lease_id}, "Granted", told)
        answer = {"status": "granted", "lease": self.lease(grant), "replayed": False}
        self.call(grant.client, "acquire", self._sent(grant), answer=answer)

    # -- holding

    def renew(self, grant: Grant, **became: Any) -> CallRecord:
        grant.deadline_ms = max(grant.deadline_ms, self.now_ms + grant.ttl_ms)
        fields = {"lease_id": grant.lease_id, "session_id": None, "ttl_ms": None}
        self.effect("Renew", fields, "Renewed", {"grant": self.told(grant)})
        return self.call(
            grant.client, "renew", self.named(grant), **{"answer": {"lease": self.lease(grant)}, **became}
        )

    def named(self, grant: Grant) -> dict[str, Any]:
        return {"key": grant.key, "token": grant.token, "lease_id": grant.lease_id}

    def is_lost(self, grant: Grant, name: str = "renew", reason: str = "expired") -> CallRecord:
        """A renewal or release that is refused because the lease is over."""
        fields = {"lease_id": grant.lease_id}
        if name == "renew":
            fields |= {"session_id": None, "ttl_ms": None}
        self.effect(name.capitalize(), fields, "Lost", {"reason": reason})
        refused = {"outcome": "refused", "code": "lost", "answer": {"reason": reason}}
        return self.call(grant.client, name, self.named(grant), **refused)

    def release(self, grant: Grant, *, serve: int | None = None, **became: Any) -> Grant | None:
        """Ended by its holder; with ``serve`` the waiter at that place is granted the key at once."""
        events = [self.of("released", grant)]
        self.held.pop(grant.key, None)
        next_grant = None
        if serve is not None:
            next_grant, event = self.serve(grant.key, place=serve)
            events.append(event)
        fields = {"lease_id": grant.lease_id}
        self.effect("Release", fields, "Released", {"already": False}, tuple(events))
        self.call(grant.client, "release", self.named(grant), **{"answer": {"status": "released"}, **became})
        return next_grant

    def expire(self, grant: Grant, *, at: float | None = None, detail: str = "") -> None:
        """Ended by its deadline, when that has passed."""
        self.now = max(self.now, grant.deadline_ms / 1000) if at is None else at
        item = {"kind": "session", "tenant": self.tenant, "id": grant.session_id}
        expired = self.of("expired", grant, detail)
        fields = {"items": [{**item, "deadline_ms": grant.deadline_ms}]}
        self.effect("Expire", fields, "Done", {"ended": 1}, (expired,))
        self.held.pop(grant.key, None)
        self.now += STEP_S
        self.history.duration_s = self.now

    def break_(self, client: str, key: str) -> None:
        """Ended by force."""
        grant = self.held.pop(key)
        broken = [{"owner": grant.owner, "token": grant.token}]
        event = self.event("broken", key, grant.owner, grant.token, "because")
        self.token += 1
        fields = {"key": key, "reason": "because", "actor": "default"}
        self.effect("Break", fields, "Broken", {"leases": broken}, (event,))
        self.call(client, "break", {"key": key}, answer={"broken": broken})

    # -- sets, other hands, and rest

    def acquire_set(
        self, client: str, keys: tuple[str, ...], *, granted: tuple[str, ...] | None = None
    ) -> list[Grant]:
        """Granted at once; with ``granted`` only those."""
        asked = self.acquired_set(client, keys)
        given = keys if granted is None else granted
        grants = [self._grant(client, key, 5_000, {"request_id": asked.request_id}) for key in given]
        fields = self._asked(asked, wait=False)
        lease_ids = dict(zip(keys, fields["lease_ids"], strict=True))
        for grant in grants:
            grant.lease_id, grant.session_id = lease_ids[grant.key], fields["lease_ids"][0]
        events = tuple(self.of("granted", grant) for grant in grants)
        told = {"grants": [self.told(grant) for grant in grants], "replayed": False, "claimed": True}
        self.effect("Acquire", fields, "Granted", told, events)
        answer = {"status": "granted", "leases": [self.lease(grant) for grant in grants], "replayed": False}
        self.call(client, "acquire", self._sent_set(asked), answer=answer)
        return grants

    def acquired_set(self, client: str, keys: tuple[str, ...]) -> Waiter:
        self.requests += 1
        return Waiter(client, keys[0], 5_000, f"{client}-{self.requests}", 0, keys=keys)

    def _sent_set(self, waiter: Waiter) -> dict[str, Any]:
        return {"keys": list(waiter.keys), **{k: v for k, v in self._sent(waiter).items() if k != "key"}}

    def wait_for_set(self, client: str, keys: tuple[str, ...]) -> Waiter:
        """Queued for all of them."""
        waiter = self.acquired_set(client, keys)
        for key in keys:
            self.queues.setdefault(key, []).append(waiter)
        joined = tuple(self.event("queue_joined", key, client) for key in keys)
        self.effect("Acquire", self._asked(waiter, wait=True), "Waiting", {"position": 1}, joined)
        self.call(client, "acquire", self._sent_set(waiter), answer={"status": "waiting", "position": 1})
        return waiter

    def hand_over(self, grant: Grant, session_id: str, to: str, **lies: Any) -> Grant:
        """To a session of ``to``: in one entry, with the next token."""
        ended = self.of("handed_over", grant, to)
        given = self._grant(to, grant.key, grant.ttl_ms, {"session_id": session_id, **lies})
        fields = {"lease_id": grant.lease_id, "to_session_id": session_id, "new_lease_id": given.lease_id}
        told = {"grant": self.told(given), "replayed": False}
        events = (ended, self.of("granted", given))
        self.effect("Handover", fields, "HandedOver", told, lies.get("events", events))
        asked = {**self.named(grant), "to_session_id": session_id}
        answer = {"status": "handed_over", "lease": self.lease(given), "replayed": False}
        self.call(grant.client, "handover", asked, answer=answer)
        return given

    def park(self, grant: Grant, limit_ms: int, **lies: Any) -> None:
        """Kept until the limit."""
        grant.deadline_ms = lies.get("deadline_ms", self.now_ms + limit_ms)
        grant.session_id, ttl_ms = grant.lease_id, grant.ttl_ms
        grant.ttl_ms = limit_ms
        fields = {"lease_id": grant.lease_id, "limit_ms": limit_ms}
        self.effect("Park", fields, "Parked", {"grant": self.told(grant)}, (self.of("parked", grant),))
        asked = {**self.named(grant), "limit_ms": limit_ms}
        self.call(grant.client, "park", asked, answer={"status": "parked", "lease": self.lease(grant)})
        grant.ttl_ms = ttl_ms

    def take_up(self, grant: Grant, **lies: Any) -> Grant:
        """The parked lease again, with the next token."""
        self.token = lies.get("token", self.token + 1)
        taken = dataclasses.replace(grant, token=self.token, deadline_ms=self.now_ms + grant.ttl_ms)
        self.held[grant.key] = taken
        fields = {"lease_id": grant.lease_id, "session_id": None, "ttl_ms": None}
        told = {"grant": self.told(taken), "replayed": False}
        self.effect("Unpark", fields, "Unparked", told, (self.of("unparked", taken),))
        answer = {"status": "unparked", "lease": self.lease(taken), "replayed": False}
        self.call(grant.client, "unpark", self.named(grant), answer=answer)
        return taken

    def tell_progress(self, grant: Grant) -> None:
        """A renewal with a note of progress."""
        grant.deadline_ms = self.now_ms + grant.progress_ms
        fields = {"lease_id": grant.lease_id, "session_id": None, "ttl_ms": None}
        event = self.of("progress", grant, "step")
        self.effect("Renew", fields, "Renewed", {"grant": self.told(grant)}, (event,))
        self.call(grant.client, "renew", self.named(grant), answer={"lease": self.lease(grant)})

    def queue(self, key: str, chain: list[dict[str, Any]], **lies: Any) -> CallRecord:
        """Who blocks whom; without lies the holders and waiters as they are."""
        holder = self.held.get(key)
        answer = {
            "key": key,
            "holders": [{"token": holder.token}] if holder else [],
            "waiters": [{"owner": waiter.client} for waiter in self.queues.get(key, ())],
            "chain": chain,
            **lies,
        }
        return self.call("reader", "queue", {"key": key}, answer=answer)

    def link(self, key: str, state: str = "holding") -> dict[str, Any]:
        """The holder of a key as a link of the chain."""
        grant = self.held[key]
        return {"key": key, "owner": grant.owner, "state": state, "token": grant.token}

    # -- writing and reading

    def commit(self, grant: Grant, value: str, **fields: Any) -> CallRecord:
        """Accepted."""
        asked = self._commit(grant, value, fields)
        event = self.event("committed", grant.key, grant.owner, grant.token)
        self.records[grant.key] = (self.revision, grant.token, value)
        self.effect("Commit", asked, "Committed", {"revision": self.revision}, (event,))
        return self.call(grant.client, "commit", self._sent_commit(asked), answer={"revision": self.revision})

    def is_refused(self, grant: Grant, value: str, code: str, floor: int, **fields: Any) -> CallRecord:
        """A commit that the guard refuses."""
        asked = self._commit(grant, value, fields)
        event = self.event("commit_refused", grant.key, grant.owner, grant.token, code)
        told = {"code": code, "floor": floor, "last_token": 0, "last_seq": 0, "revision": 0}
        self.effect("Commit", asked, "CommitRefused", told, (event,))
        refused = {"outcome": "refused", "code": code, "answer": {"floor": floor}}
        return self.call(grant.client, "commit", self._sent_commit(asked), **refused)

    def _commit(self, grant: Grant, value: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {
            "key": grant.key,
            "slot": 0,
            "lease_id": grant.lease_id,
            "token": grant.token,
            "mode": "current",
            "seq": None,
            "op_id": None,
            "require_live": True,
            "if_revision": None,
            "value": value.encode(),
            "binary": False,
            "digest": "",
            **fields,
        }

    def _sent_commit(self, asked: dict[str, Any]) -> dict[str, Any]:
        sent = {name: value for name, value in asked.items() if value is not None}
        return {**sent, "value": asked["value"].decode()}

    def get(self, key: str, *, client: str = "reader", **became: Any) -> CallRecord:
        grant = self.held.get(key)
        if grant is None:
            said: dict[str, Any] = {"outcome": "refused", "code": "not_held"}
        else:
            said = {"answer": {"key": key, "owner": grant.owner, "token": grant.token, "mode": "exclusive"}}
        return self.call(client, "get", {"key": key}, **{**said, **became})

    def record(self, key: str, *, client: str = "reader", **became: Any) -> CallRecord:
        if key not in self.records:
            said: dict[str, Any] = {"outcome": "refused", "code": "no_record"}
        else:
            revision, token, value = self.records[key]
            said = {
                "answer": {"key": key, "revision": revision, "token": token, "value": value, "owner": "x"}
            }
        return self.call(client, "record", {"key": key}, **{**said, **became})
