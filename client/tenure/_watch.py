"""Following what happens: one stream after another, without a gap that is not told.

Theory of operation. A stream of Server-Sent Events tells each event once, in the order of revisions, and the
same on every node. So whoever has seen the event of revision R goes on after R on any node, and this does so
whenever a stream ends, breaks or falls silent. Bookmarks move R on where nothing happens. What can't be
learned any more, because no node remembers it, is told as an event of the kind ``gap``: then look at the
state, and go on. A stream's ``leader_changed`` stays here: it has no revision, each node tells of what it
sees itself, and so a watch that moves from node to node would tell one change twice and another never.

None of this is an asynchronous generator, only what the caller iterates is one: a generator inside another
that is left without being closed would be closed by its loop while the outer one closes it, and be logged as
running already.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from tenure._calls import Calls
from tenure._http import NoAnswer, NotSent
from tenure._options import Opened, Streams
from tenure._problems import read_problem, refusal
from tenure.answers import Event, EventKind
from tenure.errors import InvalidRequest

SILENCE_MAX_S: Final = 20.0
"""A stream says something every few seconds. After this long it is taken for dead."""
AGAIN_MIN_S: Final = 0.05
AGAIN_MAX_S: Final = 2.0
LINE_BYTES_MAX: Final = 1 << 20

_NOTICES: Final = frozenset({"bookmark", "leader_changed", "shutting_down", "alive"})


class SseReader:
    """Server-Sent Events out of bytes as they come: (id, event, data) each."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, data: bytes) -> Iterator[tuple[str, str, str]]:
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise NoAnswer(f"a line of the stream is longer than {LINE_BYTES_MAX} bytes")
        for line in lines:
            text = line.rstrip(b"\r").decode(errors="replace")
            if text:
                name, _, value = text.partition(":")
                self._fields[name] = value.removeprefix(" ")
                continue
            fields, self._fields = self._fields, {}
            if "event" in fields:
                yield fields.get("id", ""), fields["event"], fields.get("data", "")


class Watch:
    """One watch, from ``after`` on; None begins now. For one task at a time, which closes it in the end."""

    def __init__(self, calls: Calls, prefix: str, after: int | None) -> None:
        self._calls = calls
        self._prefix = prefix
        self._after = after
        self._began = False
        self._tried: set[str] = set()
        self._failures = 0
        self._told: deque[Event] = deque()
        self._url = ""
        self._stream: AbstractAsyncContextManager[Opened] | None = None
        """The one that is open."""
        self._chunks: AsyncIterator[bytes] | None = None
        self._reader = SseReader()

    async def next(self) -> Event:
        """The next event. Raises what the cluster refuses for good. Cancelled, it skips nothing."""
        self._calls.check_usable()
        http = self._calls.http
        if not isinstance(http, Streams):
            raise InvalidRequest(code="unsupported", detail="this transport has no streams")
        while not self._told:
            if self._chunks is None:
                await self._begin(http)
            else:
                await self._in_stream(self._go_on(self._chunks))
        return self._told.popleft()

    async def close(self) -> None:
        """End it, and its connection."""
        await self._leave(None)

    async def _begin(self, http: Streams) -> None:
        """Open a stream on another node, or let some time pass if all have been tried."""
        self._calls.check_usable()
        url = self._calls.endpoints.choose(self._calls.clock(), self._tried)
        if url is None:
            self._tried.clear()
            pause_s = min(AGAIN_MAX_S, AGAIN_MIN_S * 2 ** min(self._failures, 16))
            self._failures += 1
            await self._calls.options.sleep(pause_s * (1 + random.random()) / 2)
            return
        query: dict[str, Any] = {"prefix": self._prefix} if self._prefix else {}
        if self._after is not None:
            query["from"] = self._after
        target = "/v1/events" + (f"?{urlencode(query)}" if query else "")
        stream = http.stream(url + target, silence_max_s=SILENCE_MAX_S)
        self._url = url
        try:
            opened = await stream.__aenter__()
        except (NotSent, NoAnswer):
            self._failed()
            return
        self._stream = stream
        await self._in_stream(self._opened(opened))

    async def _opened(self, opened: Opened) -> None:
        if opened.status != 200:
            problem = read_problem(opened.status, opened.headers, await opened.read())
            if problem.code == "compacted":
                kept = problem.members.get("revision")
                self._after = kept if isinstance(kept, int) else None
                self._tell(Event(revision=self._after or 0, kind=EventKind.GAP, detail=problem.detail))
                await self._leave(None)
                return
            if problem.kind == "answered":
                raise refusal("events", problem)
            raise NoAnswer(problem.detail)
        if self._began and self._after is None:
            # The first stream broke before it had named a place: nobody knows what came in between.
            self._tell(Event(revision=0, kind=EventKind.GAP, detail="the watch broke before it had begun"))
        self._began = True
        self._alive()
        self._reader = SseReader()
        self._chunks = opened.chunks()

    async def _go_on(self, chunks: AsyncIterator[bytes]) -> None:
        try:
            data = await anext(chunks)
        except StopAsyncIteration:
            await self._leave(None)
            return
        for place, kind, body in self._reader.feed(data):
            if place.isdigit():
                self._after = int(place)
            if kind == "gap":
                # Another node may remember more: ask there, and tell of a gap only if none does.
                gap = msgspec.json.decode(body, type=dict[str, Any])
                last = gap.get("last")
                self._after = last if isinstance(last, int) else self._after
            if kind in ("gap", "shutting_down"):
                await self._leave(None)
                return
            if kind in _NOTICES:
                self._alive()
            else:
                self._tell(msgspec.json.decode(body, type=Event))

    async def _in_stream(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it, and leave the stream if it fails, which is tried again if it is for want of an answer."""
        try:
            try:
                await work
            except BaseException as error:
                await self._leave(error)
                raise
        except (NotSent, NoAnswer):
            self._failed()

    async def _leave(self, error: BaseException | None) -> None:
        """Close the stream that is open, if any, because of the error, if any. Raises what that means."""
        stream, self._stream, self._chunks = self._stream, None, None
        if stream is not None:
            self._tried.add(self._url)
            trace = None if error is None else error.__traceback__
            await stream.__aexit__(None if error is None else type(error), error, trace)

    def _failed(self) -> None:
        self._tried.add(self._url)
        self._calls.endpoints.failed(self._url, self._calls.clock())

    def _tell(self, event: Event) -> None:
        self._told.append(event)
        self._alive()

    def _alive(self) -> None:
        self._failures = 0
        self._tried.clear()
