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

from model_state import WAITER_SILENCE_MS, Row, first, matching, waiter_item_id
from model_writes import Writes

NAMED_MAX = 10


class Model(Writes):
    """The commands; ``step`` applies one. What they change is in State, guarded writes are in Writes."""

    def step(self, at_ms: int, command: Row) -> tuple[Row, list[Row]]:
        """Apply one command at a stamp; the answer, and the events in order."""
        self.time = max(self.time, at_ms)
        self.wall = command["wall_ms"]
        self.events = []
        self.forget()
        return getattr(self, command["op"])(command), self.events

    def no_session(self, tenant: str, session_id: str) -> Row | None:
        """Why nothing can be acquired in a session, None if something can: it must be an explicit one."""
        session = self.session(tenant, session_id)
        if self.alive(session) and session is not None and not session["private"]:
            return None
        expired = session is not None and not session["private"]
        if expired or (session is None and first(self.over, tenant=tenant, session_id=session_id)):
            return {"is": "SessionExpired"}
        return {"is": "NoSession"}

    def no_such_session(self, tenant: str, session_id: str) -> Row | None:
        """Why a session cannot be renewed or closed, None if it can. A private one can while it holds."""
        lease = self.lease(tenant, session_id)
        if lease is not None and lease["session_id"] == session_id:
            return {"is": "SessionExpired"} if self.dead(lease) else None
        if first(self.ended, tenant=tenant, lease_id=session_id, scope="", reason="expired"):
            return {"is": "SessionExpired"}
        return self.no_session(tenant, session_id)

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
                if lease["claim_deadline_ms"]:
                    self.claim_lease(lease)
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

    def fresh_acquire(self, c: Row, tenant: str, key: str, scope: str) -> Row:
        """A new request on a settled key: grant it, queue it or refuse it."""
        wanted = dict(c, key=key)
        state = self.key(tenant, key)
        blocked = state is not None and state["blocked_until_ms"] > self.time
        free = not self.holders(tenant, key) and not blocked
        lease_id = c["lease_ids"][0]
        if free:
            if self.tokens.get(tenant, 0) >= self.bounds["tokens"]:
                return {"is": "TokensExhausted"}
            if not scope:
                self.open(wanted, lease_id, c["ttl_ms"], True, self.time + c["ttl_ms"])
            return self.granted(self.grant(wanted, lease_id, scope or lease_id, 0), replayed=False)
        mine = [lease for lease in self.holders(tenant, key) if scope and lease["session_id"] == scope]
        if mine or not c["wait"]:
            return self.held(tenant, key)
        if len(self.queue(tenant, key)) >= self.bounds["waiters"]:
            return {"is": "QueueFull", "waiters_max": self.bounds["waiters"]}
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
        self.mark_idle_keys()
        self.event(wanted["tenant"], "queue_joined", wanted["key"], wanted["owner"], 0)
        return self.waiting(waiter)

    def confirmed(self, lease: Row) -> Row:
        """The answer to whoever may take this grant for its own; who hears of it first thereby claims it."""
        unclaimed = lease["claim_deadline_ms"] != 0
        if unclaimed:
            self.claim_lease(lease)
        return self.granted(lease, replayed=not unclaimed)

    def cycle(self, tenant: str, session_id: str, owner: str, key: str) -> list[str] | None:
        """Owners and keys of the cycle that a session's waiting for ``key`` would close, or None."""

        def search(at_owner: str, at_key: str, before: int | None, seen: list[str]) -> list[str] | None:
            for name, label in self.in_front(tenant, at_key, before):
                if name == session_id and at_key == key:
                    continue  # It asks for the key a second time, and stands behind none but itself.
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
            refusal = self.no_such_session(c["tenant"], c["session_id"])
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

    def abandon(self, c: Row) -> Row:
        tenant, scope, request_id = c["tenant"], c["session_id"] or "", c["request_id"]
        waiter = self.waiter_of(tenant, scope, request_id)
        if c["poll_deadline_ms"] is not None:
            # Nobody gave up: a connection was lost. Whoever has polled since then keeps its place.
            same = waiter is not None and waiter["poll_deadline_ms"] == c["poll_deadline_ms"]
            return self.abandon_waiter(waiter if same else None)
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
            self.remember(self.given_up, given_up | {"at_ms": self.time}, "ended")
        return self.abandon_waiter(waiter)

    def abandon_waiter(self, waiter: Row | None) -> Row:
        if waiter is None:
            return {"is": "Abandoned", "had": False}
        gone = self.gone(waiter)
        self.leave(waiter, gone or "abandoned")
        self.settle(waiter["tenant"], waiter["key"])
        return {"is": "Abandoned", "had": not gone}

    def break_(self, c: Row) -> Row:
        tenant, key = c["tenant"], c["key"]
        if self.key(tenant, key) is None:
            return {"is": "Broken", "leases": []}
        if self.tokens.get(tenant, 0) >= self.bounds["tokens"]:
            return {"is": "TokensExhausted"}
        self.bury(tenant, key)
        broken = self.holders(tenant, key)
        for lease in broken:
            self.finish(lease, "broken", c["reason"])
        self.mint(tenant, key)
        self.settle(tenant, key)
        gone = [{"is": "BrokenLease", "owner": lease["owner"], "token": lease["token"]} for lease in broken]
        return {"is": "Broken", "leases": gone}

    # Sessions and the reaper.

    def open_session(self, c: Row) -> Row:
        session = self.session(c["tenant"], c["session_id"])
        if session is None and self.no_session(c["tenant"], c["session_id"]) == {"is": "NoSession"}:
            session = self.open(c, c["session_id"], c["ttl_ms"], False, self.time + c["ttl_ms"])
        if session is None or not self.alive(session):
            return {"is": "SessionExpired"}
        return self.session_is(session)

    def close_session(self, c: Row) -> Row:
        refusal = self.no_such_session(c["tenant"], c["session_id"])
        if refusal is not None:
            return refusal
        session = self.session(c["tenant"], c["session_id"])
        assert session is not None
        return {"is": "SessionClosed", "leases": self.close(session)}

    def close(self, session: Row) -> int:
        """End a session with all it has; how many live leases that were."""
        owned = {"tenant": session["tenant"], "session_id": session["session_id"]}
        for waiter in matching(self.waiters, **owned):
            self.leave(waiter, "session_closed")
        closed = 0
        for lease in matching(self.leases, **owned):
            dead = self.dead(lease)
            self.finish(lease, "expired" if dead else "session_closed", "" if dead else "session_closed")
            closed += not dead
            self.settle(lease["tenant"], lease["key"])
        self.sessions = [row for row in self.sessions if row is not session]
        return closed

    def expire(self, c: Row) -> Row:
        self.endings_left = self.bounds["endings"]
        ended = 0
        for item in c["items"][: self.bounds["endings"]]:
            if self.endings_left <= 0:
                break
            if self.expire_one(item):
                ended += 1
                self.endings_left -= 1
        return {"is": "Done", "ended": ended}

    def expire_session(self, session: Row) -> bool:
        """End an expired session and all it has; false if there was too much of it for one command."""
        owned = {"tenant": session["tenant"], "session_id": session["session_id"]}
        why_left = "silent" if session["private"] else "session_expired"
        bounded = not session["private"]
        for waiter in matching(self.waiters, **owned):
            if bounded and self.endings_left <= 0:
                return False
            self.leave(waiter, why_left)
            self.endings_left -= bounded
        for lease in matching(self.leases, **owned):
            if bounded and self.endings_left <= 0:
                return False
            self.finish(lease, "expired")
            self.settle(lease["tenant"], lease["key"])
            self.endings_left -= bounded
        self.sessions = [row for row in self.sessions if row is not session]
        if bounded:
            self.remember(self.over, owned | {"at_ms": self.time}, "ended")
        return True

    def expire_one(self, item: Row) -> bool:
        """End one thing that seems due, only if it is still there with exactly that deadline, and over."""
        tenant, kind, name, deadline = item["tenant"], item["kind"], item["id"], item["deadline_ms"]
        if deadline > self.time:
            return False
        if kind == "session":
            session = self.session(tenant, name)
            if session is None or session["deadline_ms"] != deadline:
                return False
            return self.expire_session(session)
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
