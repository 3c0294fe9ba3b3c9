"""Sessions as their holder knows them: how long they may be believed in, and the handles that live by them.

The client's own machinery decides (tenure._validity, tenure._handle); this drives it with the calls of a
simulated client, and writes down beliefs. A belief needs no timer: it ends where the client's own clock
passes V, whether the client runs, is paused, or looks; something that happens before ends it earlier, and a
renewal that is answered before moves V.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenure import _requests
from tenure._handle import HandleLife, State
from tenure._validity import Validity
from tenure_chaos.checkers.reading import place_of
from tenure_chaos.history import DEFAULT_TENANT, Belief, CallRecord
from tenure_chaos.sim.workloads.calls import USUALLY, How

if TYPE_CHECKING:
    from tenure_chaos.sim.workloads.program import Program

BY_OWN_CLOCK = "its own clock passed V"
OVER = frozenset(("lost", "session_expired", "no_session"))
"""Refusals of a renewal that are the cluster's word that there is nothing to renew."""


class Handle:
    """One grant in its holder's hands."""

    def __init__(self, session: Session, lease: dict[str, Any], life: HandleLife) -> None:
        self.session = session
        self.program = session.program
        self.key: str = lease["key"]
        self.lease_id: str = lease["lease_id"]
        self.request_id = ""
        """Of the acquire; empty if it was one of a batch."""
        self.token: int = lease["token"]
        self.mode: str = lease["mode"]
        self.slot: int = lease["slot"]
        place = place_of(lease, DEFAULT_TENANT)[1]
        self.place = "" if place == self.key else place
        self.life = life
        self.belief: Belief | None = None
        self.record_revision: int | None = None
        """Of the record that this handle wrote last."""
        self.seq = 0
        self.armed = False
        """The register's floor was raised to its token, so it may write there."""
        self._noticed = False

    @property
    def ttl_s(self) -> float:
        return self.session.validity.ttl_ms / 1000

    def held(self) -> bool:
        """Whether the holder may act, as it would ask before every step."""
        held = self.life.is_held(self.program.now)
        if not held and not self._noticed and self.life.reason == "expired":
            self._noticed = True
            self.program.world.count("handle found lost by its own clock")
        return held

    def believe(self) -> None:
        """Write down until when it says that it holds, as far as is known now."""
        until = self.program.true_time(self.session.validity.valid_until)
        if self.belief is None:
            world = self.program.world
            self.belief = Belief(
                self.program.client.name,
                self.key,
                self.token,
                world.loop.time(),
                until,
                BY_OWN_CLOCK,
                mode=self.mode,
                place=self.place,
            )
            world.history.beliefs.append(self.belief)
        elif self.belief.why == BY_OWN_CLOCK:
            self.belief.ended_at = max(self.belief.ended_at, until)

    def stop_believing(self, why: str) -> None:
        """Something else than the clock has ended it."""
        now = self.program.world.loop.time()
        if self.belief is not None and self.belief.why == BY_OWN_CLOCK and now < self.belief.ended_at:
            self.belief.ended_at, self.belief.why = now, why
            self.program.world.count(f"belief ended: {why}")

    def give_away(self, why: str) -> None:
        """Stop acting under it for good, before anything is asked that ends it."""
        self.life.release_begun(self.program.now)
        self.stop_believing(why)

    def lost(self, reason: str) -> None:
        self.life.lost(reason, self.program.now)
        self.stop_believing(f"lost, {reason}")

    async def release(self) -> None:
        """Stop acting, then give it back."""
        if self.life.release_begun(self.program.now) is State.RELEASED:
            self.stop_believing("released")
        record, _, _ = await self.program.call(_requests.release(lease_id=self.lease_id), **self.named)
        if record.outcome == "ok" or record.code == "lost":
            self.life.release_answered(record.answer.get("reason"))

    async def abandon(self) -> None:
        """Give up the acquire after all, whose answer might have been lost; the grant goes with it."""
        self.life.release_begun(self.program.now)
        self.stop_believing("abandoned")
        named = {"request_id": self.request_id}
        await self.program.call(_requests.abandon(**named), key=self.key, **named)

    async def leave(self, *, released: float) -> None:
        """Have done with it: give it back with that chance, or forget it until its TTL ends it."""
        if self.program.chance(released):
            await self.release()
        self.program.ended.append(self)

    @property
    def named(self) -> dict[str, Any]:
        """What the history knows a renewal or release of it by."""
        return {"key": self.key, "token": self.token, "lease_id": self.lease_id}


