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

from model_pools import Pools
from model_state import HOLDERS_MAX, SET_KEYS_MAX, WAITER_SILENCE_MS, Row, first, matching, waiter_item_id

NAMED_MAX = 10


class Model(Pools):
    """The commands; ``step`` applies one. What they change is in State, guarded writes are in Writes,
    handover and parking in Passing, resizing in Pools."""

    def step(self, at_ms: int, command: Row) -> tuple[Row, list[Row]]:
        """Apply one command at a stamp; the answer, and the events in order. What is over is forgotten once a
        stamp, before the first command that has it."""
        moved = at_ms > self.time
        self.time = max(self.time, at_ms)
        self.wall = command["wall_ms"]
        self.events = []
        self.grants_left = self.bounds["grants"]
        if moved:
            self.forget()
        return getattr(self, command["op"])(command), self.events

    def no_session(self, tenant: str, session_id: str) -> Row | None:
        """Why nothing can be acquired in a session, None if something can: it must be an explicit one."""
        session = self.session(tenant, session_id)
        if self.alive(session) and session is not None and not session["private"]:
            return None
        expired = session is not None and not session["private"] and not session["closed"]
        if expired or (session is None and first(self.over, tenant=tenant, session_id=session_id)):
            return {"is": "SessionExpired"}
        return {"is": "NoSession"}

    def no_such_session(self, tenant: str, session_id: str) -> Row | None:
        """Why a session cannot be renewed or closed, None if it can. A private one can while it holds."""
        session = self.session(tenant, session_id)
        held = matching(self.leases, tenant=tenant, session_id=session_id)
        if session is not None and session["private"] and held:
            return {"is": "SessionExpired"} if self.dead(held[0]) else None
        if first(self.ended, tenant=tenant, lease_id=session_id, scope="", reason="expired"):
            return {"is": "SessionExpired"}
        return self.no_session(tenant, session_id)

    # How things are shown.

    def shown(self, lease: Row) -> Row:
        """A grant: lease and session."""
        session = self.session(lease["tenant"], lease["session_id"])
        hidden = {"remember", "set", "scope", "moved", "parked_ttl_ms", "parked_from", "reached"}
        hidden |= {"progress", "progress_ms", "progress_until_ms"}
        kind = 0 if not lease["set"] else 2 if session and session["private"] else 1
        fields = {name: value for name, value in lease.items() if name not in hidden}
        return {
            "is": "Grant",
            "lease": fields | {"in_set": kind, "life": self.life(lease)},
            "session": dict(session or {}),
        }

    def life(self, lease: Row) -> Row | None:
        plain = not lease["moved"] and not lease["progress_ms"] and lease["progress"] is None
        if plain:
            return None
        return {
            "progress_ms": lease["progress_ms"],
            "progress_deadline_ms": lease["progress_until_ms"],
            "progress": lease["progress"],
            "parked_ttl_ms": lease["parked_ttl_ms"],
            "scope": lease["scope"] if lease["moved"] else None,
            "parked_from": lease["parked_from"],
            "reached": lease["reached"] or None,
        }

    def granted(self, leases: list[Row], replayed: bool) -> Row:
        grants = [self.shown(lease) for lease in leases]
        return {"is": "Granted", "grants": grants, "replayed": replayed, "claimed": True}

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
        """Of a set: its worst place, who is before it there, and the holders of all its keys."""
        tenant = waiter["tenant"]
        holders = [holder for key in waiter["keys"] for holder in self.shown_holders(tenant, key)]
        ahead: list[Row] = []
        for key in waiter["keys"]:
            before = [other for other in self.queue(tenant, key) if other["ticket"] < waiter["ticket"]]
            before = [other for other in before if not self.gone(other)]
            ahead = before if len(before) > len(ahead) else ahead
        named = [other["owner"] for other in ahead[:NAMED_MAX]]
        told = {"is": "Waiting", "position": len(ahead) + 1, "holders": holders[:NAMED_MAX]}
        return told | {"ahead": named}

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
        keys, lease_ids = c["keys"], c["lease_ids"]
        if not 1 <= len(keys) <= SET_KEYS_MAX or not len(set(keys)) == len(keys) == len(set(lease_ids)):
            return {"is": "Invalid"}
        if c["mode"] == "permit" and not 1 <= c["slots"] <= HOLDERS_MAX:
            return {"is": "Invalid"}
        if (c["session_id"] is None) == (c["ttl_ms"] is None):
            return {"is": "Invalid"}
        tenant, scope = c["tenant"], c["session_id"] or ""
        asked_before = self.answer_again(tenant, scope, c["request_id"], keys)
        if asked_before is not None:
            return asked_before
        if scope:
            refusal = self.no_session(tenant, scope)
            if refusal is not None:
                return refusal
        for key in keys:
            self.settle(tenant, key)
        wanted = dict(c, slots=c["slots"] if c["mode"] == "permit" else 0)
        mine = {key: self.held_by(tenant, key, scope) for key in keys if self.held_by(tenant, key, scope)}
        for key in keys:
            refusal = self.other_mode(wanted, tenant, key, mine.get(key, []))
            if refusal is not None:
                return refusal
        resting = any(row["parked_ttl_ms"] for rows in mine.values() for row in rows)
        if mine and (c["if_held"] == "conflict" or resting or len(mine) < len(keys)):
            key, leases = next(iter(mine.items()))
            return {"is": "Held", "key": key, "holders": self.shown_holders(tenant, key, leases)} | {
                "waiters": len(self.queue(tenant, key)),
                "blocked_until_ms": 0,
            }
        if mine:
            for (lease,) in mine.values():
                self.claim_together(lease)
            return self.granted([lease for (lease,) in mine.values()], replayed=False)
        return self.fresh_acquire(wanted, tenant, scope)

    def held_by(self, tenant: str, key: str, scope: str) -> list[Row]:
        """What a session holds of a key, resting or not."""
        held = self.holders(tenant, key) if scope else []
        return [row for row in held if scope in (row["session_id"], row["parked_from"])]

    def together(self, lease: Row) -> list[Row]:
        """What is left of the set that a lease was granted in, in the order of the keys."""
        if not lease["set"]:
            return [lease]
        same = {name: lease[name] for name in ("tenant", "scope", "request_id")}
        found = [row for row in matching(self.leases, **same) if row["set"] == lease["set"]]
        return sorted(found, key=lambda row: row["set"].index(row["key"]))

    def claim_together(self, lease: Row) -> None:
        for row in self.together(lease) if lease["claim_deadline_ms"] else []:
            if row["claim_deadline_ms"]:
                self.claim_lease(row)

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

    def answer_again(self, tenant: str, scope: str, request_id: str, keys: list[str]) -> Row | None:
        """The answer to an acquire that was asked before, None if it is new (or forgotten)."""
        waiter = self.waiter_of(tenant, scope, request_id)
        leases, past = self.of_request(tenant, scope, request_id)
        past = [row for row in past if row["remember"]]
        asked = waiter["keys"] if waiter else None
        for row in leases + past:
            asked = row["set"] or [row["key"]]
        if asked is not None and asked != keys:
            return {"is": "Invalid"}
        if waiter is not None or leases or any(row["set"] for row in past):
            for key in keys if waiter is None else self.polled(waiter):
                self.settle(tenant, key)
        leases, past = self.of_request(tenant, scope, request_id)
        if leases or any(row["remember"] for row in past):
            return self.outcome(leases, past, keys)
        if asked is not None and waiter is None:
            return {
                "is": "Lost",
                "reason": "unknown",
            }  # it ended just now, and so did more than is remembered
        if waiter is not None and waiter in self.waiters:
            return self.waiting(waiter)
        if first(self.given_up, tenant=tenant, scope=scope, request_id=request_id):
            return {"is": "Lost", "reason": "abandoned"}
        return None

    def of_request(self, tenant: str, scope: str, request_id: str) -> tuple[list[Row], list[Row]]:
        """The leases of a request, present and over."""
        one = self.lease_of(tenant, scope, request_id)
        past = matching(self.ended, tenant=tenant, scope=scope, request_id=request_id)
        return (self.together(one) if one is not None else [], past)

    def outcome(self, leases: list[Row], past: list[Row], keys: list[str]) -> Row:
        """What to say of a request that was granted: its leases while all are there, else how the first that
        is not ended."""
        present = {row["key"]: row for row in leases}
        if len(present) == len(keys):
            fresh = any(row["claim_deadline_ms"] for row in leases)
            for row in leases:
                self.claim_together(row)
            return self.granted([present[key] for key in keys], replayed=not fresh)
        reasons = {row["key"]: row["reason"] for row in past}
        missing = next(key for key in keys if key not in present)
        return {"is": "Lost", "reason": reasons.get(missing, "unknown")}

    def polled(self, waiter: Row) -> list[str]:
        """The keys to look at for a waiter that has asked again. If it had been silent for too long, it is
        just one that is gone."""
        if not self.gone(waiter):
            waiter["poll_deadline_ms"] = self.time + WAITER_SILENCE_MS
            session = self.session(waiter["tenant"], waiter["session_id"])
            if session is not None and session["private"]:
                session["deadline_ms"] = waiter["poll_deadline_ms"]
            return list(waiter["keys"])
        return [waiter["keys"][0]]

    def fresh_acquire(self, c: Row, tenant: str, scope: str) -> Row:
        """A new request for settled keys: grant it, queue it or refuse it."""
        lease_id = c["lease_ids"][0]
        taken = [key for key in c["keys"] if not self.free(c, tenant, key, scope)]
        if not taken:
            if self.tokens.get(tenant, 0) + len(c["keys"]) > self.bounds["tokens"]:
                return {"is": "TokensExhausted"}
            if not scope:
                self.open(c, lease_id, c["ttl_ms"], True, self.time + c["ttl_ms"])
            return self.granted(self.grant_all(c, scope or lease_id, 0), replayed=False)
        if not c["wait"]:
            return self.held(tenant, taken[0])
        if any(len(self.queue(tenant, key)) >= self.bounds["waiters"] for key in c["keys"]):
            return {"is": "QueueFull", "waiters_max": self.bounds["waiters"]}
        for key in c["keys"] if scope else []:
            cycle = self.cycle(c, key)
            if cycle is not None:
                return {"is": "Deadlock", "cycle": cycle}
        return self.enqueue(c, lease_id, scope)

    def free(self, c: Row, tenant: str, key: str, scope: str) -> bool:
        """Whether a newcomer can have a key. It passes sets that step aside, unless its session waits for
        something: then the set would wait for one that waits."""
        waiters = self.queue(tenant, key)
        busy = scope and matching(self.waiters, tenant=tenant, session_id=scope)
        if waiters and (busy or not all(self.steps_aside(row) for row in waiters)):
            return False
        return self.room(tenant, key, c["mode"], c["slots"]) and not self.blocked(tenant, key)

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
            "progress_ms": wanted["progress_ms"],
            "ticket": self.ticket,
            "queued_ms": self.time,
            "poll_deadline_ms": until,
        }
        self.waiters.append(waiter)
        self.mark_idle_keys()
        for key in wanted["keys"]:
            self.event(wanted["tenant"], "queue_joined", key, wanted["owner"], 0, "", wanted["mode"])
        return self.waiting(waiter)

    def cycle(self, c: Row, key: str) -> list[str] | None:
        """Owners and keys of the cycle that a session's waiting for ``key`` would close, or None."""
        tenant, session_id = c["tenant"], c["session_id"]
        if any(row["session_id"] == session_id and not self.gone(row) for row in self.queue(tenant, key)):
            return [c["owner"], key]
        wait = {"tenant": tenant, "session_id": session_id, "key": key, "mode": c["mode"], "ticket": None}
        return self.way_back(c["owner"], wait, {session_id})

    def cycle_through(self, tenant: str, session_id: str, key: str) -> list[str] | None:
        """The cycle that a session would be in if it held a key: it waits for one who waits for that."""
        queue = [row for row in self.queue(tenant, key) if not self.gone(row)]
        ends = {session_id} | {row["session_id"] for row in queue}
        for wait in self.waits_of(tenant, session_id) if self.queue(tenant, key) else []:
            cycle = self.way_back(wait["owner"], wait, ends, key) if wait["key"] != key else None
            if cycle is not None:
                return cycle
        return None

    def way_back(self, owner: str, wait: Row, ends: set[str], key: str = "") -> list[str] | None:
        """Owners and keys on the way from a wait to a session at which it must not end, and its ``key``."""
        tenant = wait["tenant"]

        def search(owner: str, wait: Row, seen: list[str]) -> list[tuple[str, Row]] | None:
            for name, label in self.in_the_way(wait):
                if name in ends:
                    return [(owner, wait)] + ([(label, {"key": key, "mode": ""})] if key else [])
                if name in seen:
                    continue
                seen.append(name)
                for following in self.waits_of(tenant, name):
                    rest = search(label, following, seen)
                    if rest is not None:
                        return [(owner, wait), *rest]
            return None

        path = search(owner, wait, [])
        if path is None:
            return None
        if any(step["mode"] == "permit" for _, step in path) and not self.hopeless(wait, ends):
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
        ahead = [row for row in ahead if len(row["keys"]) > 1 or not self.both_read(row, wait)]
        return [(row["session_id"], row["owner"]) for row in ahead]

    def both_read(self, one: Row, other: Row) -> bool:
        return bool(one["mode"] == other["mode"] == "shared")

    def hopeless(self, wait: Row, ends: set[str]) -> bool:
        """Whether a wait can't end while its own session does nothing, whatever the others do that can act.
        Of a pool enough holders must be able to act that one place comes free."""
        stuck = set(ends)

        def blocked(wait: Row) -> bool:
            if any(name in stuck for name, _ in self.ahead_of(wait)):
                return True
            held = [name in stuck for name, _ in self.holders_in_the_way(wait)]
            if wait["mode"] != "permit":
                return any(held)
            state = self.key(wait["tenant"], wait["key"])
            return bool(held) and state is not None and held.count(False) <= len(held) - state["slots"]

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
        scope = lease["scope"]
        keys = lease["set"] or [lease["key"]]
        for key in lease["set"]:
            self.settle(c["tenant"], key)
        leases, past = self.of_request(c["tenant"], scope, lease["request_id"])
        return self.outcome(leases, past, keys)

    def renew(self, c: Row) -> Row:
        if (c["lease_id"] is None) == (c["session_id"] is None):
            return {"is": "Invalid"}
        if c["progress"] is not None and c["lease_id"] is None:
            return {"is": "Invalid"}
        if c["session_id"] is not None:
            refusal = self.no_such_session(c["tenant"], c["session_id"])
            if refusal is not None:
                return refusal
            session = self.session(c["tenant"], c["session_id"])
            assert session is not None
            if first(self.leases, tenant=c["tenant"], session_id=c["session_id"], lease_id=c["session_id"]):
                lease = self.lease(c["tenant"], c["session_id"])
                if lease is not None and lease["parked_ttl_ms"]:
                    return self.session_is(session)
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
        if not lease["parked_ttl_ms"]:
            if self.first_in_its_second(session):
                self.tell(lease, "renewed")
            self.extend(session, c["ttl_ms"])
        for each in self.together(lease) if c["progress"] is not None else []:
            self.note(each, c["progress"])
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
        whole = self.lease(tenant, lease_id) or first(self.ended, tenant=tenant, lease_id=lease_id)
        if c["whole_set"] and whole is not None and whole["set"]:
            return self.release_set(whole)
        lease = self.present(tenant, lease_id)
        if lease is None:
            lost = self.lost(tenant, lease_id)
            return {"is": "Released", "already": True} if lost["reason"] == "released" else lost
        self.finish(lease, "released")
        self.settle(tenant, lease["key"])
        return {"is": "Released", "already": False}

    def release_set(self, member: Row) -> Row:
        """End what is left of the set that a lease was of."""
        tenant, keys, request_id = member["tenant"], member["set"], member["request_id"]
        scope = member["scope"]
        one = self.lease_of(tenant, scope, request_id)
        live = [row for row in self.together(one) if not self.dead(row)] if one is not None else []
        for lease in live:
            self.finish(lease, "released")
        for key in keys:
            self.settle(tenant, key)
        if live:
            return {"is": "Released", "already": False}
        past = matching(self.ended, tenant=tenant, scope=scope, request_id=request_id)
        reasons = {row["key"]: row["reason"] for row in past}
        reason = next((reasons[key] for key in keys if key in reasons), "unknown")
        if reason == "released":
            return {"is": "Released", "already": True}
        return {"is": "Lost", "reason": reason}

    def abandon(self, c: Row) -> Row:
        tenant, scope, request_id = c["tenant"], c["session_id"] or "", c["request_id"]
        waiter = self.waiter_of(tenant, scope, request_id)
        if c["poll_deadline_ms"] is not None:
            # Nobody gave up: a connection was lost. Whoever has polled since then keeps its place.
            same = waiter is not None and waiter["poll_deadline_ms"] == c["poll_deadline_ms"]
            return self.abandon_waiter(waiter if same else None)
        lease = self.lease_of(tenant, scope, request_id)
        if lease is not None:
            live = [row for row in self.together(lease) if not self.dead(row)]
            for row in live:
                self.finish(row, "abandoned", "abandoned")
            for key in lease["set"] or [lease["key"]]:
                self.settle(tenant, key)
            return {"is": "Abandoned", "had": bool(live)}
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
        """End a session with all it has; how many live leases that were. Of one that has much it ends only
        the time: then all that it has is over, and is taken away as what has expired is."""
        owned = {"tenant": session["tenant"], "session_id": session["session_id"]}
        waiters = sorted(matching(self.waiters, **owned), key=lambda row: row["ticket"])
        held = len(matching(self.leases, **owned))
        if held + sum(len(row["keys"]) for row in waiters) > self.bounds["close"]:
            session |= {"closed": True, "deadline_ms": self.time}
            return held
        for waiter in waiters:
            self.leave(waiter, "session_closed")
        for waiter in waiters:
            for key in waiter["keys"]:
                self.settle(waiter["tenant"], key)
        closed = 0
        for lease in matching(self.leases, **owned):
            if self.lease(lease["tenant"], lease["lease_id"]) is None:
                continue  # a grant that nobody claimed, found dead as its key was settled
            dead = self.dead(lease)
            self.finish(lease, "expired" if dead else "session_closed", "" if dead else "session_closed")
            closed += not dead
            self.settle(lease["tenant"], lease["key"])
        self.sessions = [row for row in self.sessions if row is not session]
        return closed

    def expire(self, c: Row) -> Row:
        self.endings_left = self.bounds["endings"]
        self.ended_items = []
        ended = 0
        for item in c["items"][: self.bounds["endings"]]:
            if self.full():
                break
            if self.expire_one(item):
                ended += 1
                self.endings_left -= 1
                self.ended_items.append(item["kind"])
        return {"is": "Done", "ended": ended}

    def full(self) -> bool:
        """Whether enough has come of an Expire."""
        much = self.endings_left <= 0 or self.grants_left <= 0
        return much or len(self.events) >= self.bounds["events"]

    def expire_session(self, session: Row) -> bool:
        """End an expired session and all it has; false if there was too much of it for one command."""
        owned = {"tenant": session["tenant"], "session_id": session["session_id"]}
        why_left = "silent" if session["private"] else "session_expired"
        why_left = "session_closed" if session["closed"] else why_left
        bounded = not session["private"]
        while waiters := sorted(matching(self.waiters, **owned), key=lambda row: row["ticket"]):
            if bounded and self.full():
                return False
            self.leave(waiters[0], why_left)
            self.settle(waiters[0]["tenant"], waiters[0]["keys"][0])
            self.endings_left -= bounded
        while leases := matching(self.leases, **owned):
            if bounded and self.full():
                return False
            self.settle(leases[0]["tenant"], leases[0]["key"])
            self.endings_left -= bounded
        self.sessions = [row for row in self.sessions if row is not session]
        if bounded and not session["closed"]:
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
        if kind == "progress":
            lease = self.lease(tenant, name)
            if lease is None or lease["progress_until_ms"] != deadline or deadline == 0:
                return False
            self.settle(tenant, lease["key"])
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
