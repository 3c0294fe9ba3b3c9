"""The faults, in rounds, and what they did to one system."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure_chaos.history import RegisterWrite
from tenure_chaos.live.compare.holder import HolderTask
from tenure_chaos.live.compare.locks import LockFailed, lock_of
from tenure_chaos.live.compare.targets import EtcdTarget, Target, TenureTarget
from tenure_chaos.live.network import Network
from tenure_chaos.live.proxies.serving import Choice, proxy_server
from tenure_chaos.live.work.registers import Registers

HOLDERS: Final = ("h1", "h2", "h3")
KEY: Final = "compared"
TTL_S: Final = 3.0
LONGER_S: Final = TTL_S + 2.0
"""How long a holder is paused or cut off: its lock is over by then."""
PATIENCE_S: Final = 60.0
PROBE_EVERY_S: Final = 0.05
REST_S: Final = 2.0


@dataclass
class Hold:
    """From when to when somebody thought that he held."""

    holder: str
    token: int
    began_at: float
    ended_at: float = float("inf")


@dataclass
class Result:
    """What came out for one system."""

    what: str
    proxies: str
    rounds: int
    holds: int = 0
    writes: int = 0
    lost_unguarded: int = 0
    """Updates that somebody else's write made undone, at the register that takes every write."""
    lost_guarded: int = 0
    refused_guarded: int = 0
    believed_s: dict[str, list[float]] = field(default_factory=dict)
    """By fault: for how long a superseded holder still held, as far as its client told, while it ran."""
    takeover_s: list[float] = field(default_factory=list)
    takeover_with_leader_s: list[float] = field(default_factory=list)
    unavailable_s: list[float] = field(default_factory=list)
    """After each kill of the leader: the longest time without a fresh lock granted."""


