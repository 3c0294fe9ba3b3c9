"""What the services of two nodes say to one another over the peer links: MessagePack arrays of fixed shapes.

A question carries operations as they were asked, unstamped, with the term of the leader that it is meant for.
The answer carries each operation's outcome: the kind says which, `name` the type of a reply.
"""

from collections.abc import Collection
from typing import Final, TypeAlias, cast, get_args

import msgspec

from tenure_cluster.service.asks import Ask, NoAnswer, Outcome
from tenure_cluster.service.errors import CODES, Problem
from tenure_cluster.service.replies import OwnBody, Reply
from tenure_cluster.service.requests import ALL_OPERATIONS, Request

OPERATIONS_MAX: Final = 1_000
"""Most operations of one question: a whole batch."""

ANSWERS_BYTES_MAX: Final = 4 << 20
"""After so much, what several that only look were answered is too much for one message."""


class AskedItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One operation. `body` is its request, encoded."""

    operation: str
    remember: bool
    body: bytes


class Asked(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Please execute these, if you lead in `term`. `number` is the asker's, for the answer."""

    number: int
    term: int
    tenant: str
    items: list[AskedItem]
    actor: str = ""
    origin: str = ""
    request_id: bytes = b""
    """Of the HTTP request that they came with, for the lines of the leader's log."""
    traceparent: str = ""
    """W3C Trace Context's, where the request is traced."""


class AnsweredItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one operation ended: `kind` 0 not executed, 1 unknown, 2 problem, 3 reply."""

    kind: int
    name: str
    body: bytes


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """What became of the question `number`, operation by operation."""

    number: int
    items: list[AnsweredItem]


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Nobody waits for the answer to the question `number` any more: claim nothing for it."""

    number: int


class Describe(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Please say how you are. `number` is the asker's, for the answer."""

    number: int


class Described(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The answer to the question `number`: an OwnBody, encoded, to which later versions may add fields."""

    number: int
    body: bytes


Message: TypeAlias = Asked | Answered | Forgotten | Describe | Described

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)
_requests: Final = {name: msgspec.msgpack.Decoder(shape) for name, shape in ALL_OPERATIONS.items()}
_replies: Final = {shape.__name__: msgspec.msgpack.Decoder(shape) for shape in get_args(Reply)}
_own: Final = msgspec.msgpack.Decoder(OwnBody)
_problem: Final = msgspec.msgpack.Decoder(Problem)
_BARE: Final = {kind: AnsweredItem(kind.value, "", b"") for kind in NoAnswer}

_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError)
"""What decoders raise; the latter for what is nested too deeply, also where nobody wants to know it."""


class BadMessage(Exception):
    """A peer said something that no service of this version says."""


def encode_asked(number: int, term: int, tenant: str, asks: list[Ask], traceparent: str = "") -> bytes:
    items = [AskedItem(ask.operation, ask.remember, _encoder.encode(ask.request)) for ask in asks]
    first = asks[0]
    return _encoder.encode(
        Asked(number, term, tenant, items, first.actor, first.origin, first.request_id, traceparent)
    )


def encode_answered(number: int, outcomes: list[Outcome], looks: Collection[int] = ()) -> bytes:
    """Of those places that only look, what is beyond ANSWERS_BYTES_MAX is told as not executed: it can be
    asked again alone."""
    items, size = [], 0
    for place, outcome in enumerate(outcomes):
        told = outcome if size < ANSWERS_BYTES_MAX or place not in looks else NoAnswer.NOT_EXECUTED
        item = _answered_item(told)
        items.append(item)
        size += len(item.body)
    return _encoder.encode(Answered(number, items))


def encode_forgotten(number: int) -> bytes:
    return _encoder.encode(Forgotten(number))


def encode_describe(number: int) -> bytes:
    return _encoder.encode(Describe(number))


def encode_described(number: int, own: OwnBody) -> bytes:
    return _encoder.encode(Described(number, _encoder.encode(own)))


def _answered_item(outcome: Outcome) -> AnsweredItem:
    if isinstance(outcome, NoAnswer):
        return _BARE[outcome]
    if isinstance(outcome, Problem):
        return AnsweredItem(2, "", _encoder.encode(outcome))
    return AnsweredItem(3, type(outcome).__name__, _encoder.encode(outcome))


def decode(payload: bytes) -> Message:
    """Raises BadMessage."""
    try:
        return _decoder.decode(payload)
    except _UNREADABLE as error:
        raise BadMessage(str(error)) from None


def own_of(message: Described) -> OwnBody:
    """Raises BadMessage."""
    try:
        return _own.decode(message.body)
    except _UNREADABLE as error:
        raise BadMessage(str(error)) from None


def asks_of(message: Asked) -> list[Ask]:
    """Raises BadMessage."""
    if not 0 < len(message.items) <= OPERATIONS_MAX:
        raise BadMessage(f"{len(message.items)} operations")
    return [
        Ask(
            item.operation,
            message.tenant,
            _request(item),
            remember=item.remember,
            actor=message.actor,
            origin=message.origin,
        )
        for item in message.items
    ]


def _request(item: AskedItem) -> Request:
    decoder = _requests.get(item.operation)
    if decoder is None:
        raise BadMessage(f"operation {item.operation!r}")
    try:
        request = decoder.decode(item.body)
    except _UNREADABLE as error:
        raise BadMessage(f"{item.operation}: {error}") from None
    return cast(Request, request)


def outcomes_of(message: Answered) -> list[Outcome]:
    """Raises BadMessage."""
    try:
        return [_outcome(item) for item in message.items]
    except (*_UNREADABLE, KeyError, ValueError) as error:
        raise BadMessage(str(error)) from None


def _outcome(item: AnsweredItem) -> Outcome:
    if item.kind == 3:
        reply: Reply = _replies[item.name].decode(item.body)
        return reply
    if item.kind == 2:
        problem = _problem.decode(item.body)
        if problem.code not in CODES:
            raise BadMessage(f"code {problem.code!r}")
        return problem
    return NoAnswer(item.kind)
