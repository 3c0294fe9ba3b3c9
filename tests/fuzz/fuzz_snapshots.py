"""Snapshots: their files, as they are read and as another node sends them; and the state in them."""

import functools
import hashlib
import zlib
from collections.abc import Iterable

import msgspec
from fuzz_examples import examples
from fuzz_kit import NESTED, PACKED_WORDS, Bytes, Target, deepened, edit, edited, pieces
from fuzz_log_entries import history

from tenure_cluster.lease import snapshot
from tenure_cluster.lease.credentials import CreateCredential
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.quota import SetQuota
from tenure_cluster.raft.membership import MemberInfo, Membership, for_snapshot, of_snapshot
from tenure_cluster.raft.snapshot_format import (
    SnapshotDamaged,
    SnapshotInfo,
    SnapshotParser,
    encode_chunk,
    encode_head,
)

MEMBERS = for_snapshot(Membership((MemberInfo("n1"), MemberInfo("n2", "h:1", "", False)), ("n0",), 7))


def state_chunks() -> list[bytes]:
    """Those of a table with something in most of its sections."""
    machine = LeaseMachine()
    for stamp, command in [
        *history(),
        *((2_000, more) for more in examples([CreateCredential, SetQuota], 3)),
    ]:
        machine.apply(stamp, command)
    return list(snapshot.dump(machine.table))


def file_of(info: SnapshotInfo, chunks: list[bytes]) -> bytes:
    data = encode_head(info) + b"".join(map(encode_chunk, chunks)) + encode_chunk(b"")
    return data + hashlib.sha256(data).digest()


@functools.cache
def real_file() -> bytes:
    return file_of(
        SnapshotInfo("cluster", (b"p", 41, 2), (b"l", 42, 3), MEMBERS), [*state_chunks(), b"x" * 900]
    )


def check_file(data: bytes) -> bool:
    """Of a file whose bytes have changed nothing is used; however the bytes arrive, the end is the same; and
    never is more kept than the piece that is being read."""
    script = Bytes(data)
    mode, cuts = script.number() % 3, script.number()
    if mode == 0:
        content = edited(real_file(), script)
    elif mode == 1:
        content = script.rest()
    else:
        content = with_header(script.rest())
    whole, cut = parsed([content]), parsed(pieces(content, cuts))
    assert whole == cut
    if whole is None:
        return False
    info, chunks = whole
    if mode == 0:
        assert content == real_file(), "a changed file was taken"
    assert info.size == len(content)
    assert info.index == info.prev_index + 1
    assert all(chunks)
    try:
        of_snapshot(info.members)
    except msgspec.DecodeError:
        return False
    return True


def with_header(header: bytes) -> bytes:
    """A whole file, with any bytes for its header, and right checksums."""
    real = encode_head(SnapshotInfo("cluster", (b"p", 41, 2), (b"l", 42, 3)))
    prefix = bytearray(real[:20])
    prefix[12:16] = len(header).to_bytes(4, "little")
    prefix[16:20] = _crc(header)
    data = bytes(prefix) + header + encode_chunk(b"state") + encode_chunk(b"")
    return data + hashlib.sha256(data).digest()


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")


def parsed(arriving: Iterable[bytes]) -> tuple[SnapshotInfo, list[bytes]] | None:
    parser = SnapshotParser("snapshot")
    chunks: list[bytes] = []
    try:
        for piece in arriving:
            chunks += parser.feed(piece)
            assert len(parser._buffer) < max(1, parser._needed)
        return parser.finish(), chunks
    except SnapshotDamaged as damage:
        assert damage.why
        return None


def check_state(data: bytes) -> bool:
    """Chunks of anything are a whole table, which is written and read back as it is, or they are refused."""
    script = Bytes(data)
    if script.number() % 2:
        chunks = []
        while script.left:
            chunks.append(script.piece(script.number(2)))
    else:
        chunks = _cut(edited(b"".join(real_state()), script))
    try:
        table = snapshot.load(chunks)
    except snapshot.SnapshotDamaged as damage:
        assert str(damage)
        return False
    written = list(snapshot.dump(table))
    again = snapshot.load(written)
    assert snapshot.digest(again) == snapshot.digest(table)
    assert list(snapshot.dump(again)) == written
    LeaseMachine(table).check()
    return True


@functools.cache
def real_state() -> list[bytes]:
    return state_chunks()


def _cut(content: bytes) -> list[bytes]:
    """The chunks again, of the lengths that they had."""
    chunks, at = [], 0
    for chunk in real_state():
        chunks.append(content[at : at + len(chunk)])
        at += len(chunk)
    return [*chunks, content[at:]] if content[at:] else chunks


def file_seeds() -> list[bytes]:
    real = real_file()
    flips = [b"\0\1" + edit(2, at, 1) for at in (*range(0, 120, 7), len(real) - 40, len(real) - 1)]
    header = encode_head(SnapshotInfo("c", (b"p", 1, 1), (b"l", 2, 1), MEMBERS))[20:]
    small = file_of(SnapshotInfo("c", (b"p", 1, 1), (b"l", 2, 1)), [b"state"])
    return [b"\0\1", *flips, b"\0\1" + edit(5, 200), b"\1\2" + small, b"\2\3" + header]


def state_seeds() -> list[bytes]:
    real = real_state()
    sized = b"".join(len(chunk).to_bytes(2, "little") + chunk for chunk in real)
    flips = [b"\0" + edit(2, at, 1) for at in range(0, sum(map(len, real)), 29)]
    name, [row, *_] = msgspec.msgpack.decode(real[1])
    deep = msgspec.msgpack.encode((name, [msgspec.Raw(deepened(msgspec.msgpack.encode(row)) + b"\xc0")]))
    head = len(real[0]).to_bytes(2, "little") + real[0]
    return [b"\0", b"\1" + sized, b"\1" + head + len(deep).to_bytes(2, "little") + deep, *flips]


FILE = Target("snapshot_file", check_file, file_seeds, (*PACKED_WORDS, NESTED, b"TENURES\n"), 2048)
STATE = Target("snapshot_state", check_state, state_seeds, (*PACKED_WORDS, NESTED), 8192)
