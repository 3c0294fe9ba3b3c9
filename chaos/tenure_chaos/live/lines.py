"""The lines between the parts of a live run, by whatever they are cut: proxies or network namespaces.

A line is written ``n1>n2`` or ``c1>n2``: from who sends, or asks, to who is sent to, or asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Literal, NamedTuple

Stream = Literal["upstream", "downstream"]

BOTH: Final[tuple[Stream, Stream]] = ("upstream", "downstream")


class Place(NamedTuple):
    """Where a process runs: its address, and what its program is started by."""

    host: str
    prefix: tuple[str, ...]


class NoLines(Exception):
    """What was asked for can't be done to these lines."""


class Lines(ABC):
    """All lines of a run. Not to be used from two event loops."""

    can_refuse = True
    """Connections can be refused, not only left without an answer."""
    can_slow = True
    """Bytes can be delayed, sliced, cut off in the middle."""

    def __init__(self, nodes: Iterable[str], clients: Iterable[str], *, peers: bool = True) -> None:
        """``peers``: there are lines between the nodes."""
        self.nodes = tuple(nodes)
        self.clients = tuple(clients)
        self._peers = peers

    def peer_lines(self) -> Iterator[str]:
        return (f"{a}>{b}" for a in self.nodes for b in self.nodes if a != b and self._peers)

    def client_lines(self, client: str = "", node: str = "") -> list[str]:
        """Of one client, or to one node, or all."""
        return [f"{c}>{n}" for c in self.clients for n in self.nodes if client in ("", c) and node in ("", n)]

    def between(self, some: Iterable[str], others: Iterable[str]) -> list[str]:
        """The lines between two groups of nodes, both ways. Raises NoLines."""
        if not self._peers:
            raise NoLines("no lines between the nodes go through proxies: name the peer address of each node")
        some, others = list(some), list(others)
        return [line for a in some for b in others for line in (f"{a}>{b}", f"{b}>{a}")]

    @abstractmethod
    def address(self, line: str) -> str:
        """host:port at which the line is entered."""

    @abstractmethod
    async def open(self, upstream: Callable[[str, str], str]) -> None:
        """Make the lines. ``upstream(from, to)`` is the real address at the end of one."""

    async def prepare(self, node: str) -> Place | None:
        """A node is to come: where it is to run, if not beside all others."""
        return None

    @abstractmethod
    async def join(self, node: str, upstream: Callable[[str, str], str]) -> None:
        """Make the lines of a node that has been prepared: to and from all others, and of all clients."""

    def leave(self, node: str) -> None:
        """A node is gone: its lines are nobody's to strike any more, and stay as they are until the end."""
        self.nodes = tuple(name for name in self.nodes if name != node)

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def silence(self, fault: str, lines: Iterable[str], streams: Iterable[Stream] = BOTH) -> None:
        """What is sent is lost, and nobody is told. ``downstream`` alone: only answers to a client are."""

    @abstractmethod
    async def heal(self, fault: str, unread: Collection[str] = ()) -> None:
        """Undo what this fault has done to lines, save refusals. ``unread``: lines whose receiver may not
        read now."""

    @abstractmethod
    async def heal_everything(self) -> list[str]:
        """Every line is as at the beginning. Names the lines that were not healed before."""

    def are_free(self, lines: Iterable[str], fault: str = "") -> bool:
        """``toxic`` can be used on these lines."""
        return self.can_slow

    async def refuse(self, lines: Iterable[str]) -> None:
        """Connections are closed, and new ones refused. Raises NoLines."""
        raise NoLines("these lines can't be refused")

    async def allow(self, lines: Iterable[str]) -> None:
        """Undo one ``refuse`` of these lines, if any."""
        if list(lines):
            raise NoLines("these lines can't be refused")

    async def toxic(
        self,
        fault: str,
        lines: Iterable[str],
        type_: str,
        streams: Iterable[Stream] = BOTH,
        **attributes: int,
    ) -> None:
        """Something of Toxiproxy's list is done to these lines. Raises NoLines."""
        raise NoLines("these lines have no toxics")
