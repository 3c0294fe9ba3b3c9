"""The format of one journal segment: a header page, then frames, then zeros.

A segment is a file of a fixed size, written with real zeros and made durable before its first use, so that a
frame never changes the size of the file or the blocks that it occupies. It follows that a file which is
shorter than its header says was not cut by a crash.

    header page   magic, format version, length of the description, description, zeros, CRC-32 of the page
    frame         magic, body length, durable position (segment, offset), CRC-32 of the body, CRC-32 of this
                  header, end byte | body | trailer byte
    zeros         up to the allocated size

A frame is one batch; its body is a MessagePack array of records. A frame without a body is a mark: it only
says up to where everything was durable when it was written. Both checksums start from the segment's salt and
the frame's offset, so bytes that look like a frame count only in the place for which they were written: not a
piece of a journal that a client stored as a value, not a sector that went astray.

What a crash can leave. Only the last frames can be incomplete, because a frame is written when everything
before it is durable, except the mark. Of a frame that was not synced, any sectors may be missing, and any
tail; what is missing reads as zeros. The first byte and the end byte of a header and the trailer are never
zero, so an incomplete frame always shows a zero where one of them belongs, or the whole of its part of some
sector zero. Whatever else does not check was complete and has changed since.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tenure_cluster.raft.codec import Malformed, pack, unpack

SEGMENT_BYTES_MIN: Final = 64 << 10
SEGMENT_BYTES_MAX: Final = 1 << 30
HEADER_BYTES: Final = 4096
"""A page of its own, so that no write of a frame touches it."""
BATCH_BYTES_MAX: Final = 256 << 20
"""Largest body of a frame."""
SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all, at least."""
FORMAT_VERSION: Final = 1

_FILE_MAGIC: Final = b"TENUREJ\n"
_FILE_PREFIX: Final = struct.Struct("<8sII")
_CRC: Final = struct.Struct("<I")
_FRAME_MAGIC: Final = b"\xf7TJF"
_FRAME_PREFIX: Final = struct.Struct("<4sIQII")
_FRAME_SUFFIX: Final = struct.Struct("<IB")
_FRAME_HEADER: Final = struct.Struct("<4sIQIIIB")
_END: Final = 0xE5
_TRAILER: Final = b"\x5a"
_PREFIX_BYTES: Final = _FRAME_PREFIX.size
_FRAME_HEADER_BYTES: Final = _FRAME_HEADER.size
FRAME_OVERHEAD_BYTES: Final = _FRAME_HEADER_BYTES + len(_TRAILER)
MARK_BYTES: Final = FRAME_OVERHEAD_BYTES


class JournalDamaged(Exception):
    """The journal is not what was made durable. The node must not start on it: it might have forgotten a vote
    or an acknowledged entry."""

    def __init__(self, file: str, offset: int, why: str) -> None:
        super().__init__(f"journal damaged: {file}, byte {offset}: {why}")
        self.file = file
        self.offset = offset
        self.why = why


class Position(NamedTuple):
    """A place in the journal as a whole; positions compare in the order of writing."""

    seq: int
    offset: int


NOWHERE: Final = Position(0, 0)


def segment_name(seq: int) -> str:
    return f"journal-{seq:010d}.seg"


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    cluster_id: str
    node_id: str
    seq: int
    size: int
    salt: int

    @property
    def name(self) -> str:
        return segment_name(self.seq)

    def encode(self) -> bytes:
        description = pack((self.cluster_id, self.node_id, self.seq, self.size, self.salt))
        page = _FILE_PREFIX.pack(_FILE_MAGIC, FORMAT_VERSION, len(description)) + description
        if len(page) + _CRC.size > HEADER_BYTES:
            raise ValueError("cluster_id and node_id are too long for a journal header")
        page = page.ljust(HEADER_BYTES - _CRC.size, b"\0")
        return page + _CRC.pack(zlib.crc32(page))


