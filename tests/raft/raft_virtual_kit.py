"""Clusters of the real consensus part on virtual time, network and disks: what happens when is exact."""

import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from raft_testkit import CLUSTER_ID, ListMachine

from tenure_chaos.sim.clock import SimClock
from tenure_chaos.sim.disk import SimDisk
from tenure_chaos.sim.loop import Process, VirtualLoop
from tenure_chaos.sim.network import Network
from tenure_cluster.raft import Outcome, Raft, RaftOptions
from tenure_cluster.raft import messages as wire

PORT = 7700


class VirtualMember:
    """One member; `heard` has when each message of its peers came, `rounds` when its rounds began."""

    def __init__(self, cluster: "VirtualCluster", name: str) -> None:
        self.name = name
        self.process = Process(name)
        self.disk = SimDisk(cluster.loop, random.Random(name))
        self.machine = ListMachine()
        self.heard: list[tuple[float, str, wire.Consensus]] = []
        self.rounds: list[float] = []
        self.roles: list[tuple[float, str]] = []
        self.failed: list[BaseException] = []
        self._cluster = cluster
        self.node = Raft(
            node_id=name,
            cluster_id=CLUSTER_ID,
            members={member: f"{member}:{PORT + number}" for number, member in enumerate(cluster.names)},
            listen=f"{name}:{PORT + cluster.names.index(name)}",
            disk=self.disk,
            clock=SimClock(cluster.loop, random.Random(name)),
            machine=self.machine,
            options=cluster.options,
            on_fatal=self.failed.append,
        )
        self.node.on_role = lambda role, leader, term: self.roles.append((cluster.loop.time(), role))
        self._watch()

    def _watch(self) -> None:
        pump, loop = self.node._pump, self._cluster.loop
        round_, on_consensus = pump._round, pump.on_consensus

        def watched_round() -> None:
            self.rounds.append(loop.time())
            round_()

        def watched_message(peer: str, message: wire.Consensus, size: int) -> None:
            self.heard.append((loop.time(), peer, message))
            on_consensus(peer, message, size)

        pump._round = watched_round  # type: ignore[method-assign]
        pump.on_consensus = watched_message  # type: ignore[method-assign]

    def start(self) -> None:
        loop = self._cluster.loop
        loop.spawn(self.process, lambda: loop.create_task(self.node.start()))

    def heard_since(self, since_s: float, kind: type[Any]) -> list[float]:
        return [at_s for at_s, _, message in self.heard if at_s > since_s and isinstance(message, kind)]

    def rounds_since(self, since_s: float) -> int:
        return sum(1 for at_s in self.rounds if at_s > since_s)


class VirtualCluster:
    """Links take from 0.1 to 1 ms, syncs from 0.2 to 2 ms."""

    def __init__(self, size: int, options: RaftOptions, *, seed: int = 0) -> None:
        self.loop = VirtualLoop()
        self.network = self.loop.sockets = Network(self.loop, random.Random(seed))
        self.options = options
        self.names = [f"n{number}" for number in range(1, size + 1)]
        self.members = {name: VirtualMember(self, name) for name in self.names}

    def start(self, *names: str) -> None:
        for name in names or self.names:
            self.members[name].start()

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end_s = self.loop.time() + seconds
        self.until(lambda: self.loop.time() >= end_s, seconds + 1.0)

    def until(self, condition: Callable[[], object], within_s: float = 10.0) -> float:
        """Let time pass until this holds; how long it took, to a tenth of a millisecond."""
        began_s = self.loop.time()

        async def wait() -> None:
            while not condition():
                assert self.loop.time() < began_s + within_s, f"not within {within_s} s"
                future = self.loop.create_future()
                self.loop.call_later(0.0001, future.set_result, None)
                await future

        self.loop.run_until_complete(wait())
        assert self.loop.failures == []
        assert [member.failed for member in self.members.values() if member.failed] == []
        return self.loop.time() - began_s

    def leader(self) -> VirtualMember:
        """The one that serves, once there is one."""

        def serving() -> list[VirtualMember]:
            return [member for member in self.members.values() if member.node.serving()]

        self.until(serving)
        return serving()[0]

    def followers(self) -> list[VirtualMember]:
        return [member for member in self.members.values() if not member.node.is_leader()]

    def as_member(
        self, member: VirtualMember, work: Callable[[], Awaitable[Any]]
    ) -> Coroutine[Any, Any, Any]:
        """Do this in the member's name; await the answer."""
        future = self.loop.create_future()

        async def run() -> None:
            future.set_result(await work())

        self.loop.spawn(member.process, lambda: self.loop.create_task(run()))

        async def answer() -> Any:
            return await future

        return answer()

    def propose(self, member: VirtualMember, command: bytes) -> list[Outcome]:
        """The list has the outcome when there is one."""
        outcomes: list[Outcome] = []
        self.loop.spawn(member.process, member.node.propose, member.node.now_ms(), command, outcomes.append)
        return outcomes

    def cut(self, *names: str) -> None:
        """Between these and all others."""
        for one in names:
            for other in self.names:
                if other not in names:
                    self.network.cut(one, other)
                    self.network.cut(other, one)

    def close(self) -> None:
        self.loop.discard_tasks()
        self.loop.close()
