"""Frames of a stream: MessagePack arrays of triples, and how they are decoded and encoded.

    client   [[id, op, body], …]       id is the client's own, 1 to 2**53 - 1
    server   [[id, status, body], …]   one for each operation, in no particular order; id 0 for events

``op`` is an operation of the service, ``watch`` or ``unwatch``; ``body`` is that of the same call over HTTP,
and so are ``status`` and the answer's body: a reply, or a problem document. Where HTTP has a ``Retry-After``
header, the document has ``retry_after_s``.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tenure_cluster.api import problems
from tenure_cluster.api.codec import fault
from tenure_cluster.api.limits import OPS_PER_BATCH_MAX
from tenure_cluster.api.problems import invalid
from tenure_cluster.api.routes import ROUTES
from tenure_cluster.lease.events import Event
from tenure_cluster.service import requests
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.watch_messages import Notice, event_body

ID_MAX: Final = 2**53 - 1

Triple: TypeAlias = tuple[int, str, msgspec.Raw]


class Unwatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``watch`` is the id of the operation that began it."""

    watch: int


class WatchingReply(msgspec.Struct, frozen=True):
    """Events follow with id 0 and this ``watch`` in their bodies."""

    watch: int
    status: Literal["watching"] = "watching"


class UnwatchedReply(msgspec.Struct, frozen=True):
    status: Literal["unwatched"] = "unwatched"


_frame = msgspec.msgpack.Decoder(list[Triple])
_encoder = msgspec.msgpack.Encoder()
_bodies: Final = {
    name: msgspec.msgpack.Decoder(shape)
    for name, shape in {
        **requests.OPERATIONS,
        "watch": requests.EventsRequest,
        "unwatch": Unwatch,
    }.items()
}
OPERATIONS: Final = tuple(sorted(_bodies))

STATUSES: Final[dict[type, int]] = {
    **{reply: status for route in ROUTES for status, replies in route.replies.items() for reply in replies},
    WatchingReply: 200,
    UnwatchedReply: 200,
}
"""HTTP status of each type of reply."""


def decode(data: bytes) -> list[Triple] | Problem:
    """The triples of a client's frame."""
    try:
        triples = _frame.decode(data)
    except msgspec.ValidationError as error:
        return fault(str(error))
    except (msgspec.DecodeError, RecursionError) as error:
        return invalid(f"The frame is not MessagePack: {error}", "$")
    if len(triples) > OPS_PER_BATCH_MAX:
        detail = f"A frame holds at most {OPS_PER_BATCH_MAX} operations; this one has {len(triples)}"
        return Problem("out_of_range", detail, {"path": "$", "max": OPS_PER_BATCH_MAX})
    for place, triple in enumerate(triples):
        if not 0 < triple[0] <= ID_MAX:
            return invalid(f"An id is a number from 1 to {ID_MAX}", f"$[{place}][0]")
    return triples


def decode_body(operation: str, body: msgspec.Raw) -> Any | Problem:
    """The request of one triple."""
    decoder = _bodies.get(operation)
    if decoder is None:
        shown = operation[:50].encode("ascii", "backslashreplace").decode()
        return invalid(f"There is no operation {shown!r}; there are {', '.join(OPERATIONS)}", "$.op")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        return fault(str(error))
    except (msgspec.DecodeError, RecursionError) as error:
        return invalid(f"The body is not MessagePack: {error}", "$")


def answer(number: int, outcome: Any) -> tuple[int, int, Any]:
    """The triple of an answer: a reply or a Problem."""
    if type(outcome) is not Problem:
        return number, STATUSES[type(outcome)], outcome
    document = problems.document(outcome)
    if (retry_after_s := problems.retry_after_s(outcome)) is not None:
        document = {**document, "retry_after_s": retry_after_s}
    return number, outcome.status, document


def encode(triples: Sequence[tuple[int, int, Any]]) -> bytes:
    return _encoder.encode(triples)


def binary_message(payload: bytes) -> bytes:
    """The payload as one unmasked binary message of the WebSocket protocol, as a server sends it."""
    size = len(payload)
    if size < 126:
        return b"\x82%c%b" % (size, payload)
    if size < 1 << 16:
        return b"\x82\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return b"\x82\x7f%b%b" % (size.to_bytes(8, "big"), payload)


class _WatchEncoder:
    """The bodies of events and notices, as maps without the first byte, which says how many members it has.

    A triple of a watch begins with bytes that differ between watches, and ends with what they share.
    """

    def events(self, events: Sequence[Event]) -> tuple[int, list[bytes]]:
        bodies = [_encoder.encode(event_body(event)) for event in events]
        return bodies[0][0], [body[1:] for body in bodies]

    def notice(self, notice: Notice) -> tuple[int, list[bytes]] | None:
        if notice.kind == "alive":
            return None  # a stream has pings
        body = _encoder.encode(notice.body)
        return body[0], [body[1:]]


WATCH: Final = _WatchEncoder()

_SMALL_MAP: Final = 0x80
_MEMBERS_MAX: Final = 14
"""Of a body; one more, and its map would have a head of another size when the watch's id is put before."""


def encode_watched(watch: int, first_byte: int, bodies: Iterable[bytes]) -> bytes:
    """A frame of what one watch is told, made of what _WatchEncoder has made."""
    assert first_byte - _SMALL_MAP <= _MEMBERS_MAX
    lead = b"\x93\x00\xcc\xc8%c\xa5watch%b" % (first_byte + 1, _encoder.encode(watch))
    told = [lead + body for body in bodies]
    head = b"\xdc%b" % len(told).to_bytes(2, "big")
    return head + b"".join(told)
