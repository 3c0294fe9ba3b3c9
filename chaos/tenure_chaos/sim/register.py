"""A register outside the service, and an unguarded twin of it.

Both hold a number. Whoever wants to change it reads it, computes, and writes it; the write names what had
been read, for the history's sake only. The guarded one has the rule ``current`` of a fencing guard: a write
passes if its token is not below the floor, and raises the floor to it; ``arm`` raises the floor without a
write and is the first thing a new holder does. The twin takes every write, so an update is lost whenever two
writers overlap: how often that happens tells how much the guard had to do.

Messages to and from it have a link of their own, so a write arrives late, after its writer's lease, and out
of order. The register itself is no process: it is never paused and never dies.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenure_chaos.history import RegisterWrite
from tenure_chaos.sim.loop import VirtualLoop

A = TypeVar("A")

LATE = 0.03
"""Part of the messages that take up to LATE_FACTOR times as long as usual."""
LATE_FACTOR = 4.0
DELAY_MIN_S = 0.0002


@dataclass(frozen=True)
class Seen:
    """What a reader is told of both."""

    guarded: int
    unguarded: int


@dataclass(frozen=True)
class Put:
    """What a writer is told: whether the guarded one took it, and the floor that decided."""

    accepted: bool
    floor: int


class Register:
    """See the module's docstring. ``write_down`` is given every write that arrives, in order."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        rng: random.Random,
        *,
        delay_s: float,
        write_down: Callable[[RegisterWrite], None],
    ) -> None:
        self.name = name
        self.floor = 0
        self.guarded = 0
        self.unguarded = 0
        self._values = 0
        self._loop = loop
        self._rng = rng
        self._delay_s = delay_s
        self._write_down = write_down

    async def arm(self, token: int) -> bool:
        """Raise the floor to a token. False if a later holder has been here."""

        def raise_floor() -> bool:
            self.floor = max(self.floor, token)
            return self.floor == token

        return await self._ask(raise_floor)

    async def read(self) -> Seen:
        return await self._ask(lambda: Seen(self.guarded, self.unguarded))

    async def write(self, client: str, token: int, read: Seen) -> Put:
        """Replace both numbers by new ones, which nobody has written before."""
        return await self._ask(lambda: self._arrive(client, token, read))

    def _arrive(self, client: str, token: int, read: Seen) -> Put:
        self._values += 1
        value, now = self._values, self._loop.time()
        accepted = token >= self.floor
        self._write_down(
            RegisterWrite(self.name, client, token, now, True, accepted, read.guarded, self.guarded, value)
        )
        self._write_down(
            RegisterWrite(self.name, client, token, now, False, True, read.unguarded, self.unguarded, value)
        )
        if accepted:
            self.floor, self.guarded = token, value
        self.unguarded = value
        return Put(accepted, self.floor)

    async def _ask(self, answer: Callable[[], A]) -> A:
        """Have it answered at the register, one delay from now; the answer takes another."""
        answered: asyncio.Future[A] = self._loop.create_future()

        def arrive() -> None:
            self._loop.call_later(self._delay(), reply, answer())

        def reply(value: A) -> None:
            if not answered.done():
                answered.set_result(value)

        # Of no process, so that what is on its way arrives whatever has become of the sender meanwhile.
        contextvars.Context().run(self._loop.call_later, self._delay(), arrive)
        return await answered

    def _delay(self) -> float:
        usual = self._rng.uniform(DELAY_MIN_S, self._delay_s)
        return usual * self._rng.uniform(1.0, LATE_FACTOR) if self._rng.random() < LATE else usual
