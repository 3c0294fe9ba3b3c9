"""The bytes of a snapshot, in a file and on their way to another node.

    prefix    magic, format version, length of the header, CRC-32 of the header
    header    MessagePack: cluster_id, the last entry that the snapshot covers, the one before it, members
    chunks    length, bytes of the state machine; as many as there are
    end       a length of zero
    SHA-256   of everything before

The two entries are kept whole because the log that goes with the snapshot begins with them, and a follower
may still need the last one.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tenure_cluster.raft.codec import Malformed, pack, unpack
from tenure_cluster.raft.log import Entry

FORMAT_VERSION: Final = 2
"""1 is written as long as there are no members in it: programs that know only that would pass over them, and
go on with those of their configuration."""
HEADER_BYTES_MAX: Final = 64 << 20
"""Two entries and the members. Far above any entry, and below what could hurt."""
CHUNK_BYTES_MAX: Final = 16 << 20
SNAPSHOT_BYTES_MAX: Final = 1 << 40

_MAGIC: Final = b"TENURES\n"
_PREFIX: Final = struct.Struct("<8sIII")
_LENGTH: Final = struct.Struct("<I")
_DIGEST_BYTES: Final = hashlib.sha256().digest_size


class SnapshotDamaged(Exception):
    """A snapshot is not what was written. It must not be used, nor may an older one in its place: the log
    that goes with that is gone."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"snapshot damaged: {file}: {why}")
        self.file = file
        self.why = why


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What a snapshot covers: the log up to and including ``last``; ``previous`` is the entry before that."""

    cluster_id: str
    previous: Entry
    last: Entry
    members: tuple[object, ...] = ()
    """As membership.py packs them; nothing if no entry has changed them yet."""
    size: int = 0
    """Bytes of the whole file."""

    @property
    def index(self) -> int:
        return self.last[1]

    @property
    def term(self) -> int:
        return self.last[2]

    @property
    def prev_index(self) -> int:
        return self.previous[1]

    @property
    def prev_term(self) -> int:
        return self.previous[2]

    @property
    def boundary(self) -> tuple[Entry, Entry]:
        """The entries with which the log begins once the snapshot has been made: what Journal.open wants."""
        return self.previous, self.last

    @property
    def name(self) -> str:
        return f"snapshot-{self.index:020d}.snap"


def encode_head(info: SnapshotInfo) -> bytes:
    header = pack((info.cluster_id, info.previous, info.last, info.members))
    if len(header) > HEADER_BYTES_MAX:
        raise ValueError(f"a snapshot header of {len(header)} bytes, at most {HEADER_BYTES_MAX} are possible")
    version = FORMAT_VERSION if info.members else 1
    return _PREFIX.pack(_MAGIC, version, len(header), zlib.crc32(header)) + header


def encode_chunk(chunk: bytes) -> bytes:
    """A chunk that is not empty; an empty one is the end of the chunks."""
    if len(chunk) > CHUNK_BYTES_MAX:
        raise ValueError(f"a snapshot chunk of {len(chunk)} bytes, at most {CHUNK_BYTES_MAX} are possible")
    return _LENGTH.pack(len(chunk)) + chunk


class SnapshotParser:
    """Takes the bytes of a snapshot as they come and checks them. Nothing of it may be trusted before
    :attr:`done`."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._buffer = bytearray()
        self._needed = _PREFIX.size
        self._part: Callable[[bytes], bytes | None] = self._prefix
        self._sha = hashlib.sha256()
        self._header_crc = 0
        self.fed_bytes = 0
        self.info: SnapshotInfo | None = None
        """Known once the header has come; ``size`` only when done."""
        self.done = False

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the chunks that are complete now. Raises :class:`SnapshotDamaged`."""
        self.fed_bytes += len(data)
        self._buffer += data
        chunks: list[bytes] = []
        while not self.done and len(self._buffer) >= self._needed:
            piece = bytes(self._buffer[: self._needed])
            del self._buffer[: self._needed]
            if chunk := self._part(piece):
                chunks.append(chunk)
        if self.done and self._buffer:
            raise self._damaged("there are bytes after its end")
        return chunks

    def finish(self) -> SnapshotInfo:
        """All bytes have been fed. Raises :class:`SnapshotDamaged` if some are missing."""
        if not self.done or self.info is None:
            raise self._damaged(f"it ends after {self.fed_bytes} bytes, before it is complete")
        return self.info

    def _prefix(self, piece: bytes) -> None:
        magic, version, length, self._header_crc = _PREFIX.unpack(piece)
        if magic != _MAGIC:
            raise self._damaged("it does not begin like a snapshot")
        if not 1 <= version <= FORMAT_VERSION:
            raise self._damaged(f"format version {version} is unknown, this is {FORMAT_VERSION}")
        if not 0 < length <= HEADER_BYTES_MAX:
            raise self._damaged(f"a header of {length} bytes is not possible")
        self._sha.update(piece)
        self._needed, self._part = length, self._header

    def _header(self, piece: bytes) -> None:
        if zlib.crc32(piece) != self._header_crc:
            raise self._damaged("the checksum of the header does not match")
        try:
            match unpack(piece, bytes_max=HEADER_BYTES_MAX):
                case (
                    str() as cluster_id,
                    (bytes(), int() as prev_index, int()) as previous,
                    (bytes(), int() as index, int()) as last,
                    tuple() as members,
                ) if index == prev_index + 1:
                    self.info = SnapshotInfo(cluster_id, previous, last, members)
                case _:
                    raise self._damaged("the header is of an unknown shape")
        except Malformed as error:
            raise self._damaged(f"the header cannot be decoded: {error}") from error
        self._sha.update(piece)
        self._needed, self._part = _LENGTH.size, self._length

    def _length(self, piece: bytes) -> None:
        (length,) = _LENGTH.unpack(piece)
        if length > CHUNK_BYTES_MAX:
            raise self._damaged(f"a chunk of {length} bytes is not possible")
        self._sha.update(piece)
        self._needed, self._part = (length, self._chunk) if length else (_DIGEST_BYTES, self._digest)

    def _chunk(self, piece: bytes) -> bytes:
        self._sha.update(piece)
        self._needed, self._part = _LENGTH.size, self._length
        return piece

    def _digest(self, piece: bytes) -> None:
        if piece != self._sha.digest():
            raise self._damaged("the checksum does not match")
        assert self.info is not None
        info = self.info
        self.info = SnapshotInfo(info.cluster_id, info.previous, info.last, info.members, self.fed_bytes)
        self.done = True

    def _damaged(self, why: str) -> SnapshotDamaged:
        return SnapshotDamaged(self._file, why)
