"""What comes in on a peer link: cut into frames, each a greeting, an answer or a message."""

import asyncio
from typing import Any, cast

import msgspec
from fuzz_examples import examples
from fuzz_kit import PACKED_WORDS, Bytes, Target, deepened, pieces

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.link import Framed, frame

FRAME_BYTES_MAX = 2048


class _Open:
    def is_closing(self) -> bool:
        return False


class Reader(Framed):
    """The receiving end of a link, or its sending end, which hears answers; without what is done then."""

    def __init__(self, *, dialled: bool) -> None:
        super().__init__(FRAME_BYTES_MAX)
        self.transport = cast(asyncio.Transport, _Open())
        self.taken: list[Any] = []
        self.failed = ""
        self._dialled = dialled

    def frame_received(self, body: bytes) -> None:
        assert not self.failed, "a frame is read after the connection was given up"
        assert len(body) <= FRAME_BYTES_MAX
        if self._dialled:
            self.taken.append(wire.decode_answer(body))
        elif not self.taken:
            self.taken.append(wire.decode_greeting(body))
        else:
            self.taken.append(wire.decode_inbound(body))

    def fail(self, why: str) -> None:
        assert why
        self.failed = why

    def hear(self, data: bytes) -> None:
        self.data_received(data)
        if not self.failed:
            assert len(self._buffer) < FRAME_BYTES_MAX + 4, "more is kept than one frame has"


def check(data: bytes) -> bool:
    """However the stream is cut, the same messages come out of it; and each is one of the types."""
    script = Bytes(data)
    dialled, cuts = script.number() % 2 == 1, script.number()
    stream = script.rest()
    whole, cut = Reader(dialled=dialled), Reader(dialled=dialled)
    whole.hear(stream)
    for piece in pieces(stream, cuts):
        cut.hear(piece)
        if cut.failed:
            break
    assert (cut.taken, bool(cut.failed)) == (whole.taken, bool(whole.failed))
    for message in whole.taken:
        encoded = wire.encode(message)
        assert msgspec.msgpack.decode(encoded, type=type(message)) == message
    return bool(whole.taken)


def seeds() -> list[bytes]:
    greetings = examples(wire.Greeting)
    inbound = examples(wire.Inbound)
    link = b"".join(frame(message) for message in (greetings[0], *inbound))
    each = [b"\0\1" + frame(greetings[1]) + frame(message) for message in inbound]
    answers = [b"\1\1" + frame(answer) for answer in examples(wire.Answer)]
    deep = [b"\0\1" + framed(deepened(wire.encode(greetings[0])))]
    deep += [b"\0\1" + frame(greetings[0]) + framed(deepened(wire.encode(message))) for message in inbound]
    deep += [b"\1\1" + framed(deepened(wire.encode(answer))) for answer in examples(wire.Answer)]
    return [*deep, b"\0\7" + link, b"\1\7" + b"".join(answer[2:] for answer in answers), *each, *answers]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


TARGET = Target("peer_frames", check, seeds, (*PACKED_WORDS, b"\xff\xff\xff\xff", b"\0\0\0\0"), 8192)
