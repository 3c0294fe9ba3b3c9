"""What the fuzzer's targets share.

A target is a check of one decoder, whatever the bytes are: either it gives a value for which what is promised
of it holds, or it raises its own documented error. Anything else (an AssertionError of the check, another
exception, memory or time without bound) is a finding. The checks say whether the bytes were taken, so that a
test can tell that both ways are gone.

Behind a checksum hardly any mutation gets anywhere. Such targets read their bytes as a script of changes to a
real file (:func:`edited`), or put the right checksums around them.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Target:
    """A decoder under test."""

    name: str
    check: Callable[[bytes], bool]
    """Whether the bytes were taken; raises whatever is a finding."""
    seeds: Callable[[], list[bytes]]
    """What really goes through the decoder, made when it is asked for."""
    words: tuple[bytes, ...] = ()
    """Pieces that a mutation would hardly find."""
    bytes_max: int = 4096


NESTED: Final = b"\x91" * 1500
"""Arrays in arrays, deeper than any decoder goes."""


def deepened(packed: bytes) -> bytes:
    """A short array with one element more than its reader knows, which never ends."""
    assert 0x90 <= packed[0] < 0x9F
    return bytes((packed[0] + 1,)) + packed[1:] + NESTED


PACKED_WORDS: Final = (
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\x7f\xff\xff\xff",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\xd6\xff\x00\x00\x00\x00",
    b"\xc7\x01\x05\x00",
    b"\xa3\xed\xa0\x80",
    b"\xc0",
    b"\xc2",
    b"\x90",
    b"\x80",
)
"""MessagePack: lengths that no file has, numbers at the ends, NaN, extensions, a surrogate, nothing."""


class Bytes:
    """Reads numbers and pieces off the front; zeros and nothing when there is no more."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return max(0, len(self._data) - self._at)

    def number(self, size: int = 1) -> int:
        return int.from_bytes(self.piece(size), "little")

    def piece(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece

    def rest(self) -> bytes:
        return self.piece(self.left)


def edited(original: bytes, script: Bytes) -> bytes:
    """``original`` after the changes that the script asks for: overwritten, zeroed, flipped, moved or cut."""
    changed = bytearray(original)
    while script.left and changed:
        kind = script.number() % 6
        at = script.number(3) % len(changed)
        if kind == 0:
            piece = script.piece(script.number() % 64)
            changed[at : at + len(piece)] = piece
        elif kind == 1:
            size = min(script.number() * 16, len(changed) - at)
            changed[at : at + size] = bytes(size)
        elif kind == 2:
            changed[at] ^= script.number()
        elif kind == 3:
            source = script.number(3) % len(changed)
            size = min(script.number() * 4, len(changed) - at)
            piece = bytes(changed[source : source + size])
            changed[at : at + len(piece)] = piece
        elif kind == 4:
            changed[at:at] = script.piece(script.number() % 16)
        else:
            del changed[at:]
    return bytes(changed)


def edit(kind: int, at: int, *rest: int) -> bytes:
    """One change of a script, for seeds."""
    return bytes((kind, *at.to_bytes(3, "little"), *rest))


def pieces(data: bytes, script: int) -> Iterator[bytes]:
    """``data`` cut into pieces, at places that the number decides."""
    sizes = random.Random(script)
    at = 0
    while at < len(data):
        size = sizes.choice((1, 2, 3, 5, 64, 700))
        yield data[at : at + size]
        at += size


class Mutator:
    """Changes seeds in the ways of a fuzzer, by a seed of its own: for runs that are to be the same again."""

    def __init__(self, target: Target, seed: int) -> None:
        self._rng = random.Random(seed)
        self._seeds = target.seeds()
        self._words = (*target.words, b"\0", b"\xff", bytes(8))
        self._bytes_max = target.bytes_max

    def next(self) -> bytes:
        rng = self._rng
        data = bytearray(rng.choice(self._seeds))
        for _ in range(rng.choice((1, 1, 2, 4, 8))):
            self._change(data)
        return bytes(data[: self._bytes_max])

    def _change(self, data: bytearray) -> None:
        rng = self._rng
        at = rng.randrange(len(data) + 1)
        size = min(rng.choice((1, 1, 2, 4, 16, 200)), len(data) - at)
        match rng.randrange(7):
            case 0 if size:
                data[at] ^= 1 << rng.randrange(8)
            case 1 if size:
                data[at] = rng.randrange(256)
            case 2:
                word = rng.choice(self._words)
                data[at : at + len(word)] = word
            case 3:
                data[at:at] = rng.choice(self._words)
            case 4:
                del data[at : at + size]
            case 5:
                data[at:at] = data[rng.randrange(len(data) + 1) :][:size]
            case _:
                data[at:] = rng.choice(self._seeds)[at:]
