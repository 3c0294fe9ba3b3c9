"""The state of the fenced-lease model: lists of dictionaries, and the small steps that change them.

Every question is answered by looking through a list from end to end. See ``model_lease`` for the rules.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


WAITER_SILENCE_MS = 50_000
CLAIM_WINDOW_MS = 5_000
REQUEST_MEMORY_MS = 60_000
KEY_MEMORY_MS = 86_400_000

HOLDERS_MAX = 1_000
SET_PATIENCE_MS = 10_000
SET_KEYS_MAX = 64

BOUNDS = {
    "tokens": 2**53 - 1,
    "waiters": 10_000,
    "ended": 1_000_000,
    "answers": 1_000_000,
    "idle_keys": 100_000,
    "endings": 500,
    "grants": 1_000,
    "events": 1_000,
    "close": 500,
}
"""How much there may be: tokens of a tenant, waiters of a key, memories of ended leases (likewise of
requests given up and of expired sessions), of op_ids, idle keys, endings by one Expire; leases granted to
waiters and events from which on an entry leaves the rest to another, what is ended by closing a session at
once."""


class State:
    """The whole state is in these lists."""

    def __init__(self, bounds: dict[str, int] | None = None) -> None:
        self.bounds = BOUNDS | (bounds or {})
        self.time = 0
        self.wall = 0
        self.ticket = 0
        self.rank = 0
        self.tokens: Row = {}
        self.revisions: Row = {}
        self.sessions: list[Row] = []
        self.leases: list[Row] = []
        self.ended: list[Row] = []
        self.given_up: list[Row] = []
        self.over: list[Row] = []
        self.waiters: list[Row] = []
        self.keys: list[Row] = []
        self.records: list[Row] = []
        self.answers: list[Row] = []
        self.events: list[Row] = []
        self.touched: list[tuple[str, str]] = []
        self.endings_left = 0
        self.ended_items: list[str] = []
        self.grants_left = 0

    # What is there.

    def session(self, tenant: str, session_id: str) -> Row | None:
        return first(self.sessions, tenant=tenant, session_id=session_id)

    def lease(self, tenant: str, lease_id: str) -> Row | None:
        return first(self.leases, tenant=tenant, lease_id=lease_id)

    def key(self, tenant: str, key: str) -> Row | None:
        return first(self.keys, tenant=tenant, key=key)

    def record(self, tenant: str, key: str) -> Row | None:
        return first(self.records, tenant=tenant, key=key)

    def holders(self, tenant: str, key: str) -> list[Row]:
        return matching(self.leases, tenant=tenant, key=key)

    def queue(self, tenant: str, key: str) -> list[Row]:
        found = [row for row in self.waiters if row["tenant"] == tenant and key in row["keys"]]
        return sorted(found, key=lambda waiter: waiter["ticket"])

    def deadline(self, lease: Row) -> int:
        """When this lease is over unless something happens: with its session, or with its claim window."""
        session = self.session(lease["tenant"], lease["session_id"])
        assert session is not None, "a lease without a session"
        if lease["claim_deadline_ms"]:
            return min(session["deadline_ms"], lease["claim_deadline_ms"])
        if lease["progress_until_ms"]:
            return min(session["deadline_ms"], lease["progress_until_ms"])
        return session["deadline_ms"]

    def dead(self, lease: Row) -> bool:
        return self.deadline(lease) <= self.time

    def gone(self, waiter: Row) -> str:
        """Why a waiter no longer counts: it stopped polling, or its session is over. Empty if it counts."""
        if waiter["poll_deadline_ms"] <= self.time:
            return "silent"
        session = self.session(waiter["tenant"], waiter["session_id"])
        if session is not None and session["closed"]:
            return "session_closed"
        return "" if self.alive(session) else "session_expired"

    def alive(self, session: Row | None) -> bool:
        return session is not None and session["deadline_ms"] > self.time

    def waiter_of(self, tenant: str, scope: str, request_id: str) -> Row | None:
        for waiter in matching(self.waiters, tenant=tenant, request_id=request_id):
            if scope == ("" if waiter["private"] else waiter["session_id"]):
                return waiter
        return None

    def lease_of(self, tenant: str, scope: str, request_id: str) -> Row | None:
        return first(self.leases, tenant=tenant, scope=scope, request_id=request_id)

    # Passing time.

    def forget(self) -> None:
        """Drop the memories that are too old."""
        now = self.time
        self.ended = [row for row in self.ended if row["ended_ms"] + REQUEST_MEMORY_MS > now]
        self.given_up = [row for row in self.given_up if row["at_ms"] + REQUEST_MEMORY_MS > now]
        self.over = [row for row in self.over if row["at_ms"] + REQUEST_MEMORY_MS > now]
        self.answers = [row for row in self.answers if row["at_ms"] + REQUEST_MEMORY_MS > now]
        while self.forget_idle_key():
            pass

    def forget_idle_key(self) -> bool:
        """Drop the key that has been idle longest, if it has been long enough or there are too many."""
        idle = sorted(
            (row for row in self.keys if row["idle_since_ms"] >= 0), key=lambda row: row["idle_rank"]
        )
        if not idle:
            return False
        oldest = idle[0]
        if len(idle) <= self.bounds["idle_keys"] and oldest["idle_since_ms"] + KEY_MEMORY_MS > self.time:
            return False
        if oldest["blocked_until_ms"] > self.time:
            # Its grace period must be kept: it counts as idle from now on.
            if oldest["idle_since_ms"] != self.time:
                self.rank += 1
                oldest |= {"idle_since_ms": self.time, "idle_rank": self.rank}
            return False
        self.keys.remove(oldest)
        return True

    def mark_idle_keys(self, names: list[str] | None = None) -> None:
        """Note which keys came into use, and which have just fallen idle; the named ones in their order."""
        order = names or []
        for state in sorted(
            self.keys, key=lambda row: order.index(row["key"]) if row["key"] in order else -1
        ):
            where = (state["tenant"], state["key"])
            if self.holders(*where) or self.queue(*where) or self.record(*where):
                state["idle_since_ms"] = -1
            elif state["idle_since_ms"] == -1:
                self.rank += 1
                state |= {"idle_since_ms": self.time, "idle_rank": self.rank}

    def remember(self, memory: list[Row], row: Row, bound: str) -> None:
        memory.append(row)
        while len(memory) > self.bounds[bound]:
            del memory[0]

    def bury(self, tenant: str, key: str) -> None:
        """End what is dead on a key without handing it on."""
        for lease in self.holders(tenant, key):
            if self.dead(lease):
                self.finish(lease, "expired")
        for waiter in self.queue(tenant, key):
            if self.gone(waiter):
                self.leave(waiter, self.gone(waiter))

    def touch(self, waiter: Row) -> None:
        """Note that the keys of a set of keys are to be looked at: it stands in their way no more."""
        for key in waiter["keys"]:
            if (waiter["tenant"], key) not in self.touched:
                self.touched.append((waiter["tenant"], key))

    def serve(self, tenant: str, key: str) -> None:
        """Grant a settled key to its waiters in their order. The first that can't be granted stops those
        behind it; but a set of keys that has not waited for long lets them pass."""
        passed: list[Row] = []
        while True:
            waiter = first([row for row in self.queue(tenant, key) if row not in passed])
            if waiter is None:
                return
            if self.grants_left <= 0:
                self.put_off(tenant, key)
                return
            if self.is_its_turn(waiter, key):
                self.grant_waiter(waiter)
            elif self.steps_aside(waiter):
                passed.append(waiter)
            else:
                return

    def put_off(self, tenant: str, key: str) -> None:
        """Enough was granted. A grace period that ends now lets the reaper go on with a key; one who holds
        it alone will do so by its end."""
        if not any(row["mode"] == "exclusive" for row in self.holders(tenant, key)):
            state = self.state_of_key(tenant, key)
            state["blocked_until_ms"] = max(state["blocked_until_ms"], self.time, 1)

    def steps_aside(self, waiter: Row) -> bool:
        return len(waiter["keys"]) > 1 and self.time < waiter["queued_ms"] + SET_PATIENCE_MS

    def is_its_turn(self, waiter: Row, served: str) -> bool:
        """Whether a waiter can have all its keys now, looking at them one by one."""
        tenant = waiter["tenant"]
        if self.tokens.get(tenant, 0) + len(waiter["keys"]) > self.bounds["tokens"]:
            return False
        busy = len([row for row in self.waiters if row["session_id"] == waiter["session_id"]]) > 1
        for key in waiter["keys"]:
            if key != served:
                told = len(self.events)
                self.bury(tenant, key)
                if len(self.events) > told and (tenant, key) not in self.touched:
                    self.touched.append((tenant, key))
            if self.blocked(tenant, key) or not self.room(tenant, key, waiter["mode"], waiter["slots"]):
                return False
            ahead = [row for row in self.queue(tenant, key) if row["ticket"] < waiter["ticket"]]
            if ahead and (busy or not all(self.steps_aside(row) for row in ahead)):
                return False
        return True

    def blocked(self, tenant: str, key: str) -> bool:
        state = self.key(tenant, key)
        return state is not None and state["blocked_until_ms"] > self.time

    def room(self, tenant: str, key: str, mode: str, slots: int) -> bool:
        """Whether one more could hold a settled key in this mode."""
        holders = self.holders(tenant, key)
        if not holders:
            return True
        if mode == "exclusive" or any(row["mode"] != mode for row in holders):
            return False
        return len(holders) < (slots if mode == "permit" else HOLDERS_MAX)

    def settle(self, tenant: str, key: str) -> None:
        """Bring a key up to date, and after it every other key that was touched by that, in turn."""
        if (tenant, key) not in self.touched:
            self.touched.append((tenant, key))
        while self.touched:
            where = self.touched.pop(0)
            self.bury(*where)
            self.serve(*where)

    # Small changes.

    def event(
        self,
        tenant: str,
        kind: str,
        key: str,
        owner: str,
        token: int,
        detail: str = "",
        mode: str = "",
        slot: int = 0,
    ) -> int:
        revision = self.revisions.get(tenant, 0) + 1
        self.revisions[tenant] = revision
        happened = {"tenant": tenant, "revision": revision, "kind": kind, "key": key, "owner": owner}
        self.events.append(
            happened
            | {"token": token, "at_ms": self.time, "wall_ms": self.wall, "detail": detail}
            | {"mode": mode, "slot": slot, "since_ms": 0}
        )
        return revision

    def tell(self, lease: Row, kind: str, detail: str = "") -> int:
        words = (lease["owner"], lease["token"], detail, lease["mode"], lease["slot"])
        return self.event(lease["tenant"], kind, lease["key"], *words)

    def state_of_key(self, tenant: str, key: str) -> Row:
        state = self.key(tenant, key)
        if state is None:
            state = {"tenant": tenant, "key": key, "mode": "", "slots": 0, "guards": {}}
            state |= {"guard_mode": None, "blocked_until_ms": 0, "idle_since_ms": -1}
            self.keys.append(state)
        return state

    def mint(self, tenant: str) -> int:
        """A token above every earlier one of the tenant; as yet it is nobody's."""
        token = self.tokens.get(tenant, 0) + 1
        self.tokens[tenant] = token
        return token

    def raise_floor(self, state: Row, slot: int, token: int, lease_id: str = "", owner: str = "") -> None:
        guard = state["guards"].setdefault(slot, {"last_token": 0, "last_seq": 0})
        guard |= {"floor": token, "lease_id": lease_id, "owner": owner}

    def end(self, lease: Row, reason: str) -> None:
        """Take a lease away and remember that it was. Whoever calls hands the key on."""
        over_at = self.deadline(lease) if reason == "expired" else self.time
        session = self.session(lease["tenant"], lease["session_id"])
        assert session is not None
        self.leases.remove(lease)
        names = ("tenant", "lease_id", "key", "request_id", "remember", "token", "scope")
        ended = {name: lease[name] for name in names} | {"reason": reason, "ended_ms": self.time}
        ended["set"] = lease["set"]
        self.remember(self.ended, ended, "ended")
        owned = {"tenant": lease["tenant"], "session_id": lease["session_id"]}
        if session["private"] and not matching(self.leases, **owned):
            self.sessions.remove(session)
        taken_up = lease["claim_deadline_ms"] == 0
        if reason in ("expired", "broken") and lease["grace_ms"] and taken_up:
            state = self.state_of_key(lease["tenant"], lease["key"])
            state["blocked_until_ms"] = max(state["blocked_until_ms"], over_at + lease["grace_ms"])
        self.mark_idle_keys()

    def leave(self, waiter: Row, why: str) -> None:
        """Take a waiter out of the queue that was not granted."""
        self.waiters.remove(waiter)
        if len(waiter["keys"]) > 1:
            self.touch(waiter)
        if waiter["private"]:
            session = self.session(waiter["tenant"], waiter["session_id"])
            if session is not None:
                self.sessions.remove(session)
        self.mark_idle_keys(waiter["keys"])
        for key in waiter["keys"]:
            self.event(waiter["tenant"], "queue_left", key, waiter["owner"], 0, why, waiter["mode"])

    def open(self, wanted: Row, session_id: str, ttl_ms: int, private: bool, deadline_ms: int) -> Row:
        session = {
            "tenant": wanted["tenant"],
            "session_id": session_id,
            "owner": wanted["owner"],
            "ttl_ms": ttl_ms,
            "deadline_ms": deadline_ms,
            "private": private,
            "metadata": {} if private else wanted["metadata"],
            "opened_wall_ms": self.wall,
            "renewed_wall_ms": self.wall,
            "closed": False,
        }
        self.sessions.append(session)
        return session

    def grant(
        self,
        wanted: Row,
        key: str,
        lease_id: str,
        session_id: str,
        claim_deadline_ms: int,
        slot: int | None = None,
    ) -> Row:
        """Make the lease of an acquire. Its token is above every earlier one of the tenant; only readers who
        hold at the same time have the same."""
        tenant, mode = wanted["tenant"], wanted["mode"]
        holders = self.holders(tenant, key)
        taken = [row["slot"] for row in holders]
        if slot is None:
            free = [number for number in range(len(taken) + 1) if number not in taken]
            slot = free[0] if mode == "permit" else 0
        joins = holders and mode == "shared"
        token = holders[0]["token"] if joins else self.mint(tenant)
        state = self.state_of_key(tenant, key)
        slots = wanted["slots"] if mode == "permit" else 0
        if mode != "permit" or (state["mode"], state["slots"]) != (mode, slots):
            # Another phase: nobody writes through the other slots any more.
            state["guards"] = {at: guard for at, guard in state["guards"].items() if at == slot}
        state |= {"mode": mode, "slots": slots}
        if not self.blocked(tenant, key):
            state["blocked_until_ms"] = 0
        alone = mode != "shared"
        self.raise_floor(state, slot, token, lease_id if alone else "", wanted["owner"] if alone else "")
        revision = self.event(tenant, "granted", key, wanted["owner"], token, "", mode, slot)
        lease = {
            "tenant": tenant,
            "lease_id": lease_id,
            "key": key,
            "mode": mode,
            "slot": slot,
            "session_id": session_id,
            "owner": wanted["owner"],
            "token": token,
            "grace_ms": wanted["grace_ms"],
            "metadata": wanted["metadata"],
            "request_id": wanted["request_id"],
            "remember": wanted["remember"],
            "set": wanted["keys"] if len(wanted["keys"]) > 1 else [],
            "scope": self.scope_in(tenant, session_id),
            "progress_ms": wanted["progress_ms"],
            "progress_until_ms": 0,
            "progress": None,
            "parked_ttl_ms": 0,
            "moved": False,
            "parked_from": None,
            "reached": {},
            "claim_deadline_ms": claim_deadline_ms,
            "granted_ms": self.time,
            "granted_wall_ms": self.wall,
            "revision": revision,
        }
        if wanted["progress_ms"] and not claim_deadline_ms:
            lease["progress_until_ms"] = self.time + wanted["progress_ms"]
        self.leases.append(lease)
        self.mark_idle_keys()
        return lease

    def scope_in(self, tenant: str, session_id: str) -> str:
        """The scope of a request that is made in a session."""
        session = self.session(tenant, session_id)
        assert session is not None
        return "" if session["private"] else session_id

    def grant_waiter(self, waiter: Row) -> None:
        self.waiters.remove(waiter)
        self.grants_left -= len(waiter["keys"])
        until = self.time + CLAIM_WINDOW_MS
        if waiter["private"]:
            session = self.session(waiter["tenant"], waiter["session_id"])
            assert session is not None
            session["deadline_ms"] = until
        if len(waiter["keys"]) > 1:
            self.touch(waiter)
        self.grant_all(waiter, waiter["session_id"], until)

    def grant_all(self, wanted: Row, session_id: str, claim_deadline_ms: int) -> list[Row]:
        pairs = zip(wanted["keys"], wanted["lease_ids"], strict=True)
        return [self.grant(wanted, key, name, session_id, claim_deadline_ms) for key, name in pairs]

    def claim_lease(self, lease: Row) -> None:
        session = self.session(lease["tenant"], lease["session_id"])
        assert session is not None
        lease["claim_deadline_ms"] = 0
        if lease["progress_ms"]:
            lease["progress_until_ms"] = self.time + lease["progress_ms"]
        session["renewed_wall_ms"] = self.wall
        full = self.time + session["ttl_ms"]
        # What a private session had so far was the claim window, and not a promise to its holder.
        session["deadline_ms"] = full if session["private"] else max(session["deadline_ms"], full)

    def finish(self, lease: Row, reason: str, detail: str = "") -> None:
        """End a lease and put that into the event stream; the key is not handed on yet."""
        session = self.session(lease["tenant"], lease["session_id"])
        if reason == "expired" and session is not None and session["closed"]:
            own = lease["claim_deadline_ms"] or lease["progress_until_ms"]
            if not 0 < own <= session["deadline_ms"]:
                reason = detail = "session_closed"
        kind = reason if reason in ("expired", "broken", "handed_over") else "released"
        if reason == "expired" and self.deadline(lease) == lease["progress_until_ms"]:
            detail = "no_progress"
        self.end(lease, reason)
        self.tell(lease, kind, detail)
        self.events[-1]["since_ms"] = lease["granted_ms"]


def waiter_item_id(waiter: Row) -> str:
    """How an Expire names a waiter."""
    scope = "" if waiter["private"] else waiter["session_id"]
    return f"{len(scope)}:{scope}{waiter['request_id']}"


def matching(rows: list[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if wanted.items() <= row.items()]


def first(rows: list[Row], **wanted: Any) -> Row | None:
    for row in rows:
        if wanted.items() <= row.items():
            return row
    return None