def decode_header(name: str, data: bytes) -> SegmentHeader:
    """The header of the segment that was read from file ``name``. Raises :class:`JournalDamaged`."""
    if len(data) < HEADER_BYTES:
        raise JournalDamaged(name, len(data), f"the file ends within its header of {HEADER_BYTES} bytes")
    magic, version, length = _FILE_PREFIX.unpack_from(data)
    if magic != _FILE_MAGIC:
        raise JournalDamaged(name, 0, "the file does not begin like a journal segment")
    if zlib.crc32(data[: HEADER_BYTES - _CRC.size]) != _CRC.unpack_from(data, HEADER_BYTES - _CRC.size)[0]:
        raise JournalDamaged(name, 0, "the checksum of the header does not match")
    if version != FORMAT_VERSION:
        raise JournalDamaged(name, 0, f"format version {version} is unknown, this is {FORMAT_VERSION}")
    try:
        header = SegmentHeader(
            *unpack(data[_FILE_PREFIX.size : _FILE_PREFIX.size + length], bytes_max=HEADER_BYTES)
        )
    except (Malformed, TypeError) as error:
        raise JournalDamaged(name, _FILE_PREFIX.size, f"the header cannot be decoded: {error}") from error
    if header.name != name:
        raise JournalDamaged(name, 0, f"the file was written as {header.name}")
    if len(data) != header.size:
        raise JournalDamaged(
            name, min(len(data), header.size), f"the file has {len(data)} bytes of {header.size} allocated"
        )
    return header


_ZEROS: Final = bytes(4096)


def written_bytes(data: bytes) -> int:
    """How far a segment has been written: what follows is zeros."""
    end = len(data)
    while data.endswith(_ZEROS, 0, end):
        end -= len(_ZEROS)
    start = max(0, end - len(_ZEROS))
    return start + len(data[start:end].rstrip(b"\0"))


Frame: TypeAlias = tuple[int, tuple[int, int], bytes]
"""(end, durable position, body). Plain, as a journal may hold hundreds of thousands."""


def encode_frame(body: bytes, salt: int, offset: int, durable: Position) -> bytes:
    seed = zlib.crc32(offset.to_bytes(8, "little"), salt)
    prefix = _FRAME_PREFIX.pack(_FRAME_MAGIC, len(body), *durable, zlib.crc32(body, seed))
    return b"".join((prefix, _FRAME_SUFFIX.pack(zlib.crc32(prefix, seed), _END), body, _TRAILER))


def _read_header(data: bytes, salt: int, offset: int) -> tuple[int, tuple[int, int], int, int] | None:
    """(end of the frame, durable position, CRC of the body, seed), or None if no intact header stands
    there."""
    if not data.startswith(_FRAME_MAGIC, offset) or offset + FRAME_OVERHEAD_BYTES > len(data):
        return None
    _, length, seq, durable_offset, body_crc, header_crc, end_byte = _FRAME_HEADER.unpack_from(data, offset)
    seed = zlib.crc32(offset.to_bytes(8, "little"), salt)
    if end_byte != _END or zlib.crc32(data[offset : offset + _PREFIX_BYTES], seed) != header_crc:
        return None
    end = offset + FRAME_OVERHEAD_BYTES + length
    return (end, (seq, durable_offset), body_crc, seed) if end <= len(data) else None


def read_frame(data: bytes, salt: int, offset: int) -> Frame | None:
    """The frame at ``offset`` of a segment's bytes, or None if there is no intact one."""
    header = _read_header(data, salt, offset)
    if header is None:
        return None
    end, durable, body_crc, seed = header
    body = data[offset + _FRAME_HEADER_BYTES : end - 1]
    if data[end - 1] != _TRAILER[0] or zlib.crc32(body, seed) != body_crc:
        return None
    return end, durable, body


def frames_after(data: bytes, salt: int, offset: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Where every intact frame begins after ``offset``, and the durable position that it states: evidence
    about what came before it."""
    while (offset := data.find(_FRAME_MAGIC, offset + 1)) >= 0:
        frame = read_frame(data, salt, offset)
        if frame is not None:
            yield offset, frame[1]


def looks_torn(data: bytes, salt: int, offset: int) -> bool:
    """Whether the frame that does not check at ``offset`` can be the remains of a write that was never
    synced."""
    header = _read_header(data, salt, offset)
    end = header[0] if header is not None else min(offset + _FRAME_HEADER_BYTES, len(data))
    if data[offset] == 0 or data[end - 1] == 0:
        return True
    start = offset
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if not any(data[start:stop]):
            return True
        start = stop
    return False
