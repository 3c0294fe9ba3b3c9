"""Network namespaces in place of proxies: every process in one of its own, on one bridge, and packets are
lost.

A line ``a>b`` is cut by giving a a wrong hardware address for b: what a sends to b leaves, and reaches
nobody. Nobody is told, connections included, and TCP goes through all that it does about lost packets. It
takes the rights of root and iproute2; nothing outside of the namespaces is touched but the bridge and its
ends, which have names of their own and are taken away at the end.
"""

import asyncio
import contextlib
import os
import random
import secrets
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from tenure_chaos.live.lines import BOTH, Lines, Place, Stream

NOBODY: Final = "02:00:00:00:ff:ff"
BENCH: Final = 254
"""The last byte of the address at which the bench itself is reached."""


class NoNamespaces(Exception):
    """They can't be had here. The message says why."""


def _ip(*arguments: str) -> None:
    done = subprocess.run(("ip", *arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoNamespaces(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Namespaces(Lines):
    """Lines between namespaces."""

    can_refuse = False
    can_slow = False

    def __init__(self, prefix: str, net: str, nodes: Sequence[str], clients: Sequence[str]) -> None:
        """``net``: the first three bytes of all addresses."""
        super().__init__(nodes, clients)
        self._prefix = prefix
        self._net = net
        self._numbers = {name: number for number, name in enumerate((*nodes, *clients), 1)}
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._of: dict[str, list[tuple[str, str]]] = {}
        self._upstream: dict[str, str] = {}

    @property
    def bench_host(self) -> str:
        """At which the bench is reached from within."""
        return f"{self._net}.{BENCH}"

    def place(self, name: str) -> Place:
        """Where this process is to run."""
        return Place(self._host(name), ("ip", "netns", "exec", self._space(name)))

    def _host(self, name: str) -> str:
        return f"{self._net}.{self._numbers[name]}"

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _hardware(self, name: str) -> str:
        return f"02:00:00:00:00:{self._numbers[name]:02x}"

    def make(self) -> None:
        """All of it. Raises NoNamespaces; ``remove`` then takes away what there is."""
        bridge = f"{self._prefix}b"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self.bench_host}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for name in self._numbers:
            self._make_space(name)
        for a in self._numbers:
            for b in self._numbers:
                if a != b:
                    self._reach(a, b, self._hardware(b))

    def _make_space(self, name: str) -> None:
        space, end = self._space(name), f"{self._prefix}v{self._numbers[name]}"
        _ip("netns", "add", space)
        _ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", end, "master", f"{self._prefix}b", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "link", "set", "eth0", "address", self._hardware(name))
        _ip("-n", space, "addr", "add", f"{self._host(name)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Whatever of it there is. Processes in there must have ended."""
        for number in self._numbers.values():
            with contextlib.suppress(NoNamespaces):
                _ip("link", "del", f"{self._prefix}v{number}")
        for name in self._numbers:
            with contextlib.suppress(NoNamespaces):
                _ip("netns", "del", self._space(name))
        with contextlib.suppress(NoNamespaces):
            _ip("link", "del", f"{self._prefix}b")

    def _reach(self, a: str, b: str, hardware: str) -> None:
        what = ("replace", self._host(b), "lladdr", hardware, "dev", "eth0", "nud", "permanent")
        _ip("-n", self._space(a), "neigh", *what)

    # -- lines

    def address(self, line: str) -> str:
        return self._upstream[line]

    async def open(self, upstream: Callable[[str, str], str]) -> None:
        """Nothing stands between the ends."""
        for line in (*self.client_lines(), *self.peer_lines()):
            a, _, b = line.partition(">")
            self._upstream[line] = upstream(a, b)

    async def prepare(self, node: str) -> Place:
        others = list(self._numbers)
        self._numbers[node] = len(others) + 1

        def make() -> None:
            self._make_space(node)
            for other in others:
                self._reach(node, other, self._hardware(other))
                self._reach(other, node, self._hardware(node))

        await asyncio.to_thread(make)
        return self.place(node)

    async def join(self, node: str, upstream: Callable[[str, str], str]) -> None:
        self.nodes = (*self.nodes, node)
        await self.open(upstream)

    async def close(self) -> None:
        """``remove`` does it, once the processes have ended."""

    async def silence(self, fault: str, lines: Iterable[str], streams: Iterable[Stream] = BOTH) -> None:
        streams = tuple(streams)
        for line in lines:
            a, _, b = line.partition(">")
            if "upstream" in streams:
                await self._cut(fault, a, b)
            if "downstream" in streams and a in self.clients:
                await self._cut(fault, b, a)

    async def _cut(self, fault: str, a: str, b: str) -> None:
        self._of.setdefault(fault, []).append((a, b))
        self._cuts[a, b] += 1
        if self._cuts[a, b] == 1:
            await asyncio.to_thread(self._reach, a, b, NOBODY)

    async def heal(self, fault: str, unread: Collection[str] = ()) -> None:
        for a, b in self._of.pop(fault, ()):
            self._cuts[a, b] -= 1
            if self._cuts[a, b] == 0:
                del self._cuts[a, b]
                await asyncio.to_thread(self._reach, a, b, self._hardware(b))

    async def heal_everything(self) -> list[str]:
        sick = [f"{a}>{b}" for a, b in self._cuts]
        for fault in list(self._of):
            await self.heal(fault)
        return sick


@contextlib.contextmanager
def namespaces(nodes: Sequence[str], clients: Sequence[str]) -> Iterator[Namespaces]:
    """Namespaces for these processes, for as long as the block runs. Raises NoNamespaces."""
    if os.geteuid() != 0:
        raise NoNamespaces("network namespaces take the rights of root")
    if shutil.which("ip") is None:
        raise NoNamespaces("network namespaces take iproute2's ip")
    net = f"10.{random.randrange(200, 250)}.{random.randrange(250)}"
    made = Namespaces(f"tc{secrets.token_hex(3)}", net, nodes, clients)
    try:
        made.make()
        yield made
    finally:
        made.remove()
