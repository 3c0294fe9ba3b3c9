"""Following what happens: one stream after another, without a gap that is not told.

Theory of operation. A stream of Server-Sent Events tells each event once, in the order of revisions, and the
same on every node. So whoever has seen the event of revision R goes on after R on any node, and this does so
whenever a stream ends, breaks or falls silent. Bookmarks move R on where nothing happens. What can't be
learned any more, because no node remembers it, is told as an event of the kind ``gap``: then look at the
state, and go on.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from tenure._calls import Calls
from tenure._http import NoAnswer, NotSent
from tenure._options import Streams
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
    """One watch, from ``after`` on; None begins now."""

    def __init__(self, calls: Calls, prefix: str, after: int | None) -> None:
        self._calls = calls
        self._prefix = prefix
        self._after = after
        self._began = False
        self._tried: set[str] = set()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Events, until the caller has enough. Raises what the cluster refuses for good."""
        http = self._calls.http
        if not isinstance(http, Streams):
            raise InvalidRequest(code="unsupported", detail="this transport has no streams")
        failures = 0
        while True:
            url = self._calls.endpoints.choose(self._calls.clock(), self._tried)
            if url is None:
                self._tried.clear()
                pause_s = min(AGAIN_MAX_S, AGAIN_MIN_S * 2 ** min(failures, 16))
                await self._calls.options.sleep(pause_s * (1 + random.random()) / 2)
                failures += 1
                continue
            try:
                async for event in self._one(http, url):
                    failures = 0
                    self._tried.clear()
                    if event is not None:
                        yield event
            except (NotSent, NoAnswer):
                self._calls.endpoints.failed(url, self._calls.clock())
            self._tried.add(url)

    async def _one(self, http: Streams, url: str) -> AsyncIterator[Event | None]:
        """What one stream tells, until it ends; None for a sign of life."""
        query: dict[str, Any] = {"prefix": self._prefix} if self._prefix else {}
        if self._after is not None:
            query["from"] = self._after
        if self._began and self._after is None:
            # The first stream broke before it had named a place: nobody knows what came in between.
            yield Event(revision=0, kind=EventKind.GAP, detail="the watch broke before it had begun")
        target = "/v1/events" + (f"?{urlencode(query)}" if query else "")
        reader = SseReader()
        async with http.stream(url + target, silence_max_s=SILENCE_MAX_S) as response:
            if response.status != 200:
                problem = read_problem(response.status, response.headers, await response.read())
                if problem.code == "compacted":
                    kept = problem.members.get("revision")
                    self._after = kept if isinstance(kept, int) else None
                    yield Event(revision=self._after or 0, kind=EventKind.GAP, detail=problem.detail)
                    return
                if problem.kind == "answered":
                    raise refusal("events", problem)
                raise NoAnswer(problem.detail)
            self._began = True
            yield None
            async for data in response.chunks():
                for place, kind, body in reader.feed(data):
                    if place.isdigit():
                        self._after = int(place)
                    if kind == "gap":
                        # Another node may remember more: ask there, and tell of a gap only if none does.
                        gap = msgspec.json.decode(body, type=dict[str, Any])
                        last = gap.get("last")
                        self._after = last if isinstance(last, int) else self._after
                        return
                    if kind == "shutting_down":
                        return
                    if kind in _NOTICES:
                        yield None
                        continue
                    yield msgspec.json.decode(body, type=Event)
