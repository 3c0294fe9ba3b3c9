"""All connections of a live run, each through a proxy of its own: one for each directed pair of nodes, and
one for each client's way to each node.

On a line between nodes, frames flow from the one that dials to the
one that accepts, so cutting ``n1>n2`` takes from n1 the means to be heard by n2 and nothing else.

Several faults can be on one line at once: each works by toxics of its own name. A line is refused while any
fault wants it refused. But only one of them may hold bytes up. Toxiproxy hands bytes from toxic to toxic, and
takes one away by interrupting it; one that can't get rid of its bytes, since the next toxic or the receiver
does not take them, can't be interrupted. If the connection closes meanwhile, that lasts for ever, and all
calls of the server hang behind it. For the same reason the connections of a line whose receiver may not read
are closed before anything is taken away.
"""

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

from tenure_chaos.live.lines import BOTH, Lines, NoLines, Stream
from tenure_chaos.live.ports import free_ports
from tenure_chaos.live.proxies.toxiproxy import NoSuchProxy, Proxy, ProxyError, Server, ServerStuck

T = TypeVar("T")

UNSTUCK_S: Final = 30.0
"""How long a toxic may resist being taken away. Longer than any fault lasts."""

CLOSING_S: Final = 0.1
"""How long the server is given to forget the connections of a line that was just taken down."""