class Holder:
    """One holder's process, from the bench's side."""

    def __init__(self, task: HolderTask, log: Path) -> None:
        self.task = task
        self.holds: list[Hold] = []
        self.failures = 0
        self.process: asyncio.subprocess.Process | None = None
        self._log = log
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tenure_chaos.live.compare.holder"),
                msgspec.json.encode(self.task).decode(),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("TENURE_")},
            )
        assert self.process.stdout is not None
        self._reading = asyncio.ensure_future(self._read(self.process.stdout))

    async def _read(self, lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            said = json.loads(line)
            if said["event"] == "acquired":
                self.holds.append(Hold(self.task.name, said["token"], said["at"]))
            elif said["event"] in ("lost", "stopped"):
                self.holds[-1].ended_at = said["at"]
            elif said["event"] == "failed":
                self.failures += 1

    @property
    def holds_now(self) -> bool:
        return bool(self.holds) and self.holds[-1].ended_at == float("inf")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    async def kill(self) -> None:
        """What it held then has ended with it."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        if self._reading is not None:
            await self._reading
        if self.holds_now:
            self.holds[-1].ended_at = time.monotonic()


class Probe:
    """Acquires a fresh lock again and again, and remembers when that succeeded."""

    def __init__(self, system: str, routes: dict[str, str]) -> None:
        self.granted_at: list[float] = []
        self._closing = False
        self._lock = lock_of(system, routes, TTL_S)
        self._working = asyncio.ensure_future(self._work())

    async def _work(self) -> None:
        number = 0
        # Cancelling alone is not enough: aiohttp loses a cancellation that comes as an attempt times out.
        while not self._closing:
            number += 1
            with contextlib.suppress(LockFailed):
                held = await self._lock.acquire(f"probe/{number}", PATIENCE_S)
                self.granted_at.append(time.monotonic())
                await held.release()
            await asyncio.sleep(PROBE_EVERY_S)

    def longest_gap_s(self, since: float, until: float) -> float:
        """Longest time between two grants, the first of them before ``since``."""
        before = [at for at in self.granted_at if at <= since][-1:]
        times = [*before, *(at for at in self.granted_at if since < at <= until)]
        return max((b - a for a, b in pairwise(times)), default=until - since)

    async def close(self) -> None:
        self._closing = True
        self._working.cancel()
        await asyncio.gather(self._working, return_exceptions=True)
        await self._lock.close()


class Comparison:
    """One system under all faults."""

    def __init__(
        self, target: Target, network: Network, rounds: int, log: Path, say: Callable[[str], None]
    ) -> None:
        self.target = target
        self.network = network
        self.rounds = rounds
        self.log = log
        self.say = say
        self.registers = Registers(time.monotonic)
        self.holders: dict[str, Holder] = {}
        self.past: list[Hold] = []
        self.strikes: list[tuple[str, float, float]] = []
        """(fault, when it began, when it ended)"""
        self._starts = 0
        self._address: tuple[str, int] = ("", 0)

    async def run(self, result: Result) -> None:
        """All rounds of all faults."""
        async with self.registers.serving() as self._address:
            try:
                for name in HOLDERS:
                    await self._start_holder(name)
                for number in range(1, 1 + self.rounds):
                    await self._pause(number)
                    await self._cut_off(number)
                    result.takeover_s.append(await self._takeover(number, with_leader=False))
                    result.takeover_with_leader_s.append(await self._takeover(number, with_leader=True))
                    result.unavailable_s.append(await self._kill_leader(number))
            finally:
                for holder in self.holders.values():
                    await holder.kill()
        self._judge(result)

    async def _start_holder(self, name: str) -> None:
        self._starts += 1
        routes = {
            f"http://{address}": f"http://{self.network.address(f'{name}>{node}')}"
            for node, address in self.target.addresses.items()
        }
        if name in self.holders:
            self.past += self.holders[name].holds
        task = HolderTask(name, self.target.name, routes, KEY, TTL_S, self._address, self._starts)
        self.holders[name] = Holder(task, self.log)
        await self.holders[name].start()

    async def _holder(self) -> Holder:
        """Who holds now; waits until somebody does."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for holder in self.holders.values():
                if holder.holds_now:
                    return holder
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody holds the lock of {self.target.what}: see {self.log}")
            await asyncio.sleep(0.005)

    # -- faults

    async def _pause(self, number: int) -> None:
        holder = await self._holder()
        self.say(f"round {number}: {holder.task.name} is paused while it holds")
        began = time.monotonic()
        holder.signal(signal.SIGSTOP)
        await asyncio.sleep(LONGER_S)
        holder.signal(signal.SIGCONT)
        self.strikes.append(("holder paused", began, time.monotonic()))
        await asyncio.sleep(REST_S)

    async def _cut_off(self, number: int) -> None:
        holder = await self._holder()
        self.say(f"round {number}: {holder.task.name} is cut off while it holds")
        began = time.monotonic()
        await self.network.silence("cut", self.network.client_lines(holder.task.name))
        await asyncio.sleep(LONGER_S)
        await self.network.heal("cut")
        self.strikes.append(("holder cut off", began, time.monotonic()))
        await asyncio.sleep(REST_S)

    async def _takeover(self, number: int, *, with_leader: bool) -> float:
        leader = await self._leader() if with_leader else None
        holder = await self._holder()
        self.say(f"round {number}: {holder.task.name} is killed while it holds, leader too: {with_leader}")
        token = holder.holds[-1].token
        died = time.monotonic()
        await holder.kill()
        if leader is not None:
            self.target.kill(leader)
        took_s = await self._next_grant(token) - died
        if leader is not None:
            self.target.start_node(leader)
        await self._start_holder(holder.task.name)
        await asyncio.sleep(REST_S)
        return took_s

    async def _next_grant(self, token: int) -> float:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            later = [h.began_at for x in self.holders.values() for h in x.holds if h.token > token]
            if later:
                return min(later)
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody takes over the lock of {self.target.what}")
            await asyncio.sleep(0.01)

    async def _kill_leader(self, number: int) -> float:
        leader = await self._leader()
        self.say(f"round {number}: the leader, {leader}, is killed")
        urls = {f"http://{address}": f"http://{address}" for address in self.target.addresses.values()}
        probe = Probe(self.target.name, urls)
        try:
            await asyncio.sleep(REST_S)
            killed = time.monotonic()
            self.target.kill(leader)
            await asyncio.sleep(2 * LONGER_S)
            return probe.longest_gap_s(killed, time.monotonic())
        finally:
            await probe.close()
            self.target.start_node(leader)
            await asyncio.sleep(REST_S)

    async def _leader(self) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while (name := await self.target.leader()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody leads {self.target.what}")
            await asyncio.sleep(0.1)
        return name

    # -- what it came to

    def _judge(self, result: Result) -> None:
        holds = sorted(
            [*self.past, *(hold for holder in self.holders.values() for hold in holder.holds)],
            key=lambda hold: hold.token,
        )
        result.holds = len(holds)
        count_writes(self.registers.writes, result)
        for fault, began, ended in self.strikes:
            longest = 0.0
            for hold, after in pairwise(holds):
                if hold.began_at < ended and after.began_at > began and after.began_at < ended + REST_S:
                    # What it believed while it could not run does not count: it did nothing then.
                    since = max(after.began_at, ended if fault == "holder paused" else 0.0)
                    longest = max(longest, min(hold.ended_at, ended + REST_S) - since)
            result.believed_s.setdefault(fault, []).append(max(0.0, longest))


def count_writes(writes: list[RegisterWrite], result: Result) -> None:
    """Lost and refused updates at both registers."""
    for write in writes:
        if write.guarded:
            result.refused_guarded += not write.accepted
            result.lost_guarded += write.accepted and write.found != write.read
        else:
            result.writes += 1
            result.lost_unguarded += write.found != write.read


async def compare_one(
    system: str, directory: Path, *, rounds: int, proxies: Choice, say: Callable[[str], None]
) -> Result:
    """One system under all faults. Raises NoTarget, NoServer, or TimeoutError."""
    async with contextlib.AsyncExitStack() as stack:
        serving = stack.enter_context(proxy_server(directory / f"{system}-proxies.log", proxies))
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-chaos-")))
        place = directory / system
        target: Any = TenureTarget(place, sockets) if system == "tenure" else EtcdTarget(place)
        stack.callback(target.close)
        await target.start()
        say(f"{target.what} serves, {serving.what} before it")
        network = Network(serving.server, target.addresses, HOLDERS, peers=False)
        stack.push_async_callback(network.close)
        await network.open(lambda a, b: target.addresses[b])
        result = Result(target.what, serving.what, rounds)
        comparison = Comparison(target, network, rounds, directory / f"{system}-holders.log", say)
        await comparison.run(result)
        return result
