"""Leases that change hands or rest, and notes of progress, in the fenced-lease model of ``model_lease``."""

from __future__ import annotations

from typing import Any

from model_state import Row, first, matching
from model_writes import Writes

PROGRESS_STEPS_MAX = 8


class Passing(Writes):
    """Handover, parking and taking up again, notes of progress."""

    def handover(self, c: Row) -> Row:
        model: Any = self
        tenant, name = c["tenant"], c["to_session_id"]
        lease = model.present(tenant, c["lease_id"])
        if lease is None:
            past = first(self.ended, tenant=tenant, lease_id=c["lease_id"], reason="handed_over")
            given = first(self.leases, tenant=tenant, key=past["key"], session_id=name) if past else None
            if given is not None:
                return {"is": "HandedOver", "grant": model.shown(given), "replayed": True}
            lost: Row = model.lost(tenant, c["lease_id"])
            return lost
        self.settle(tenant, lease["key"])
        refusal: Row | None = model.no_session(tenant, name) or self.unfit(lease, name)
        if refusal is not None:
            return refusal
        if self.tokens.get(tenant, 0) >= self.bounds["tokens"]:
            return {"is": "TokensExhausted"}
        session, waiter = self.session(tenant, name), self.waiter_on(lease, name)
        assert session is not None
        state = self.state_of_key(tenant, lease["key"])
        wanted = {**lease, "slots": state["slots"], "keys": [lease["key"]], "remember": True}
        wanted |= {"owner": session["owner"], "request_id": c["new_lease_id"]}
        if waiter is not None:
            self.waiters.remove(waiter)
            wanted |= {key: waiter[key] for key in ("owner", "request_id", "remember")}
        self.finish(lease, "handed_over", wanted["owner"])
        given = self.grant(wanted, lease["key"], c["new_lease_id"], name, 0, slot=lease["slot"])
        given["progress"] = lease["progress"]
        shown = model.shown(given)
        self.settle(tenant, lease["key"])
        return {"is": "HandedOver", "grant": shown, "replayed": False}

    def waiter_on(self, lease: Row, session_id: str) -> Row | None:
        waiters = matching(self.waiters, tenant=lease["tenant"], session_id=session_id)
        waiters.sort(key=lambda row: row["ticket"])
        return first([row for row in waiters if lease["key"] in row["keys"] and not self.gone(row)])

    def unfit(self, lease: Row, session_id: str) -> Row | None:
        """Why a session can't hold a lease's key in its place."""
        model: Any = self
        tenant, key = lease["tenant"], lease["key"]
        others = matching(self.leases, tenant=tenant, key=key, session_id=session_id)
        others = [row for row in others if row is not lease]
        if others:
            held: Row = model.held(tenant, key)
            return held | {"holders": model.shown_holders(tenant, key, others[:1]), "blocked_until_ms": 0}
        waiter = self.waiter_on(lease, session_id)
        if waiter is not None and len(waiter["keys"]) > 1:
            return {"is": "Deadlock", "cycle": [waiter["owner"], key]}
        if waiter is not None and waiter["mode"] != lease["mode"]:
            return {"is": "ModeConflict", "key": key, "present": lease["mode"], "asked": waiter["mode"]} | {
                "present_slots": 0,
                "asked_slots": 0,
            }
        cycle = model.cycle_through(tenant, session_id, key)
        return {"is": "Deadlock", "cycle": cycle} if cycle is not None else None

    def park(self, c: Row) -> Row:
        model: Any = self
        lease = model.present(c["tenant"], c["lease_id"])
        if lease is None:
            lost: Row = model.lost(c["tenant"], c["lease_id"])
            return lost
        if c["token"] is not None and c["token"] != lease["token"]:
            return {"is": "StaleToken", "token": lease["token"]}
        if lease["mode"] == "shared" or lease["set"]:
            return {"is": "Unsupported"}
        if lease["claim_deadline_ms"]:
            self.claim_lease(lease)
        session = self.session(c["tenant"], lease["session_id"])
        assert session is not None
        lease |= {"parked_ttl_ms": lease["parked_ttl_ms"] or session["ttl_ms"], "moved": True}
        lease["progress_until_ms"] = 0
        if session["private"]:
            self.sessions.remove(session)
        else:
            lease["parked_from"] = session["session_id"]
        self.alone(lease, c["limit_ms"])
        self.put_last(lease)
        self.tell(lease, "parked")
        return {"is": "Parked", "grant": model.shown(lease)}

    def put_last(self, lease: Row) -> None:
        """A lease that comes into another session is the last that was granted."""
        at = next(at for at, row in enumerate(self.leases) if row is lease)
        del self.leases[at]
        self.leases.append(lease)

    def alone(self, lease: Row, ttl_ms: int) -> None:
        """Give a lease a private session."""
        lease["session_id"] = lease["lease_id"]
        self.open(lease, lease["lease_id"], ttl_ms, True, self.time + ttl_ms)

    def unpark(self, c: Row) -> Row:
        model: Any = self
        tenant, name = c["tenant"], c["session_id"]
        if name is not None and c["ttl_ms"] is not None:
            return {"is": "Invalid"}
        lease = model.present(tenant, c["lease_id"])
        if lease is None:
            lost: Row = model.lost(tenant, c["lease_id"])
            return lost
        if not lease["parked_ttl_ms"]:
            return self.not_parked(lease, c["token"])
        if c["token"] is not None and c["token"] != lease["token"]:
            return {"is": "StaleToken", "token": lease["token"]}
        self.settle(tenant, lease["key"])
        if name is not None:
            refusal = model.no_session(tenant, name) or self.unfit(lease, name)
            waiter = self.waiter_on(lease, name)
            if refusal is None and waiter is not None:
                refusal = {"is": "Deadlock", "cycle": [waiter["owner"], lease["key"]]}
            if refusal is not None:
                result: Row = refusal
                return result
        if self.tokens.get(tenant, 0) >= self.bounds["tokens"]:
            return {"is": "TokensExhausted"}
        self.sessions.remove(self.session(tenant, lease["session_id"]) or {})
        ttl_ms = c["ttl_ms"] or lease["parked_ttl_ms"]
        lease |= {"parked_ttl_ms": 0, "token": self.mint(tenant), "parked_from": None, "reached": {}}
        lease["progress_until_ms"] = self.time + lease["progress_ms"] if lease["progress_ms"] else 0
        if name is None:
            self.alone(lease, ttl_ms)
        else:
            lease["session_id"] = name
            self.put_last(lease)
        return self.unparked(lease)

    def unparked(self, lease: Row) -> Row:
        """What a lease that has a new token tells, and does to its guard."""
        model: Any = self
        lease["revision"] = self.tell(lease, "unparked")
        state = self.state_of_key(lease["tenant"], lease["key"])
        if not self.blocked(lease["tenant"], lease["key"]):
            state["blocked_until_ms"] = 0
        self.raise_floor(state, lease["slot"], lease["token"], lease["lease_id"], lease["owner"])
        return {"is": "Unparked", "grant": model.shown(lease), "replayed": False}

    def not_parked(self, lease: Row, token: int | None) -> Row:
        """Nothing is to be taken up. But if the parking may be on its way yet, a new token keeps it out."""
        model: Any = self
        can_be_parked = lease["mode"] != "shared" and not lease["set"] and not lease["claim_deadline_ms"]
        if token != lease["token"] or not can_be_parked:
            return {"is": "Unparked", "grant": model.shown(lease), "replayed": True}
        if self.tokens.get(lease["tenant"], 0) >= self.bounds["tokens"]:
            return {"is": "TokensExhausted"}
        lease["token"] = self.mint(lease["tenant"])
        return self.unparked(lease)

    def note(self, lease: Row, note: Row) -> None:
        """Keep what a holder says of its progress; saying it again is none, and neither is counting back."""
        known, step, counter = lease["progress"] or {}, note["step"], note["counter"]
        if all(known.get(name) == note[name] for name in note):
            return
        if counter:
            most = lease["reached"].get(step, 0)
            another_text = counter == most and (known.get("step"), known.get("counter")) == (step, counter)
            if counter <= most and not another_text:
                return
            steps = [(name, most) for name, most in lease["reached"].items() if name != step]
            lease["reached"] = dict([*steps, (step, counter)][-PROGRESS_STEPS_MAX:])
        lease["progress"] = note | {"at_ms": self.time, "wall_ms": self.wall}
        if lease["progress_until_ms"]:
            until = self.time + lease["progress_ms"]
            lease["progress_until_ms"] = max(lease["progress_until_ms"], until)
        self.tell(lease, "progress", note["step"])
