"""What clients send: frames of a stream, bodies of calls in both formats, and request targets."""

from typing import Any, Final

import msgspec
from fuzz_examples import examples
from fuzz_kit import NESTED, PACKED_WORDS, Bytes, Target

from tenure_cluster.api import batch, problems, stream_frames, target
from tenure_cluster.api.codec import ENCODE, Decoders, Format
from tenure_cluster.api.limits import DETAIL_CHARS_MAX, OPS_PER_BATCH_MAX, QUERY_FIELDS_MAX
from tenure_cluster.api.routes import ROUTES
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.requests import OPERATIONS

_BODIES: list[Any] = [
    route.request for route in ROUTES if route.source == "body" and route.request is not None
]
_TYPES: list[Any] = [*_BODIES, batch.BatchBody]
_DECODERS = [Decoders(shape) for shape in _TYPES]
_INTEGERS = frozenset({"after", "limit", "revision"})
ANSWER_BYTES_MAX = 32 * 1024
"""A refusal is told in so much, whatever was asked."""


def told(problem: Problem) -> None:
    """A refusal can be answered in both formats, and is not long."""
    document = problems.document(problem)
    assert 400 <= document["status"] < 500
    assert len(document["detail"]) <= DETAIL_CHARS_MAX + len(", ".join(stream_frames.OPERATIONS)) + 200
    for encode in ENCODE.values():
        assert len(encode(document)) <= ANSWER_BYTES_MAX


def check_stream(data: bytes) -> bool:
    """A frame is triples, whose bodies are requests; or there is a refusal that can be told."""
    triples = stream_frames.decode(data)
    if isinstance(triples, Problem):
        told(triples)
        return False
    assert len(triples) <= OPS_PER_BATCH_MAX
    taken = False
    for number, operation, body in triples:
        assert 0 < number <= stream_frames.ID_MAX
        request = stream_frames.decode_body(operation, body)
        if isinstance(request, Problem):
            told(request)
            stream_frames.encode([stream_frames.answer(number, request)])
        else:
            taken = True
            encoded = msgspec.Raw(msgspec.msgpack.encode(request))
            assert msgspec.msgpack.encode(stream_frames.decode_body(operation, encoded)) == bytes(encoded)
    return taken


def check_body(data: bytes) -> bool:
    """A body is a request of its call, the same in both formats; or there is a refusal that can be told."""
    script = Bytes(data)
    which, form = script.number() % len(_TYPES), script.number() % 2
    body = script.rest()
    request = _DECODERS[which].decode(body, "json" if form else "msgpack")
    if isinstance(request, Problem):
        told(request)
        return False
    for name, encode in ENCODE.items():
        encoded = encode(request)
        again = _DECODERS[which].decode(encoded, name)
        assert not isinstance(again, Problem), again
        assert encode(again) == encoded
    if _TYPES[which] is batch.BatchBody:
        operations = batch.operations(request)
        if isinstance(operations, Problem):
            told(operations)
            return False
        assert all(type(plain) is OPERATIONS[name] for name, plain in operations)
    return True


def check_target(data: bytes) -> bool:
    """A request target says a path and fields, each decoded once and never normalised; or it is refused."""
    path, query = target.split(data.decode("utf-8", "surrogateescape"))
    decoded = target.decode(path, "$.key")
    if isinstance(decoded, Problem):
        told(decoded)
    else:
        decoded.encode()
        assert decoded.count("/") >= path.count("/")
        if "%" not in path and "#" not in path:
            assert decoded == path
    fields = target.query_fields(query or "", _INTEGERS)
    if isinstance(fields, Problem):
        told(fields)
        return False
    assert len(fields) <= QUERY_FIELDS_MAX
    for name, value in fields.items():
        name.encode()
        assert isinstance(value, str) or name in _INTEGERS
    return not isinstance(decoded, Problem)


_FORMS: Final[tuple[Format, ...]] = ("msgpack", "json")


def stream_seeds() -> list[bytes]:
    every: list[tuple[Any, Any]] = [
        (operation, request) for operation, shape in OPERATIONS.items() for request in examples(shape)
    ]
    alone = [stream_frames.encode([(1, operation, request)]) for operation, request in every]
    frame = stream_frames.encode([(n, *asked) for n, asked in enumerate(every, 1)])
    others: list[Any] = [
        [(1, "watch", {"keys": ["k"]})],
        [(2, "unwatch", {"watch": 1})],
        [(3, "nothing", {})],
    ]
    return [*alone, frame, *(stream_frames.encode(other) for other in others)]


def body_seeds() -> list[bytes]:
    found = []
    for which, shape in enumerate(_TYPES):
        for request in examples(shape):
            for form, name in enumerate(_FORMS):
                found.append(bytes((which, form)) + ENCODE[name](request))
    return found


def target_seeds() -> list[bytes]:
    return [
        b"/v1/keys/a%2Fb/../c?after=1&limit=20",
        b"http://h:1/v1/keys/%C3%A4?x=%zz",
        b"/v1/events?key=a+b&prefix=%00#f",
        b"/v1/keys/\xff?limit=-9999999999999999999999",
    ]


STREAM = Target("stream_frames", check_stream, stream_seeds, (*PACKED_WORDS, NESTED), 8192)
BODY = Target(
    "http_bodies", check_body, body_seeds, (*PACKED_WORDS, NESTED, b"[" * 1500, b'"\\ud800"', b"NaN"), 4096
)
TARGET = Target(
    "http_targets", check_target, target_seeds, (b"%00", b"%2f", b"%c0%af", b"&", b"=", b"+", b"#"), 512
)