class Network(Lines):
    """Lines through proxies."""

    def __init__(
        self, server: Server, nodes: Iterable[str], clients: Iterable[str], *, peers: bool = True
    ) -> None:
        super().__init__(nodes, clients, peers=peers)
        self.server = server
        self._listen: dict[str, str] = {}
        self._upstream: dict[str, str] = {}
        self._refusals: Counter[str] = Counter()
        self._slowed: dict[str, str] = {}
        """By which fault bytes are held up on a line."""
        self._turn = asyncio.Lock()

    # -- lines

    def address(self, line: str) -> str:
        """Where the line is entered."""
        return self._listen[line]

    def addresses(self) -> dict[str, str]:
        """Of all lines."""
        return dict(self._listen)

    async def open(self, upstream: Callable[[str, str], str], *, first_port: int | None = None) -> None:
        """Make all proxies. ``upstream(from, to)`` is the real address at the end of a line. Ports are free
        ones, or those from ``first_port`` on: first the clients' lines, then those between the nodes."""
        lines = [*self.client_lines(), *self.peer_lines()]
        ports = free_ports(len(lines)) if first_port is None else range(first_port, first_port + len(lines))
        await self._open(lines, ports, upstream)

    async def join(self, node: str, upstream: Callable[[str, str], str]) -> None:
        self.nodes = (*self.nodes, node)
        lines = [line for line in (*self.client_lines(), *self.peer_lines()) if line not in self._listen]
        await self._open(lines, free_ports(len(lines)), upstream)

    async def _open(
        self, lines: Sequence[str], ports: Sequence[int], upstream: Callable[[str, str], str]
    ) -> None:
        wanted = []
        for line, port in zip(lines, ports, strict=True):
            a, _, b = line.partition(">")
            self._upstream[line] = upstream(a, b)
            self._listen[line] = f"127.0.0.1:{port}"
            wanted.append(Proxy(line, self._listen[line], self._upstream[line], True))
        await self._call(self.server.populate, wanted)

    async def close(self) -> None:
        """Take them away; a server that is gone has taken them along."""
        try:
            for line in self._listen:
                await self._call(self.server.delete, line)
        except ProxyError:
            pass

    # -- what can be done to lines

    async def toxic(
        self,
        fault: str,
        lines: Iterable[str],
        type_: str,
        streams: Iterable[Stream] = BOTH,
        **attributes: int,
    ) -> None:
        """The fault's toxic on these lines. What can't be done is undone by ``heal``. Raises NoLines if
        another fault holds bytes up there."""
        lines, streams = list(lines), tuple(streams)
        if type_ != "timeout":
            if not self.are_free(lines, fault):
                by = sorted({self._slowed[line] for line in lines if line in self._slowed})
                raise NoLines(
                    f"{', '.join(by)} holds bytes up on some of {', '.join(lines)}; heal that first"
                )
            self._slowed.update(dict.fromkeys(lines, fault))
        for line in lines:
            for stream in streams:
                await self._call(
                    self.server.add_toxic,
                    line,
                    type_,
                    name=f"{fault} {type_} {stream}",
                    stream=stream,
                    **attributes,
                )

    async def silence(self, fault: str, lines: Iterable[str], streams: Iterable[Stream] = BOTH) -> None:
        """What is sent is lost, and nobody is told: connections stay, new ones come about, nothing comes."""
        await self.toxic(fault, lines, "timeout", streams, timeout=0)

    async def refuse(self, lines: Iterable[str]) -> None:
        """Connections are closed, and new ones refused."""
        for line in lines:
            self._refusals[line] += 1
            await self._insist(self.server.update, line, enabled=False)

    async def allow(self, lines: Iterable[str]) -> None:
        """Undo one ``refuse`` of these lines."""
        for line in lines:
            self._refusals[line] -= 1
            if self._refusals[line] <= 0:
                del self._refusals[line]
                await self._insist(self.server.update, line, enabled=True)

    def are_free(self, lines: Iterable[str], fault: str = "") -> bool:
        """No other fault holds bytes up on any of these lines."""
        return all(self._slowed.get(line, fault) == fault for line in lines)

    async def heal(self, fault: str, unread: Collection[str] = ()) -> None:
        """Take this fault's toxics away. ``unread``: lines whose receiver may not read now, as of a paused
        process; their connections are closed first."""
        for line, proxy in (await self._insist(self.server.proxies)).items():
            toxics = [toxic.name for toxic in proxy.toxics if toxic.name.startswith(f"{fault} ")]
            if toxics and line in unread:
                await self.refuse([line])
                await asyncio.sleep(CLOSING_S)
            for toxic in toxics:
                await self._remove(line, toxic)
            if toxics and line in unread:
                await self.allow([line])
        for line in [line for line, by in self._slowed.items() if by == fault]:
            del self._slowed[line]

    async def _remove(self, line: str, toxic: str) -> None:
        """A connection whose receiver was paused a moment ago may hold the server up until it reads again.
        Taking the line down meanwhile would make that last for ever, so it is done only when that has not
        helped for longer than any fault lasts. Raises ServerStuck if nothing helps."""
        try:
            await self._insist(self.server.remove_toxic, line, toxic)
        except NoSuchProxy:
            return
        except (ProxyError, ServerStuck):
            await self._make_anew(line)

    async def _make_anew(self, line: str) -> None:
        """Without toxics, and without the connections that were there."""
        with contextlib.suppress(NoSuchProxy):
            await self._insist(self.server.delete, line)
        await self._insist(self.server.create, line, self._upstream[line], self._listen[line])
        if self._refusals[line] > 0:
            await self._insist(self.server.update, line, enabled=False)

    async def _insist(self, function: Callable[..., T], *given: Any, **named: Any) -> T:
        """A call that undoes something, or on which undoing rests: again and again if the server refuses it,
        for the cause may pass. Raises ProxyError in the end."""
        deadline = time.monotonic() + UNSTUCK_S
        while True:
            try:
                return await self._call(function, *given, **named)
            except NoSuchProxy:
                raise
            except ProxyError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(CLOSING_S)

    async def heal_everything(self) -> list[str]:
        """Every line is as at the beginning. Names the lines that were not healed before."""
        self._refusals.clear()
        self._slowed.clear()
        proxies = await self._call(self.server.proxies)
        sick = [line for line in self._listen if not _is_healthy(proxies.get(line))]
        for line in sick:
            await self._make_anew(line)
        return sick

    async def _call(self, function: Callable[..., T], *given: Any, **named: Any) -> T:
        """The wrapper blocks; one call at a time."""
        async with self._turn:
            work = asyncio.ensure_future(asyncio.to_thread(functools.partial(function, *given, **named)))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                # What was asked for comes about all the same, and must not come after what is asked next.
                await asyncio.wait((work,))
                raise


def _is_healthy(proxy: Proxy | None) -> bool:
    return proxy is not None and proxy.enabled and not proxy.toxics
