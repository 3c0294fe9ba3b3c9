"""One acquire, from asking to a handle or to nothing left behind, by the rules of tenure._acquisition.

A grant whose answer took long is renewed before it is handed out. Whoever gives up abandons, unless it is
certain that nothing is left. A request that the cluster has given up meanwhile is begun anew, at the end of
the line.
"""

import asyncio
from typing import Any

from tenure import _requests
from tenure_chaos.sim.workloads.calls import How
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import Handle, Session

CONFIRM_AFTER_S = 0.25
BRIEFLY = How(timeout_s=2.0)


async def acquire(
    program: Program, key: str, *, wait_s: float = 0.0, session: Session | None = None, **fields: Any
) -> Handle | None:
    """A handle, or None; then nothing is left, as far as the client can know. ``fields`` are of the body.
    Cancelling gives up, in a task of its own if need be.
    """
    one = _Acquisition(program, key, wait_s, session, fields)
    try:
        return await one.run()
    except asyncio.CancelledError:
        program.world.count("cancelled acquire")
        await asyncio.shield(program.begin(one.give_up()))
        raise


class _Acquisition:
    def __init__(
        self, program: Program, key: str, wait_s: float, session: Session | None, fields: dict[str, Any]
    ) -> None:
        self._program = program
        self._wait_s = wait_s
        self._wait_until = program.now + wait_s if wait_s else None
        self._session = session
        self._body: dict[str, Any] = {
            "key": key,
            "owner": program.client.name,
            "request_id": program.new_id(),
            **fields,
        }
        if session is not None:
            self._body["session_id"] = session.session_id
        else:
            self._body.setdefault("ttl_ms", program.any_ttl_ms())
        self._has_place = False

    async def run(self) -> Handle | None:
        program = self._program
        while True:
            record, answer, sent_at = await program.call(
                _requests.acquire(self._body, self._wait_until), **self._body, wait_s=self._wait_s
            )
            if record.outcome == "ok":
                self._has_place = True
                if answer["status"] == "granted":
                    if (handle := await self._confirmed(answer["lease"], sent_at)) is not None:
                        return handle
                    if self._has_place or not self._may_begin_anew():
                        break
                    self._begin_anew()
                elif not self._may_wait_on():
                    break
            elif record.code == "lost" and self._may_begin_anew():
                self._begin_anew()
            elif record.outcome == "unknown" or program.in_doubt or self._has_place:
                break
            else:
                return None
        await self.give_up()
        return None

    async def _confirmed(self, lease: dict[str, Any], sent_at: float) -> Handle | None:
        """The handle; None if the grant has ended meanwhile (then it has no place either) or can't be
        confirmed.
        """
        program = self._program
        if program.now - sent_at > CONFIRM_AFTER_S:
            named = {"key": lease["key"], "token": lease["token"], "lease_id": lease["lease_id"]}
            record, answer, sent_at = await program.call(
                _requests.renew(lease_id=lease["lease_id"]), BRIEFLY, **named
            )
            if record.outcome != "ok":
                self._has_place = record.outcome != "refused"
                return None
            program.world.count("grant confirmed by a renewal")
            lease = answer["lease"]
        session = self._session or program.session(ttl_ms=lease["ttl_ms"])
        return session.handle(lease, sent_at)

    def _may_wait_on(self) -> bool:
        return self._wait_until is not None and self._program.now < self._wait_until

    def _may_begin_anew(self) -> bool:
        return self._may_wait_on() and not self._program.stopping

    def _begin_anew(self) -> None:
        self._has_place = False
        self._body["request_id"] = self._program.new_id()
        self._program.world.count("acquire begun anew")

    async def give_up(self) -> None:
        """Leave the queue, or give back what was granted without anybody's knowing."""
        named = {"request_id": self._body["request_id"]}
        if self._session is not None:
            named["session_id"] = self._session.session_id
        await self._program.call(_requests.abandon(**named), BRIEFLY, key=self._body["key"], **named)
