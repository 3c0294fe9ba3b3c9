"""`GET /v1/stream`: everything over one WebSocket.

A client sends frames of operations (stream_frames.py) and gets the answers as they come, those that come
together in one frame. The path is short: the operations of a frame are submitted as one, and nothing is made
per operation but its request and its answer. An acquire that waits has a task of its own.

Nothing is taken in faster than it is answered. With as many operations under way as a connection may have, or
answers that the client does not take, no more is read from it, and TCP tells it so. Acquires that wait are
not counted there, since renewals must get past them; they have a bound of their own.

A frame that is no array of triples ends the connection, since nobody knows what was asked; anything wrong
with one operation is its own answer.
"""

import asyncio
from typing import Any, Final

from aiohttp import WSCloseCode, WSMsgType, web

from tenure_cluster.api import authorize, stream_frames
from tenure_cluster.api.answer import Answer, refusal
from tenure_cluster.api.discretion import shown
from tenure_cluster.api.exchange import RECHECK_S, Exchange, LongEndpoint, Outflow
from tenure_cluster.api.fairness import HELD_BACK, cost_of
from tenure_cluster.api.limits import STREAM_HELD_MAX, STREAM_WAITS_MAX, STREAM_WATCHES_MAX
from tenure_cluster.api.port import LeasePort
from tenure_cluster.api.problems import invalid
from tenure_cluster.api.routes import Route
from tenure_cluster.api.stream_frames import Unwatch, UnwatchedReply, WatchingReply
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.frames import Frame
from tenure_cluster.service.requests import AcquireRequest, EventsRequest, Request
from tenure_cluster.service.watch import Subscription

PING_S: Final = 20.0
"""Period in which a client that says nothing is asked whether it is there."""

CLOSE_TIMEOUT_S: Final = 2.0
"""How long a client has to close its side."""

REASON_BYTES_MAX: Final = 123
"""Longest reason that the WebSocket protocol has room for when it closes."""

CLOSE_CODES: Final = {
    "invalid": WSCloseCode.INVALID_TEXT,
    "unsupported_media_type": WSCloseCode.UNSUPPORTED_DATA,
    "out_of_range": WSCloseCode.POLICY_VIOLATION,
    "unauthenticated": WSCloseCode.POLICY_VIOLATION,
}
"""What a connection is closed with after a frame that can't be taken, by the code of its problem. After a
frame that is too large it is 1009, without a problem."""

_PING: Final = b"\x89\x00"


