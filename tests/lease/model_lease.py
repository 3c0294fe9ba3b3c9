"""A second, naive statement of what a fenced lease service does, to hold the state machine against.

It was written from the specification alone and shares nothing with the implementation: lists of
dictionaries, searched from end to end; no index, no heap, nothing remembered that could be worked
out again. It is slow and meant to be read. Commands go in as dictionaries with an ``op`` and the
fields of the command of that name; results come out as dictionaries with ``is`` (the result's name) and its
fields; events come out as dictionaries.

How time passes in it. Nothing ends by itself: a lease whose time is over is *dead* (see ``dead``) and is
ended by the first command that looks at its key (``settle``), or by the reaper's Expire. Whatever
is dead counts for nothing before that: it blocks nobody, it cannot be renewed, its holder's commits
are refused.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

TOKEN_MAX = 2**53 - 1
WAITER_SILENCE_MS = 50_000
CLAIM_WINDOW_MS = 5_000
REQUEST_MEMORY_MS = 60_000
KEY_MEMORY_MS = 86_400_000
NAMED_MAX = 10


class Model:
    """The whole state is in these lists; ``step`` is the only way to change it."""

    def __init__(self) -> None:
        self.time = 0
        self.wall = 0
        self.ticket = 0
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

    def step(self, at_ms: int, command: Row) -> tuple[Row, list[Row]]:
        """Apply one command at a stamp; the answer, and the events in order."""
        self.time = max(self.time, at_ms)
        self.wall = command["wall_ms"]
        self.events = []
        self.forget()
        result = getattr(self, command["op"])(command)
        self.mark_idle_keys()
        return result, self.events

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
        return sorted(matching(self.waiters, tenant=tenant, key=key), key=lambda waiter: waiter["ticket"])

    def deadline(self, lease: Row) -> int:
        """When this lease is over unless something happens: with its session, or with its claim window."""
        session = self.session(lease["tenant"], lease["session_id"])
        assert session is not None, "a lease without a session"
        if lease["claim_deadline_ms"]:
            return min(session["deadline_ms"], lease["claim_deadline_ms"])
        return session["deadline_ms"]

    def dead(self, lease: Row) -> bool:
        return self.deadline(lease) <= self.time

    def gone(self, waiter: Row) -> str:
        """Why a waiter no longer counts: it stopped polling, or its session is over. Empty if it counts."""
        if waiter["poll_deadline_ms"] <= self.time:
            return "silent"
        session = self.session(waiter["tenant"], waiter["session_id"])
        return "" if self.alive(session) else "session_expired"

    def alive(self, session: Row | None) -> bool:
        return session is not None and session["deadline_ms"] > self.time

    def no_session(self, tenant: str, session_id: str) -> Row | None:
        """Why a session cannot be named by a call, None if it can. Private sessions have no name."""
        session = self.session(tenant, session_id)
        if self.alive(session) and session is not None and not session["private"]:
            return None
        expired = session is not None and not session["private"]
        if expired or (session is None and first(self.over, tenant=tenant, session_id=session_id)):
            return {"is": "SessionExpired"}
        return {"is": "NoSession"}

    # Passing time.

    def forget(self) -> None:
        """Drop the memories that are too old."""
        now = self.time
        self.ended = [row for row in self.ended if row["ended_ms"] + REQUEST_MEMORY_MS > now]
        self.given_up = [row for row in self.given_up if row["at_ms"] + REQUEST_MEMORY_MS > now]
        self.over = [row for row in self.over if row["at_ms"] + REQUEST_MEMORY_MS > now]
        self.answers = [row for row in self.answers if row["at_ms"] + REQUEST_MEMORY_MS > now]
        self.keys = [
            row
            for row in self.keys
            if row["idle_since_ms"] == -1 or row["idle_since_ms"] + KEY_MEMORY_MS > now
        ]

    def mark_idle_keys(self) -> None:
        for state in self.keys:
            where = (state["tenant"], state["key"])
            if self.holders(*where) or self.queue(*where) or self.record(*where):
                state["idle_since_ms"] = -1
            elif state["idle_since_ms"] == -1:
                state["idle_since_ms"] = self.time

    def bury(self, tenant: str, key: str) -> None:
        """End what is dead on a key without handing it on."""
        for lease in self.holders(tenant, key):
            if self.dead(lease):
                self.finish(lease, "expired")
        for waiter in self.queue(tenant, key):
            if self.gone(waiter):
                self.leave(waiter, self.gone(waiter))

    def serve(self, tenant: str, key: str) -> None:
        """Grant a free key to the first waiter that still counts."""
        state = self.key(tenant, key)
        if state is None or state["blocked_until_ms"] > self.time or self.holders(tenant, key):
            return
        for waiter in self.queue(tenant, key):
            if self.gone(waiter):
                self.leave(waiter, self.gone(waiter))
            elif self.tokens[tenant] < TOKEN_MAX:
                self.grant_waiter(waiter)
                return

    def settle(self, tenant: str, key: str) -> None:
        self.bury(tenant, key)
        self.serve(tenant, key)

    # Small changes.

    def event(self, tenant: str, kind: str, key: str, owner: str, token: int, detail: str = "") -> int:
        revision = self.revisions.get(tenant, 0) + 1
        self.revisions[tenant] = revision
        happened = {"tenant": tenant, "revision": revision, "kind": kind, "key": key, "owner": owner}
        self.events.append(
            happened | {"token": token, "at_ms": self.time, "wall_ms": self.wall, "detail": detail}
        )
        return revision

    def state_of_key(self, tenant: str, key: str) -> Row:
        state = self.key(tenant, key)
        if state is None:
            state = {"tenant": tenant, "key": key, "floor": 0, "last_token": 0, "last_seq": 0}
            state |= {"guard_mode": None, "blocked_until_ms": 0, "idle_since_ms": -1}
            self.keys.append(state)
        return state

    def mint(self, tenant: str, key: str) -> int:
        """A new token, and the floor of the key raised to it at once."""
        token = self.tokens.get(tenant, 0) + 1
        self.tokens[tenant] = token
        self.state_of_key(tenant, key)["floor"] = token
        return token

    def end(self, lease: Row, reason: str) -> None:
        """Take a lease away and remember that it was. Whoever calls hands the key on."""
        over_at = self.deadline(lease) if reason == "expired" else self.time
        session = self.session(lease["tenant"], lease["session_id"])
        assert session is not None
        self.leases.remove(lease)
        self.ended.append(
            {
                "tenant": lease["tenant"],
                "lease_id": lease["lease_id"],
                "key": lease["key"],
                "scope": "" if session["private"] else lease["session_id"],
                "request_id": lease["request_id"],
                "remember": lease["remember"],
                "token": lease["token"],
                "reason": reason,
                "ended_ms": self.time,
            }
        )
        if session["private"]:
            self.sessions.remove(session)
        if reason in ("expired", "broken") and lease["grace_ms"]:
            state = self.state_of_key(lease["tenant"], lease["key"])
            state["blocked_until_ms"] = max(state["blocked_until_ms"], over_at + lease["grace_ms"])

    def leave(self, waiter: Row, why: str) -> None:
        """Take a waiter out of the queue that was not granted."""
        self.waiters.remove(waiter)
        if waiter["private"]:
            session = self.session(waiter["tenant"], waiter["session_id"])
            if session is not None:
                self.sessions.remove(session)
        self.event(waiter["tenant"], "queue_left", waiter["key"], waiter["owner"], 0, why)

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
        }
        self.sessions.append(session)
        return session

    def grant(self, wanted: Row, lease_id: str, session_id: str, claim_deadline_ms: int) -> Row:
        """Make the lease of an acquire, with a token above every earlier one of the tenant."""
        token = self.mint(wanted["tenant"], wanted["key"])
        self.state_of_key(wanted["tenant"], wanted["key"])["blocked_until_ms"] = 0
        revision = self.event(wanted["tenant"], "granted", wanted["key"], wanted["owner"], token)
        lease = {
            "tenant": wanted["tenant"],
            "lease_id": lease_id,
            "key": wanted["key"],
            "mode": "exclusive",
            "slot": 0,
            "session_id": session_id,
            "owner": wanted["owner"],
            "token": token,
            "grace_ms": wanted["grace_ms"],
            "metadata": wanted["metadata"],
            "request_id": wanted["request_id"],
            "remember": wanted["remember"],
            "claim_deadline_ms": claim_deadline_ms,
            "granted_ms": self.time,
            "granted_wall_ms": self.wall,
            "revision": revision,
        }
        self.leases.append(lease)
        return lease

    def grant_waiter(self, waiter: Row) -> None:
        self.waiters.remove(waiter)
        until = self.time + CLAIM_WINDOW_MS
        if waiter["private"]:
            session = self.session(waiter["tenant"], waiter["session_id"])
            assert session is not None
            session["deadline_ms"] = until
        self.grant(waiter, waiter["lease_id"], waiter["session_id"], until)

    def confirmed(self, lease: Row) -> Row:
        """The answer to whoever may take this grant for its own; who hears of it first thereby claims it."""
        unclaimed = lease["claim_deadline_ms"] != 0
        if unclaimed:
            self.claim_lease(lease)
        return self.granted(lease, replayed=not unclaimed)

    def claim_lease(self, lease: Row) -> None:
        session = self.session(lease["tenant"], lease["session_id"])
        assert session is not None
        lease["claim_deadline_ms"] = 0
        session["renewed_wall_ms"] = self.wall
        session["deadline_ms"] = max(session["deadline_ms"], self.time + session["ttl_ms"])

    # How things are shown.

    def shown(self, lease: Row) -> Row:
        """A grant: lease and session."""
        session = self.session(lease["tenant"], lease["session_id"])
        hidden = {"remember"}
        return {
            "is": "Grant",
            "lease": {name: value for name, value in lease.items() if name not in hidden},
            "session": dict(session or {}),
        }

    def granted(self, lease: Row, replayed: bool) -> Row:
        claimed = lease["claim_deadline_ms"] == 0
        return {"is": "Granted", "grants": [self.shown(lease)], "replayed": replayed, "claimed": claimed}

    def shown_holders(self, tenant: str, key: str) -> list[Row]:
        return [
            {
                "is": "Holder",
                "key": key,
                "owner": lease["owner"],
                "token": lease["token"],
                "mode": "exclusive",
                "slot": 0,
                "deadline_ms": self.deadline(lease),
                "granted_wall_ms": lease["granted_wall_ms"],
                "metadata": lease["metadata"],
            }
            for lease in self.holders(tenant, key)
            if not self.dead(lease)
        ]

    def waiting(self, waiter: Row) -> Row:
        tenant, key = waiter["tenant"], waiter["key"]
        before = [other for other in self.queue(tenant, key) if other["ticket"] < waiter["ticket"]]
        before = [other for other in before if not self.gone(other)]
        holders = self.shown_holders(tenant, key)
        ahead = [other["owner"] for other in before[:NAMED_MAX]]
        return {"is": "Waiting", "position": len(before) + 1, "holders": holders, "ahead": ahead}

    def held(self, tenant: str, key: str) -> Row:
        state = self.key(tenant, key)
        blocked = state["blocked_until_ms"] if state is not None else 0
        return {
            "is": "Held",
            "key": key,
            "holders": self.shown_holders(tenant, key),
            "waiters": len(self.queue(tenant, key)),
            "blocked_until_ms": blocked if blocked > self.time else 0,
        }

    # Acquire, claim, renew, release.

    def acquire(self, c: Row) -> Row:
        if c["mode"] != "exclusive" or len(c["keys"]) != 1:
            return {"is": "Unsupported"}
        if (c["session_id"] is None) == (c["ttl_ms"] is None):
            return {"is": "Invalid"}
        tenant, key, scope = c["tenant"], c["keys"][0], c["session_id"] or ""
        asked_before = self.answer_again(tenant, scope, c["request_id"], key)
        if asked_before is not None:
            return asked_before
        if scope:
            refusal = self.no_session(tenant, scope)
            if refusal is not None:
                return refusal
        self.settle(tenant, key)
        for lease in self.holders(tenant, key):
            if scope and lease["session_id"] == scope and c["if_held"] == "return":
                return self.granted(lease, replayed=False)
        return self.fresh_acquire(c, tenant, key, scope)

    def answer_again(self, tenant: str, scope: str, request_id: str, key: str) -> Row | None:
        """The answer to an acquire that was asked before, None if it is new (or forgotten)."""
        waiter = self.waiter_of(tenant, scope, request_id)
        lease = self.lease_of(tenant, scope, request_id)
        present = waiter or lease
        if present is not None:
            if present["key"] != key:
                return {"is": "Invalid"}
            self.settle(tenant, key)
        lease = self.lease_of(tenant, scope, request_id)
        if lease is not None:
            return self.confirmed(lease)
        waiter = self.waiter_of(tenant, scope, request_id)
        if waiter is not None:
            waiter["poll_deadline_ms"] = self.time + WAITER_SILENCE_MS
            session = self.session(tenant, waiter["session_id"])
            if session is not None and session["private"]:
                session["deadline_ms"] = waiter["poll_deadline_ms"]
            return self.waiting(waiter)
        for past in matching(self.ended, tenant=tenant, scope=scope, request_id=request_id):
            if past["remember"]:
                return {"is": "Lost", "reason": past["reason"]} if past["key"] == key else {"is": "Invalid"}
        if first(self.given_up, tenant=tenant, scope=scope, request_id=request_id):
            return {"is": "Lost", "reason": "abandoned"}
        return None

    def waiter_of(self, tenant: str, scope: str, request_id: str) -> Row | None:
        for waiter in matching(self.waiters, tenant=tenant, request_id=request_id):
            if scope == ("" if waiter["private"] else waiter["session_id"]):
                return waiter
        return None

    def lease_of(self, tenant: str, scope: str, request_id: str) -> Row | None:
        for lease in matching(self.leases, tenant=tenant, request_id=request_id):
            session = self.session(tenant, lease["session_id"])
            if session is not None and scope == ("" if session["private"] else session["session_id"]):
                return lease
        return None

    def fresh_acquire(self, c: Row, tenant: str, key: str, scope: str) -> Row:
        """A new request on a settled key: grant it, queue it or refuse it."""
        wanted = dict(c, key=key)
        state = self.key(tenant, key)
        blocked = state is not None and state["blocked_until_ms"] > self.time
        free = not self.holders(tenant, key) and not self.queue(tenant, key) and not blocked
        lease_id = c["lease_ids"][0]
        if free:
            if self.tokens.get(tenant, 0) >= TOKEN_MAX:
                return {"is": "TokensExhausted"}
            if not scope:
                self.open(wanted, lease_id, c["ttl_ms"], True, self.time + c["ttl_ms"])
            return self.granted(self.grant(wanted, lease_id, scope or lease_id, 0), replayed=False)
        mine = [lease for lease in self.holders(tenant, key) if scope and lease["session_id"] == scope]
        if mine or not c["wait"]:
            return self.held(tenant, key)
        if scope:
            cycle = self.cycle(tenant, scope, c["owner"], key)
            if cycle is not None:
                return {"is": "Deadlock", "cycle": cycle}
        return self.enqueue(wanted, lease_id, scope)

    def enqueue(self, wanted: Row, lease_id: str, scope: str) -> Row:
        self.ticket += 1
        until = self.time + WAITER_SILENCE_MS
        if not scope:
            self.open(wanted, lease_id, wanted["ttl_ms"], True, until)
        self.state_of_key(wanted["tenant"], wanted["key"])
        waiter = {
            "tenant": wanted["tenant"],
            "request_id": wanted["request_id"],
            "remember": wanted["remember"],
            "session_id": scope or lease_id,
            "private": not scope,
            "key": wanted["key"],
            "lease_id": lease_id,
            "owner": wanted["owner"],
            "ttl_ms": wanted["ttl_ms"],
            "grace_ms": wanted["grace_ms"],
            "metadata": wanted["metadata"],
            "ticket": self.ticket,
            "poll_deadline_ms": until,
        }
        self.waiters.append(waiter)
        self.event(wanted["tenant"], "queue_joined", wanted["key"], wanted["owner"], 0)
        return self.waiting(waiter)

    def cycle(self, tenant: str, session_id: str, owner: str, key: str) -> list[str] | None:
        """Owners and keys of the cycle that a session's waiting for ``key`` would close, or None."""

        def search(at_owner: str, at_key: str, before: int | None, seen: list[str]) -> list[str] | None:
            for name, label in self.in_front(tenant, at_key, before):
                if name == session_id:
                    return [at_owner, at_key]
                if name in seen:
                    continue
                seen.append(name)
                for waiter in sorted(self.waiters, key=lambda row: row["ticket"]):
                    if waiter["tenant"] != tenant or waiter["session_id"] != name or self.gone(waiter):
                        continue
                    rest = search(label, waiter["key"], waiter["ticket"], seen)
                    if rest is not None:
                        return [at_owner, at_key] + rest
            return None

        return search(owner, key, None, [])

    def in_front(self, tenant: str, key: str, before: int | None) -> list[tuple[str, str]]:
        """(session, owner) of all that a waiter of a key waits for: holders, then waiters ahead."""
        found = [(row["session_id"], row["owner"]) for row in self.holders(tenant, key) if not self.dead(row)]
        for row in self.queue(tenant, key):
            if (before is None or row["ticket"] < before) and not self.gone(row):
                found.append((row["session_id"], row["owner"]))
        return found

    def lost(self, tenant: str, lease_id: str) -> Row:
        """What to say of a lease that is not there."""
        past = first(self.ended, tenant=tenant, lease_id=lease_id)
        return {"is": "Lost", "reason": past["reason"] if past else "unknown"}

    def present(self, tenant: str, lease_id: str) -> Row | None:
        """A lease that is there and not over; one found dead is ended and its key handed on."""
        lease = self.lease(tenant, lease_id)
        if lease is not None and self.dead(lease):
            self.settle(tenant, lease["key"])
            return None
        return lease

    def claim(self, c: Row) -> Row:
        lease = self.present(c["tenant"], c["lease_id"])
        if lease is None:
            return self.lost(c["tenant"], c["lease_id"])
        return self.confirmed(lease)

    def renew(self, c: Row) -> Row:
        if (c["lease_id"] is None) == (c["session_id"] is None):
            return {"is": "Invalid"}
        if c["session_id"] is not None:
            refusal = self.no_session(c["tenant"], c["session_id"])
            if refusal is not None:
                return refusal
            session = self.session(c["tenant"], c["session_id"])
            assert session is not None
            self.extend(session, c["ttl_ms"])
            return self.session_is(session)
        lease = self.present(c["tenant"], c["lease_id"])
        if lease is None:
            return self.lost(c["tenant"], c["lease_id"])
        session = self.session(c["tenant"], lease["session_id"])
        assert session is not None
        self.extend(session, c["ttl_ms"])
        return {"is": "Renewed", "grant": self.shown(lease)}

    def extend(self, session: Row, ttl_ms: int | None) -> None:
        if ttl_ms is not None:
            session["ttl_ms"] = ttl_ms
        session["deadline_ms"] = max(session["deadline_ms"], self.time + session["ttl_ms"])
        session["renewed_wall_ms"] = self.wall

    def session_is(self, session: Row) -> Row:
        held = matching(self.leases, tenant=session["tenant"], session_id=session["session_id"])
        return {"is": "SessionIs", "session": dict(session), "leases": len(held)}

    def release(self, c: Row) -> Row:
        tenant, lease_id = c["tenant"], c["lease_id"]
        lease = self.present(tenant, lease_id)
        if lease is None:
            lost = self.lost(tenant, lease_id)
            return {"is": "Released", "already": True} if lost["reason"] == "released" else lost
        self.finish(lease, "released")
        self.settle(tenant, lease["key"])
        return {"is": "Released", "already": False}

    def finish(self, lease: Row, reason: str, detail: str = "") -> None:
        """End a lease and put that into the event stream; the key is not handed on yet."""
        kind = {"expired": "expired", "broken": "broken"}.get(reason, "released")
        self.end(lease, reason)
        self.event(lease["tenant"], kind, lease["key"], lease["owner"], lease["token"], detail)

    def abandon(self, c: Row) -> Row:
        tenant, scope, request_id = c["tenant"], c["session_id"] or "", c["request_id"]
        waiter = self.waiter_of(tenant, scope, request_id)
        lease = self.lease_of(tenant, scope, request_id)
        if lease is not None:
            live = self.present(tenant, lease["lease_id"])
            if live is not None:
                self.finish(live, "abandoned", "abandoned")
                self.settle(tenant, live["key"])
            return {"is": "Abandoned", "had": live is not None}
        if not matching(self.ended, tenant=tenant, scope=scope, request_id=request_id):
            given_up = {"tenant": tenant, "scope": scope, "request_id": request_id}
            for row in matching(self.given_up, **given_up):
                self.given_up.remove(row)
            self.given_up.append(given_up | {"at_ms": self.time})
        gone = ""
        if waiter is not None:
            gone = self.gone(waiter)
            self.leave(waiter, gone or "abandoned")
            self.settle(tenant, waiter["key"])
        return {"is": "Abandoned", "had": waiter is not None and not gone}

    def break_(self, c: Row) -> Row:
        tenant, key = c["tenant"], c["key"]
        if self.key(tenant, key) is None:
            return {"is": "Broken", "leases": []}
        self.bury(tenant, key)
        broken = self.holders(tenant, key)
        for lease in broken:
            self.finish(lease, "broken", c["reason"])
        self.mint(tenant, key)
        self.settle(tenant, key)
        gone = [{"is": "BrokenLease", "owner": lease["owner"], "token": lease["token"]} for lease in broken]
        return {"is": "Broken", "leases": gone}

    # Guarded writes.

    def commit(self, c: Row) -> Row:
        tenant, key, op_id = c["tenant"], c["key"], c["op_id"]
        if op_id is not None:
            before = first(self.answers, tenant=tenant, key=key, op_id=op_id)
            if before is not None:
                answer: Row = before["answer"]
                return answer
        refusal = self.commit_refusal(c)
        answer = refusal if refusal is not None else self.accept(c)
        if answer["is"] == "Invalid":
            return answer
        if refusal is not None:
            self.event(
                tenant,
                "commit_refused",
                key,
                self.writer(c),
                c["token"],
                refusal.get("code", "mode_conflict"),
            )
        if op_id is not None:
            self.answers.append(
                {"tenant": tenant, "key": key, "op_id": op_id, "answer": answer, "at_ms": self.time}
            )
        return answer

    def commit_refusal(self, c: Row) -> Row | None:
        state = self.key(c["tenant"], c["key"])
        record = self.record(c["tenant"], c["key"])
        revision = record["revision"] if record else 0
        if (c["seq"] is None) == (c["mode"] == "sequence"):
            return {"is": "Invalid"}

        nothing = {"floor": 0, "last_token": 0, "last_seq": 0}
        guard = state if state is not None and c["slot"] == 0 else nothing

        def refused(code: str) -> Row:
            numbers = {name: guard[name] for name in nothing}
            return {"is": "CommitRefused", "code": code, "revision": revision} | numbers

        if state is None or c["token"] < guard["floor"]:
            return refused("stale_token")
        if c["token"] > guard["floor"] or c["slot"] != 0:
            return refused("not_live")
        if state["guard_mode"] not in (None, c["mode"]):
            return {"is": "GuardConflict", "present": state["guard_mode"], "asked": c["mode"]}
        if c["mode"] == "once" and c["token"] <= state["last_token"]:
            return refused("token_used")
        if c["mode"] == "sequence" and (c["token"], c["seq"]) <= (state["last_token"], state["last_seq"]):
            return refused("seq_replayed")
        if not self.may_write(c):
            return refused("not_live")
        if c["if_revision"] is not None and c["if_revision"] != revision:
            return refused("revision_conflict")
        return None

    def may_write(self, c: Row) -> bool:
        """Whether the lease named by a commit is not contradicted, and alive where that is asked."""
        known = self.lease(c["tenant"], c["lease_id"])
        past = first(self.ended, tenant=c["tenant"], lease_id=c["lease_id"])
        named = known or past
        if named is not None and (named["key"], named["token"]) != (c["key"], c["token"]):
            return False
        if not c["require_live"]:
            return True
        return known is not None and not self.dead(known) and known["claim_deadline_ms"] == 0

    def writer(self, c: Row) -> str:
        lease = self.lease(c["tenant"], c["lease_id"])
        return lease["owner"] if lease is not None else ""

    def accept(self, c: Row) -> Row:
        tenant, key = c["tenant"], c["key"]
        state = self.key(tenant, key)
        assert state is not None
        revision = self.event(tenant, "committed", key, self.writer(c), c["token"])
        state |= {"guard_mode": c["mode"], "last_token": c["token"], "last_seq": c["seq"] or 0}
        if c["value"] is not None:
            self.records = [row for row in self.records if (row["tenant"], row["key"]) != (tenant, key)]
            self.records.append(
                {
                    "tenant": tenant,
                    "key": key,
                    "value": c["value"],
                    "binary": c["binary"],
                    "digest": c["digest"],
                    "token": c["token"],
                    "owner": self.writer(c),
                    "revision": revision,
                    "committed_wall_ms": self.wall,
                }
            )
        return {"is": "Committed", "revision": revision}

    def delete_record(self, c: Row) -> Row:
        record = self.record(c["tenant"], c["key"])
        if record is None:
            return {"is": "NoRecord"}
        if c["if_revision"] is not None and c["if_revision"] != record["revision"]:
            return {"is": "RevisionConflict", "revision": record["revision"]}
        self.records.remove(record)
        self.event(c["tenant"], "record_deleted", c["key"], record["owner"], record["token"])
        return {"is": "RecordDeleted", "record": record}

    # Sessions and the reaper.

    def open_session(self, c: Row) -> Row:
        session = self.session(c["tenant"], c["session_id"])
        if session is None and self.no_session(c["tenant"], c["session_id"]) == {"is": "NoSession"}:
            session = self.open(c, c["session_id"], c["ttl_ms"], False, self.time + c["ttl_ms"])
        if session is None or not self.alive(session):
            return {"is": "SessionExpired"}
        return self.session_is(session)

    def close_session(self, c: Row) -> Row:
        refusal = self.no_session(c["tenant"], c["session_id"])
        if refusal is not None:
            return refusal
        session = self.session(c["tenant"], c["session_id"])
        assert session is not None
        return {"is": "SessionClosed", "leases": self.end_session(session, "session_closed")}

    def end_session(self, session: Row, reason: str) -> int:
        """End a session with all it has; how many leases that were."""
        tenant, session_id = session["tenant"], session["session_id"]
        why_left = "silent" if session["private"] else {"expired": "session_expired"}.get(reason, reason)
        for waiter in matching(self.waiters, tenant=tenant, session_id=session_id):
            self.leave(waiter, why_left)
        closed = 0
        for lease in matching(self.leases, tenant=tenant, session_id=session_id):
            if self.dead(lease):
                self.finish(lease, "expired")
            else:
                self.finish(lease, reason, reason)
                closed += 1
            self.settle(tenant, lease["key"])
        self.sessions = [row for row in self.sessions if row is not session]
        if reason == "expired" and not session["private"]:
            self.over.append({"tenant": tenant, "session_id": session_id, "at_ms": self.time})
        return closed

    def expire(self, c: Row) -> Row:
        return {"is": "Done", "ended": sum(self.expire_one(item) for item in c["items"])}

    def expire_one(self, item: Row) -> bool:
        """End one thing that seems due, only if it is still there with exactly that deadline, and over."""
        tenant, kind, name, deadline = item["tenant"], item["kind"], item["id"], item["deadline_ms"]
        if deadline > self.time:
            return False
        if kind == "session":
            session = self.session(tenant, name)
            if session is None or session["deadline_ms"] != deadline:
                return False
            self.end_session(session, "expired")
            return True
        if kind == "claim":
            lease = self.lease(tenant, name)
            if lease is None or lease["claim_deadline_ms"] != deadline or deadline == 0:
                return False
            self.settle(tenant, lease["key"])
            return True
        if kind == "waiter":
            for waiter in matching(self.waiters, tenant=tenant, poll_deadline_ms=deadline):
                if waiter_item_id(waiter) == name:
                    self.leave(waiter, "silent")
                    self.settle(tenant, waiter["key"])
                    return True
            return False
        state = self.key(tenant, name)
        if state is None or state["blocked_until_ms"] != deadline or deadline == 0:
            return False
        state["blocked_until_ms"] = 0
        self.settle(tenant, name)
        return True

    def tick(self, c: Row) -> Row:
        return {"is": "Done", "ended": 0}


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