class Session:
    """``session_id`` is empty for a private one, which lives and ends with its only lease or its set."""

    def __init__(self, program: Program, *, ttl_ms: int, session_id: str = "") -> None:
        options = program.world.options
        self.program = program
        self.session_id = session_id
        self.validity = Validity(ttl_ms=ttl_ms, rho=options.clock_rate_bound, margin_s=options.margin_s)
        self.handles: list[Handle] = []
        self.renewals = 0
        self._keeper: asyncio.Task[None] | None = None

    def over(self) -> bool:
        return self.validity.is_over(self.program.now)

    def handle(self, lease: dict[str, Any], sent_at: float) -> Handle:
        """An acquire was answered with a lease of the session: a new handle, or the one there is."""
        for handle in self.handles:
            if (handle.lease_id, handle.token) == (lease["lease_id"], lease["token"]):
                self.extend(sent_at, lease["expires_in_ms"], lease["ttl_ms"])
                return handle
        life = HandleLife(validity=self.validity)
        self._settle()
        life.granted(
            sent_at=sent_at,
            remaining_ms=lease["expires_in_ms"],
            now=self.program.now,
            draw=self.program.rng.random(),
            ttl_ms=lease["ttl_ms"],
        )
        handle = Handle(self, lease, life)
        self.handles.append(handle)
        self._believe()
        return handle

    def extend(self, sent_at: float, remaining_ms: int, ttl_ms: int) -> None:
        """An attempt that was sent then was answered: so much is left."""
        self._settle()
        self.validity.extended(
            sent_at=sent_at,
            remaining_ms=remaining_ms,
            now=self.program.now,
            draw=self.program.rng.random(),
            ttl_ms=ttl_ms,
        )
        self._believe()

    def _settle(self) -> None:
        """Let every handle notice first that V has passed."""
        for handle in self.handles:
            handle.held()

    def _believe(self) -> None:
        for handle in self.handles:
            if handle.held():
                handle.believe()

    def end(self, why: str) -> None:
        """No handle of it is believed in any more."""
        for handle in self.handles:
            handle.lost(why)

    # -- renewal

    async def renew(
        self, *, timeout_s: float | None = None, by: Handle | None = None, ttl_ms: int | None = None
    ) -> CallRecord:
        """One renewal, by the session's id or by a lease's, and what the handles make of the answer."""
        program = self.program
        by = by or (None if self.session_id else self._bearer())
        # Half of the time for each node, so that a second one can be asked within the attempt.
        changed = {} if ttl_ms is None else {"ttl_ms": ttl_ms}
        how = USUALLY if timeout_s is None else How(timeout_s, timeout_s / 2)
        if by is not None:
            record, answer, sent_at = await program.call(
                _requests.renew(lease_id=by.lease_id, ttl_ms=ttl_ms), how, **by.named, **changed
            )
            told = answer.get("lease")
        else:
            record, answer, sent_at = await program.call(
                _requests.renew_session(session_id=self.session_id, ttl_ms=ttl_ms),
                replace(how, named="renew_session"),
                session_id=self.session_id,
                **changed,
            )
            told = answer.get("session")
        if told is not None:
            self.renewals += 1
            self.extend(sent_at, told["expires_in_ms"], told["ttl_ms"])
        elif record.code in OVER:
            reason = record.answer.get("reason", record.code)
            if by is not None and self.session_id and reason != "expired":
                by.lost(reason)
            else:
                self.end(reason)
        else:
            self.validity.renewal_failed(program.now, program.rng.random())
        return record

    def _bearer(self) -> Handle:
        """A lease by which a private session can be renewed: of a set one that is still held."""
        return next((handle for handle in self.handles if handle.held()), self.handles[0])

    def keep(self) -> None:
        """Renew in the background from now on, as the client's renewer does."""
        self._keeper = self.program.begin(self._keep())

    async def _keep(self) -> None:
        program, validity = self.program, self.validity
        while not self.over() and (self.session_id or self._bearer().held()):
            if validity.renewal_due(program.now):
                await self.renew(timeout_s=validity.renewal_begun(program.now))
                program.world.count("renewed in the background")
            else:
                due_in_s = min(validity.renew_at, validity.valid_until) - program.now
                await program.sleep(max(due_in_s, 0.001))

    def stop_keeping(self) -> None:
        """Also in the middle of a renewal, whose outcome is then unknown."""
        if self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None
