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

from model_state import HOLDERS_MAX, WAITER_SILENCE_MS, Row, first, matching, waiter_item_id
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

    def shown_holders(self, tenant: str, key: str, leases: list[Row] | None = None) -> list[Row]:
        return [
            {
                "is": "Holder",
                "key": key,
                "owner": lease["owner"],
                "token": lease["token"],
                "mode": lease["mode"],
                "slot": lease["slot"],
                "deadline_ms": self.deadline(lease),
                "granted_wall_ms": lease["granted_wall_ms"],
                "metadata": lease["metadata"],
            }
            for lease in (self.holders(tenant, key) if leases is None else leases)
            if not self.dead(lease)
        ][:NAMED_MAX]

    def waiting(self, waiter: Row) -> Row:
        tenant, key = waiter["tenant"], waiter["keys"][0]
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
        if len(c["keys"]) != 1:
            return {"is": "Unsupported"}
        if c["mode"] == "permit" and not 1 <= c["slots"] <= HOLDERS_MAX:
            return {"is": "Invalid"}
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
        wanted = dict(c, slots=c["slots"] if c["mode"] == "permit" else 0)
        mine = [row for row in self.holders(tenant, key) if scope and row["session_id"] == scope]
        refusal = self.other_mode(wanted, tenant, key, mine)
        if refusal is not None:
            return refusal
        if mine and c["if_held"] == "conflict":
            return {"is": "Held", "key": key, "holders": self.shown_holders(tenant, key, mine)} | {
                "waiters": len(self.queue(tenant, key)),
                "blocked_until_ms": 0,
            }
        if mine:
            if mine[0]["claim_deadline_ms"]:
                self.claim_lease(mine[0])
            return self.granted(mine[0], replayed=False)
        return self.fresh_acquire(wanted, tenant, key, scope)

    def other_mode(self, wanted: Row, tenant: str, key: str, mine: list[Row]) -> Row | None:
        """The refusal of a mode that doesn't go with the one in which the key is held or waited for."""
        holders, queue = self.holders(tenant, key), self.queue(tenant, key)
        asked = (wanted["mode"], wanted["slots"])
        if holders:
            state = self.key(tenant, key)
            assert state is not None
            present = (holders[0]["mode"], state["slots"])
        elif queue:
            present = (queue[0]["mode"], queue[0]["slots"])
        else:
            return None
        apart = present != asked and "permit" in (present[0], asked[0])
        if not apart and not (mine and mine[0]["mode"] != wanted["mode"]):
            return None
        return {"is": "ModeConflict", "key": key, "present": present[0], "asked": asked[0]} | {
            "present_slots": present[1],
            "asked_slots": asked[1],
        }

    def answer_again(self, tenant: str, scope: str, request_id: str, key: str) -> Row | None:
        """The answer to an acquire that was asked before, None if it is new (or forgotten)."""
        waiter = self.waiter_of(tenant, scope, request_id)
        lease = self.lease_of(tenant, scope, request_id)
        present = waiter or lease
        if present is not None:
            if present.get("keys", [present.get("key")]) != [key]:
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
        free = self.room(tenant, key, c["mode"], c["slots"]) and not self.blocked(tenant, key)
        lease_id = c["lease_ids"][0]
        if free and not self.queue(tenant, key):
            if self.tokens.get(tenant, 0) >= self.bounds["tokens"]:
                return {"is": "TokensExhausted"}
            if not scope:
                self.open(c, lease_id, c["ttl_ms"], True, self.time + c["ttl_ms"])
            return self.granted(self.grant(c, key, lease_id, scope or lease_id, 0), replayed=False)
        if not c["wait"]:
            return self.held(tenant, key)
        if len(self.queue(tenant, key)) >= self.bounds["waiters"]:
            return {"is": "QueueFull", "waiters_max": self.bounds["waiters"]}
        if scope:
            cycle = self.cycle(c, key)
            if cycle is not None:
                return {"is": "Deadlock", "cycle": cycle}
        return self.enqueue(c, lease_id, scope)

    def enqueue(self, wanted: Row, lease_id: str, scope: str) -> Row:
        self.ticket += 1
        until = self.time + WAITER_SILENCE_MS
        if not scope:
            self.open(wanted, lease_id, wanted["ttl_ms"], True, until)
        waiter = {
            "tenant": wanted["tenant"],
            "request_id": wanted["request_id"],
            "remember": wanted["remember"],
            "session_id": scope or lease_id,
            "private": not scope,
            "keys": wanted["keys"],
            "lease_ids": wanted["lease_ids"],
            "mode": wanted["mode"],
            "slots": wanted["slots"],
            "owner": wanted["owner"],
            "ttl_ms": wanted["ttl_ms"],
            "grace_ms": wanted["grace_ms"],
            "metadata": wanted["metadata"],
            "ticket": self.ticket,
            "poll_deadline_ms": until,
        }
        self.waiters.append(waiter)
        self.mark_idle_keys()
        for key in wanted["keys"]:
            self.event(wanted["tenant"], "queue_joined", key, wanted["owner"], 0, "", wanted["mode"])
        return self.waiting(waiter)

    def confirmed(self, lease: Row) -> Row:
        """The answer to whoever may take this grant for its own; who hears of it first thereby claims it."""
        unclaimed = lease["claim_deadline_ms"] != 0
        if unclaimed:
            self.claim_lease(lease)
        return self.granted(lease, replayed=not unclaimed)

    def cycle(self, c: Row, key: str) -> list[str] | None:
        """Owners and keys of the cycle that a session's waiting for ``key`` would close, or None."""
        tenant, session_id = c["tenant"], c["session_id"]
        if any(row["session_id"] == session_id and not self.gone(row) for row in self.queue(tenant, key)):
            return [c["owner"], key]
        wait = {"tenant": tenant, "session_id": session_id, "key": key, "mode": c["mode"], "ticket": None}

        def search(owner: str, wait: Row, seen: list[str]) -> list[tuple[str, Row]] | None:
            for name, label in self.in_the_way(wait):
                if name == session_id:
                    return [(owner, wait)]
                if name in seen:
                    continue
                seen.append(name)
                for following in self.waits_of(tenant, name):
                    rest = search(label, following, seen)
                    if rest is not None:
                        return [(owner, wait), *rest]
            return None

        path = search(c["owner"], wait, [])
        if path is None:
            return None
        if any(step["mode"] == "permit" for _, step in path) and not self.hopeless(wait):
            return None
        return [name for owner, step in path for name in (owner, step["key"])]

    def waits_of(self, tenant: str, session_id: str) -> list[Row]:
        found = sorted(
            matching(self.waiters, tenant=tenant, session_id=session_id), key=lambda r: r["ticket"]
        )
        return [{**row, "key": key} for row in found if not self.gone(row) for key in row["keys"]]

    def in_the_way(self, wait: Row) -> list[tuple[str, str]]:
        """(session, owner) of all that a wait waits for: holders, then waiters ahead. Readers do not wait for
        readers."""
        return self.holders_in_the_way(wait) + self.ahead_of(wait)

    def holders_in_the_way(self, wait: Row) -> list[tuple[str, str]]:
        holders = [row for row in self.holders(wait["tenant"], wait["key"]) if not self.dead(row)]
        return [(row["session_id"], row["owner"]) for row in holders if not self.both_read(row, wait)]

    def ahead_of(self, wait: Row) -> list[tuple[str, str]]:
        ahead = [row for row in self.queue(wait["tenant"], wait["key"]) if not self.gone(row)]
        ahead = [row for row in ahead if wait["ticket"] is None or row["ticket"] < wait["ticket"]]
        return [(row["session_id"], row["owner"]) for row in ahead if not self.both_read(row, wait)]

    def both_read(self, one: Row, other: Row) -> bool:
        return bool(one["mode"] == other["mode"] == "shared")

    def hopeless(self, wait: Row) -> bool:
        """Whether a wait can't end while its own session does nothing, whatever the others do that can act.
        Of a pool one holder who can act is enough."""
        stuck = {wait["session_id"]}

        def blocked(wait: Row) -> bool:
            if any(name in stuck for name, _ in self.ahead_of(wait)):
                return True
            holders = [name in stuck for name, _ in self.holders_in_the_way(wait)]
            if wait["mode"] != "permit":
                return any(holders)
            state = self.key(wait["tenant"], wait["key"])
            return state is not None and len(holders) == state["slots"] and all(holders)

        while True:
            more = {
                row["session_id"]
                for row in self.waiters
                if row["tenant"] == wait["tenant"]
                and any(blocked(each) for each in self.waits_of(row["tenant"], row["session_id"]))
            }
            if more <= stuck:
                return blocked(wait)
            stuck |= more

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
            told = self.first_in_its_second(session)
            self.extend(session, c["ttl_ms"])
            held = matching(self.leases, tenant=c["tenant"], session_id=c["session_id"])
            for lease in held if told and len(held) <= 16 else []:
                self.tell(lease, "renewed")
            return self.session_is(session)
        lease = self.present(c["tenant"], c["lease_id"])
        if lease is None:
            return self.lost(c["tenant"], c["lease_id"])
        session = self.session(c["tenant"], lease["session_id"])
        assert session is not None
        if self.first_in_its_second(session):
            self.tell(lease, "renewed")
        self.extend(session, c["ttl_ms"])
        return {"is": "Renewed", "grant": self.shown(lease)}

    def first_in_its_second(self, session: Row) -> bool:
        last = session["deadline_ms"] - session["ttl_ms"]
        return last < self.time and last // 1000 < self.time // 1000

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
        self.settle(waiter["tenant"], waiter["keys"][0])
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
        state, token = self.state_of_key(tenant, key), self.mint(tenant)
        for slot in state["guards"]:
            self.raise_floor(state, slot, token)
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
        waiters = sorted(matching(self.waiters, **owned), key=lambda row: row["ticket"])
        for waiter in waiters:
            self.leave(waiter, "session_closed")
        for waiter in waiters:
            self.settle(waiter["tenant"], waiter["keys"][0])
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
        while waiters := sorted(matching(self.waiters, **owned), key=lambda row: row["ticket"]):
            if bounded and self.endings_left <= 0:
                return False
            self.leave(waiters[0], why_left)
            self.settle(waiters[0]["tenant"], waiters[0]["keys"][0])
            self.endings_left -= bounded
        while leases := matching(self.leases, **owned):
            if bounded and self.endings_left <= 0:
                return False
            self.settle(leases[0]["tenant"], leases[0]["key"])
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
                    self.settle(tenant, waiter["keys"][0])
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
