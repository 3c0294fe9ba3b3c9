"""One client program: its means, and what it remembers until it dies."""

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tenure_chaos.history import RegisterWrite
from tenure_chaos.sim.client import SimClient
from tenure_chaos.sim.register import Register
from tenure_chaos.sim.workloads.calls import Caller
from tenure_chaos.sim.workloads.real_client import RecordedCalls
from tenure_chaos.sim.workloads.sessions import Handle, Session
from tenure_chaos.sim.world import World

if TYPE_CHECKING:
    from tenure_chaos.sim.workloads.front import Front

REMEMBERED_MAX = 8
SESSIONS_MAX = 100
"""More than can be believed in at a time: work begins one after another."""


class Program(Caller):
    """The means of one client. Numbers go on after a death, so no id is ever given twice."""

    def __init__(self, world: World, client: SimClient) -> None:
        super().__init__(world, client)
        self.stopping = False
        self.sessions: deque[Session] = deque(maxlen=SESSIONS_MAX)
        """The latest, over or not."""
        self.ended: deque[Handle] = deque(maxlen=REMEMBERED_MAX)
        """Handles that it has done with, released or not."""
        self.commits: deque[dict[str, Any]] = deque(maxlen=REMEMBERED_MAX)
        """Commits that carried an op_id, with what became of them."""
        self.looks: list[Callable[[], None]] = []
        """What the world looks at after every call that returned, whether the process is paused or not."""
        self.leases: dict[str, dict[str, Any]] = {}
        """What the history knows a lease by, by its id."""
        self.asked_for: dict[str, str] = {}
        """The key of each acquire, by its request_id."""
        self._calls: RecordedCalls | None = None
        self._front: Front | None = None
        self._numbers = 0

    @property
    def calls(self) -> RecordedCalls:
        """The client's own way to make calls; of this process."""
        if self._calls is None:
            self._calls = RecordedCalls(self)
        return self._calls

    @property
    def front(self) -> "Front":
        """The whole client; of this process."""
        if self._front is None:
            from tenure_chaos.sim.workloads.front import Front

            self._front = Front(self)
        return self._front

    def calls_returned(self) -> None:
        """Have the world look once the client has made of an answer what it makes of it."""
        for look in self.looks:
            self.world.loop.call_soon(look, context=contextvars.Context())

    @property
    def rng(self) -> random.Random:
        return self.client.rng

    @property
    def now(self) -> float:
        """Seconds of its own clock."""
        return self.client.clock.monotonic()

    def true_time(self, own_s: float) -> float:
        """When its clock shows that. Clocks keep their rates."""
        return self.world.loop.time() + (own_s - self.now) / self.client.clock.rate

    async def sleep(self, own_s: float) -> None:
        """So many seconds of its own clock."""
        await asyncio.sleep(own_s / self.client.clock.rate)

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside, in this process. A fault of it is a fault of the harness."""
        return self.world.loop.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        except Exception as error:
            self.report(error)
            return None

    def report(self, error: Exception) -> None:
        """Something went wrong that is not the cluster's doing."""
        # At the end of the world, when what never ended is thrown away, it is no wonder.
        if asyncio.current_task() is not None:
            self.world.violation("the workload runs", f"{self.client.name}: {type(error).__name__}: {error}")

    def new_id(self, what: str = "") -> str:
        self._numbers += 1
        return f"{self.client.name}{what}-{self._numbers}"

    def chance(self, of: float) -> bool:
        return self.rng.random() < of

    def any_key(self) -> str:
        return self.key_now(f"k{self.rng.randrange(self.world.options.keys)}")

    def key_now(self, key: str) -> str:
        """What all programs call a key at this time; here always the same."""
        return key

    def any_ttl_ms(self) -> int:
        return self.rng.choice(self.world.options.ttl_ms)

    def session(self, *, ttl_ms: int, session_id: str = "") -> Session:
        made = Session(self, ttl_ms=ttl_ms, session_id=session_id)
        self.sessions.append(made)
        return made

    def register(self, key: str) -> Register:
        """The register that the leases of this key are to protect."""
        world = self.world
        register = world.registers.get(key)
        if register is None:
            register = world.registers[key] = Register(
                f"register of {key}",
                world.loop,
                random.Random(f"register of {key} in {world.seed}"),
                delay_s=world.options.register_delay_s,
                write_down=self._write_down,
            )
        return register

    def _write_down(self, write: RegisterWrite) -> None:
        self.world.history.writes.append(write)
        if write.accepted and write.found != write.read:
            kind = "guarded" if write.guarded else "unguarded"
            self.world.count(f"lost update at the {kind} register")

    def forget_everything(self) -> None:
        """It dies: nothing of what it knew is believed in any more."""
        for session in self.sessions:
            for handle in session.handles:
                handle.stop_believing("its process died")
        if self._front is not None:
            self._front.forget()
        self.looks.clear()
        self.leases.clear()
        self.asked_for.clear()
        self._calls = self._front = None
        self.sessions.clear()
        self.ended.clear()
        self.commits.clear()
