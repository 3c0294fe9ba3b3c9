"""The client as programs use it: tenure.aio with its sessions, handles and renewals, whole.

Only three things differ from the field. Renewals run on the process's one event loop instead of a thread with
a loop of its own; calls go through RecordedCalls; and chance is drawn from the world.

What a handle says is written down from outside: after every call that returned, and before every step of the
work, it is asked for its state and its V. In between nothing can change but by the clock, and that is known.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tenure import aio
from tenure._handle import State
from tenure._kept import KeptSession
from tenure._renewer import Renewer, _Work
from tenure._requests import Request
from tenure._sessions import Sessions
from tenure.client import PlainClient
from tenure_chaos.history import Belief
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.real_client import RecordedCalls, SimAcquisition
from tenure_chaos.sim.workloads.sessions import BY_OWN_CLOCK


class Front(aio.Client):
    """The client of one process."""

    def __init__(self, program: Program) -> None:
        # What of the client draws by itself draws from here on what this world would have it draw.
        random.seed(f"{program.client.process} in {program.world.seed}")
        PlainClient.__init__(self, RecordedCalls(program).options)
        self.program = program
        self._calls = program.calls
        self._renewer = _Renewer(program)
        self._sessions = Sessions(self._calls, self._renewer)
        self._watched: list[Watched] = []
        program.looks.append(self.look)

    def lease(self, *key: Any, **terms: Any) -> _Lease:
        return _Lease(self, super().lease(*key, **terms)._terms)

    def observe(self, held: aio.Held) -> Watched:
        """Write down what the handle says from now on. The handle is kept, or it would release itself at a
        moment that the collection of garbage decides."""
        watched = Watched(self.program, held)
        self._watched.append(watched)
        return watched

    def drop(self, watched: Watched) -> None:
        """Its holder is gone, and does as the client does when it sees that."""
        watched.stop("dropped")
        self._renewer.drop(watched.held._session, watched.held._member)

    def look(self) -> None:
        """What do all handles say now?"""
        for watched in self._watched:
            watched.look()

    def forget(self) -> None:
        """The process dies."""
        for watched in self._watched:
            watched.stop("its process died")


class Watched:
    """A handle, and what it said."""

    def __init__(self, program: Program, held: aio.Held) -> None:
        world = program.world
        self.held = held
        self._program = program
        self._belief = Belief(
            program.client.name, held.key, held.token, world.loop.time(), self._until(), BY_OWN_CLOCK
        )
        world.history.beliefs.append(self._belief)

    def _until(self) -> float:
        return self._program.true_time(self.held._session.validity.valid_until)

    def look(self) -> None:
        if self._belief.why != BY_OWN_CLOCK:
            return
        if self.held.is_held:
            self._belief.ended_at = max(self._belief.ended_at, self._until())
        elif self.held.state is State.LOST:
            self.stop(f"lost, {self.held.lost_reason}")

    def stop(self, why: str) -> None:
        """It says so no longer, from now on at the latest."""
        world, belief = self._program.world, self._belief
        if belief.why == BY_OWN_CLOCK and world.loop.time() < belief.ended_at:
            belief.ended_at, belief.why = world.loop.time(), why
            world.count(f"belief ended: {why}")


class _Renewer(Renewer):
    """Works on the process's own loop, and dies with the process."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.calls.options)
        self._program = program
        self._process = program.client.process

    def _submit(self, begin: Callable[[_Work], None], *, otherwise: Callable[[], None]) -> None:
        if not self._process.alive:
            return
        if self._work is None:
            self._work = _Work(self._options)
            self._work._calls = RecordedCalls(self._program)
        self._program.world.loop.spawn(self._process, begin, self._work)


class _Lease(aio.Lease):
    """A lease whose acquires have ids that the world draws."""

    async def _acquire_in(self, session: KeptSession, wait_s: float) -> aio.Held:
        terms, client = self._terms, self._client
        assert isinstance(client, Front)

        def undo(request: Request[Any]) -> None:
            session.use(terms.keys)
            client._renewer.undo(session, request, lambda _: session.unuse(terms.keys))

        body = terms.body(session.session_id)
        body = {name: value for name, value in body.items() if value is not None}
        answer = await SimAcquisition(client.program, body, wait_s=wait_s, undo=undo).run()
        return aio.Held(client, session, answer.value, answer.sent_at)