class Stream:
    """One connection."""

    def __init__(self, exchange: Exchange, service: LeasePort, socket: web.WebSocketResponse) -> None:
        self._service = service
        self._socket = socket
        self._exchange = exchange
        self._caller = exchange.caller
        self._flow = Outflow(exchange)
        self._connection = exchange.connection
        self._in_flight_max = exchange.limits.stream_in_flight_max
        self._loop = asyncio.get_running_loop()
        self._answers: list[tuple[int, int, Any]] = []
        self._flush: asyncio.Handle | None = None
        self._in_flight = 0
        self._fairness = exchange.fairness
        self._refused: list[tuple[int, Problem]] = []
        self._held: dict[asyncio.TimerHandle, list[tuple[int, Problem]]] = {}
        self._held_back = 0
        self._frames: dict[Frame, None] = {}
        self._waits: dict[asyncio.Task[None], None] = {}
        self._watches: dict[int, Subscription] = {}
        self._blocked = False
        self._room: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._pings: asyncio.TimerHandle | None = None
        self._recheck: asyncio.TimerHandle | None = None
        self._heard = True
        self._closing: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Serve until one of the two sides closes."""
        self._connection.on_writable = self._writable
        self._pings = self._loop.call_later(PING_S, self._ping)
        if self._exchange.gate is not None:
            self._recheck = self._loop.call_later(RECHECK_S, self._check_again)
        socket = self._socket
        try:
            wrong: Problem | None = None
            while wrong is None and not socket.closed:
                if self._full:
                    await self._has_room()
                message = await socket.receive()
                self._heard = True
                if message.type is WSMsgType.BINARY:
                    wrong = await self._take(message.data)
                elif message.type is WSMsgType.PING:
                    await socket.pong(message.data)
                elif message.type is WSMsgType.TEXT:
                    wrong = Problem("unsupported_media_type", "Frames are binary messages of MessagePack")
                elif message.type is WSMsgType.ERROR:  # it is closed already
                    self._connection.refused("frames of streams refused")
                    break
                elif message.type is not WSMsgType.PONG:
                    break
            if wrong is not None:
                await self._all_answered()
                await self._refuse(wrong)
            if self._closing is not None:
                await self._closing
        finally:
            self._leave()

    def going_away(self, hint: str) -> None:
        """The node stops: answer what is answered, and close with the URL of a node to go to."""
        if self._closing is None and not self._socket.closed:
            for timer in list(self._held):
                self._tell_held(timer)
            self._flush_answers()
            self._closing = self._loop.create_task(
                self._socket.close(code=WSCloseCode.GOING_AWAY, message=hint.encode()[:REASON_BYTES_MAX])
            )

    # What comes in

    async def _take(self, data: bytes) -> Problem | None:
        """Have the operations of a frame executed; a Problem if the frame is none."""
        triples = stream_frames.decode(data)
        if isinstance(triples, Problem):
            return triples
        if self._fairness is not None:
            await self._fairness.turn(self._caller.tenant, cost_of(len(triples)))
        if not self._exchange.still_allowed():
            authorize.tell(self._service, authorize.UNAUTHENTICATED, "stream", self._caller)
            for number, _, _ in triples:
                self._answer(number, authorize.UNAUTHENTICATED)
            return authorize.UNAUTHENTICATED
        numbers: list[int] = []
        operations: list[tuple[str, Request]] = []
        for number, operation, body in triples:
            request = stream_frames.decode_body(operation, body)
            if isinstance(request, Problem):
                self._answer(number, request)
            elif (refused := authorize.refusal(self._service, self._caller, operation, request)) is not None:
                self._settle(number, refused)
            elif type(request) is EventsRequest:
                self._watch(number, request)
            elif type(request) is Unwatch:
                self._unwatch(number, request)
            elif type(request) is AcquireRequest and request.wait_ms > 0:
                self._wait(number, request)
            else:
                numbers.append(number)
                operations.append((operation, request))
        if operations:
            self._submit(numbers, operations)
        return None

    def _submit(self, numbers: list[int], operations: list[tuple[str, Request]]) -> None:
        left = len(numbers)
        frame: Frame | None = None

        def answered(place: int, outcome: Any) -> None:
            nonlocal left, frame
            left -= 1
            self._in_flight -= 1
            if not left and frame is not None:
                self._frames.pop(frame, None)
                frame = None  # each of the two knows the other: nothing of a frame is left to the collector
            self._settle(numbers[place], outcome)

        self._in_flight += left
        caller = self._caller
        frame = self._service.submit(caller.tenant, operations, answered, caller.credential_id, caller.origin)
        if left:
            self._frames[frame] = None
        else:
            frame = None

    def _wait(self, number: int, request: AcquireRequest) -> None:
        if len(self._waits) >= STREAM_WAITS_MAX:
            detail = f"{STREAM_WAITS_MAX} acquires wait on this stream, the most it takes"
            self._answer(number, Problem("overloaded", detail))
            return

        async def wait() -> None:
            caller = self._caller
            self._settle(
                number,
                await self._service.call(
                    "acquire", caller.tenant, request, caller.credential_id, caller.origin
                ),
            )

        task = self._loop.create_task(wait())
        self._waits[task] = None
        task.add_done_callback(lambda task: self._waits.pop(task, None))

    def _watch(self, number: int, request: EventsRequest) -> None:
        if number in self._watches:
            self._answer(number, invalid(f"A watch of the id {number} is open", "$.id"))
            return
        if len(self._watches) >= STREAM_WATCHES_MAX:
            detail = f"{STREAM_WATCHES_MAX} watches are open on this stream, the most it takes"
            self._answer(number, Problem("overloaded", detail))
            return

        def write(told: tuple[int, list[bytes]] | None) -> bool:
            if told is not None:
                self._flush_answers()
                self._write(stream_frames.encode_watched(number, *told))
            return not self._blocked

        watch = self._service.watch(
            self._caller.tenant, request, stream_frames.WATCH, write, lambda: self._watch_ended(number)
        )
        if isinstance(watch, Problem):
            self._settle(number, watch)
        else:
            self._watches[number] = watch
            self._answer(number, WatchingReply(watch=number))

    def _watch_ended(self, number: int) -> None:
        self._watches.pop(number, None)

    def _unwatch(self, number: int, request: Unwatch) -> None:
        watch = self._watches.pop(request.watch, None)
        if watch is None:
            self._answer(number, invalid(f"No watch of the id {request.watch} is open", "$.watch"))
            return
        watch.close()
        self._answer(number, UnwatchedReply())

    # What goes out

    def _settle(self, number: int, outcome: Any) -> None:
        """Answer an operation, at once or a little later if it was refused for want of quota."""
        outcome = shown(self._caller, outcome)
        if self._fairness is None or type(outcome) is not Problem or outcome.code not in HELD_BACK:
            self._answer(number, outcome)
            return
        if not self._refused:
            self._loop.call_soon(self._hold_back)
        self._refused.append((number, outcome))

    def _hold_back(self) -> None:
        assert self._fairness is not None
        refused, self._refused = self._refused, []
        hold_s = self._fairness.patience.hold_s(self._caller.tenant, len(refused))
        timer: asyncio.TimerHandle = self._loop.call_later(hold_s, lambda: self._tell_held(timer))
        self._held[timer] = refused
        self._held_back += len(refused)

    def _tell_held(self, timer: asyncio.TimerHandle) -> None:
        refused = self._held.pop(timer)
        timer.cancel()
        self._held_back -= len(refused)
        for number, problem in refused:
            self._answer(number, problem)

    @property
    def _full(self) -> bool:
        """Whether nothing more is to be read for the present."""
        return self._blocked or self._in_flight >= self._in_flight_max or self._held_back >= STREAM_HELD_MAX

    def _answer(self, number: int, outcome: Any) -> None:
        self._answers.append(stream_frames.answer(number, outcome))
        if self._flush is None:
            self._flush = self._loop.call_soon(self._flush_answers)

    def _flush_answers(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._answers:
            answers, self._answers = self._answers, []
            self._write(stream_frames.encode(answers))
        if self._room is not None and not self._full:
            self._make_room()
        if self._drained is not None and not self._in_flight and not self._drained.done():
            self._drained.set_result(None)

    async def _all_answered(self) -> None:
        """Wait until all under way have their answers, which takes no longer than a call may: whoever's
        connection is closed before can't know what has become of them. Acquires that wait are not among
        them, since they can be asked for again."""
        while self._in_flight and not self._socket.closed:
            if self._drained is None or self._drained.done():
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def _write(self, payload: bytes) -> None:
        if not self._flow.write(stream_frames.binary_message(payload)):
            self._blocked = True

    async def _refuse(self, problem: Problem) -> None:
        """Say what is wrong with a frame, and close."""
        self._connection.refused("frames of streams refused")
        self._answer(0, problem)
        self._flush_answers()
        code = CLOSE_CODES.get(problem.code, WSCloseCode.INVALID_TEXT)
        await self._socket.close(code=code, message=problem.detail.encode()[:REASON_BYTES_MAX])

    def _writable(self) -> None:
        """The client has taken what it was written."""
        self._flow.takes_more()
        self._blocked = False
        for watch in list(self._watches.values()):
            watch.resume()
        if not self._full:
            self._make_room()

    async def _has_room(self) -> None:
        self._room = self._loop.create_future()
        try:
            await self._room
        finally:
            self._room = None

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _ping(self) -> None:
        if not self._heard and not self._blocked and self._room is None:
            self._connection.abort()
            return
        self._heard = False
        self._pings = self._loop.call_later(PING_S, self._ping)
        if not self._blocked and not self._flow.write(_PING):
            self._blocked = True

    def _check_again(self) -> None:
        """Close when the credential is no longer valid, though the client asks for nothing."""
        if self._exchange.still_allowed():
            self._recheck = self._loop.call_later(RECHECK_S, self._check_again)
        elif self._closing is None and not self._socket.closed:
            for watch in self._watches.values():
                watch.close()
            self._closing = self._loop.create_task(self._close_for_want_of_credential())

    async def _close_for_want_of_credential(self) -> bool:
        await self._all_answered()
        message = authorize.UNAUTHENTICATED.detail.encode()
        return await self._socket.close(code=WSCloseCode.POLICY_VIOLATION, message=message)

    def _leave(self) -> None:
        """The connection is gone."""
        self._connection.on_writable = None
        self._flow.close()
        if self._drained is not None:
            self._drained.cancel()
        for timer in (self._pings, self._flush, self._recheck, *self._held):
            if timer is not None:
                timer.cancel()
        for watch in self._watches.values():
            watch.close()
        for frame in self._frames:
            self._service.leave(frame)
        for task in list(self._waits):
            task.cancel()


class StreamEndpoint(LongEndpoint):
    """Upgrades connections to streams, and knows those that are open."""

    def __init__(self, route: Route, service: LeasePort, streams: dict[Stream, None]) -> None:
        super().__init__(route)
        self._service = service
        self._streams = streams

    async def serve(self, exchange: Exchange, request: Any) -> Answer | web.StreamResponse:
        asked = exchange.request
        socket = web.WebSocketResponse(
            timeout=CLOSE_TIMEOUT_S,
            autoping=False,
            compress=False,
            max_msg_size=exchange.limits.stream_frame_bytes_max,
        )
        if asked.method == "HEAD" or not socket.can_prepare(asked):
            problem = invalid("This call is a handshake of the WebSocket protocol, version 13", "$")
            return refusal(problem, exchange.answer_format, b"Upgrade: websocket\r\n")
        origin = asked.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != asked.headers.get("Host"):
            detail = "A page of another origin can't open a stream"
            return refusal(Problem("forbidden", detail), exchange.answer_format)
        socket.headers["X-Request-Id"] = exchange.request_id.decode()
        if (url := self._service.leader_url) is not None:
            socket.headers["X-Tenure-Leader"] = url
        await socket.prepare(asked)
        stream = Stream(exchange, self._service, socket)
        self._streams[stream] = None
        try:
            await stream.run()
        finally:
            del self._streams[stream]
        return socket
