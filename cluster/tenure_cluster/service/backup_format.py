"""The bytes of a backup: a snapshot file with what one must know of it in front, and an end behind it.

    prefix     magic, format version, length of the header, CRC-32 of the header
    header     MessagePack map: BackupHeader
    snapshot   as the node itself keeps it (raft/snapshot_format.py), with checksums of its own
    trailer    magic, SHA-256 of everything before

The trailer is what a whole file has and a cut one has not. Nothing of a file is used before all of it has
been read and has matched.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from tenure_cluster.raft.snapshot_format import (
    SNAPSHOT_BYTES_MAX,
    SnapshotDamaged,
    SnapshotInfo,
    SnapshotParser,
)

FORMAT_VERSION: Final = 1
HEADER_BYTES_MAX: Final = 1 << 20
READ_BYTES: Final = 1 << 20

_MAGIC: Final = b"TENUREB\n"
_PREFIX: Final = struct.Struct("<8sIII")
_END: Final = b"\nTENURE BACKUP END\n"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
TRAILER_BYTES: Final = len(_END) + _DIGEST_BYTES


class BackupMember(msgspec.Struct, frozen=True):
    """A member of the cluster when the backup was made; addresses are for people."""

    id: str
    peer: str
    http: str


class BackupHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup is of. A later version may say more."""

    cluster_id: str
    node_id: str
    """The node that made it."""
    index: int
    """Of the last entry that the state has."""
    term: int
    """Of that entry."""
    cluster_time_ms: int
    members: list[BackupMember]
    made_wall_ms: int
    version: str
    """Of the program that made it."""
    snapshot_bytes: int


class BackupDamaged(Exception):
    """A file is no backup, or not all of one, or not what was written. One line for the operator."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.why = why


class Backup:
    """A file that was read to its end and is whole. Raises BackupDamaged or OSError from its constructor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            reader = _Reader(path, file)
            self.header = reader.header
            for _ in reader.chunks():
                pass
            assert reader.info is not None, "the parser is done"
            self.info: SnapshotInfo = reader.info
            self.digest: bytes = reader.digest
            """SHA-256 of the whole file up to its trailer: the same for the same backup alone."""

    def chunks(self) -> Iterator[bytes]:
        """The state, checked again while it is read. What came is of use only once the end has come."""
        with self.path.open("rb") as file:
            reader = _Reader(self.path, file)
            yield from reader.chunks()
            if reader.digest != self.digest:
                raise BackupDamaged(self.path, "it has been changed while it was read")


def encode_head(header: BackupHeader) -> bytes:
    body = msgspec.msgpack.encode(header)
    if len(body) > HEADER_BYTES_MAX:
        raise ValueError(f"a backup header of {len(body)} bytes, at most {HEADER_BYTES_MAX} are possible")
    return _PREFIX.pack(_MAGIC, FORMAT_VERSION, len(body), zlib.crc32(body)) + body


def encode_trailer(digest: bytes) -> bytes:
    """The end, after everything that ``digest`` is the SHA-256 of."""
    return _END + digest


class _Reader:
    """Reads a backup from its beginning. ``header`` is there at once, ``info`` and ``digest`` when all chunks
    have been drawn."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._sha = hashlib.sha256()
        self.info: SnapshotInfo | None = None
        self.digest = b""
        self.header = self._header()

    def _header(self) -> BackupHeader:
        prefix = self._take(_PREFIX.size)
        if prefix[: len(_MAGIC)] != _MAGIC[: len(prefix)] or not prefix:
            raise self._damaged("it is not a backup made by tenure")
        self._whole(prefix, _PREFIX.size)
        _, version, length, crc = _PREFIX.unpack(prefix)
        if version != FORMAT_VERSION:
            raise self._damaged(f"it has format version {version}, and this program reads {FORMAT_VERSION}")
        if not 0 < length <= HEADER_BYTES_MAX:
            raise self._damaged(f"it is damaged: a header of {length} bytes is not possible")
        body = self._take(length)
        self._whole(body, length)
        if zlib.crc32(body) != crc:
            raise self._damaged("it is damaged: the checksum of the header does not match")
        try:
            header = msgspec.msgpack.decode(body, type=BackupHeader)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._damaged(f"it is damaged: the header cannot be decoded: {error}") from error
        if not 0 < header.snapshot_bytes <= SNAPSHOT_BYTES_MAX:
            raise self._damaged(f"it is damaged: a snapshot of {header.snapshot_bytes} bytes is not possible")
        return header

    def chunks(self) -> Iterator[bytes]:
        parser = SnapshotParser(self._path.name)
        left = self.header.snapshot_bytes
        try:
            while left > 0:
                piece = self._take(min(left, READ_BYTES))
                if not piece:
                    raise self._damaged("it is cut off: it ends within the snapshot")
                left -= len(piece)
                yield from parser.feed(piece)
            self.info = parser.finish()
        except SnapshotDamaged as damage:
            raise self._damaged(f"it is damaged: {damage.why}") from damage
        found = (self.info.cluster_id, self.info.index, self.info.term)
        if found != (self.header.cluster_id, self.header.index, self.header.term):
            raise self._damaged("it is damaged: the header is not that of the snapshot")
        digest = self._sha.digest()
        trailer = self._take(TRAILER_BYTES)
        self._whole(trailer, TRAILER_BYTES)
        if trailer != encode_trailer(digest):
            raise self._damaged("it is damaged: the checksum of the file does not match")
        if self._file.read(1):
            raise self._damaged("it is damaged: something follows its end")
        self.digest = digest

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        self._sha.update(data)
        return data

    def _whole(self, data: bytes, size: int) -> None:
        if len(data) < size:
            raise self._damaged("it is cut off: its end is missing")

    def _damaged(self, why: str) -> BackupDamaged:
        return BackupDamaged(self._path, why)
