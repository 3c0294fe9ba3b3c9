"""The journal's reader: a journal whose bytes have changed, and one whose batches hold anything."""

import functools
import sys
from dataclasses import dataclass
from pathlib import Path

from fuzz_kit import NESTED, PACKED_WORDS, Bytes, Target, edit, edited

from tenure_cluster.raft import records
from tenure_cluster.raft.codec import pack
from tenure_cluster.raft.journal import Entry, Journal, JournalDamaged
from tenure_cluster.raft.recovery import recover
from tenure_cluster.raft.segment import (
    HEADER_BYTES,
    NOWHERE,
    SegmentHeader,
    decode_header,
    encode_frame,
    frames_after,
    read_frame,
    segment_name,
)

sys.path.append(str(Path(__file__).resolve().parents[1] / "raft"))
from disk_model import ModelDisk
from journal_cases import SEGMENT_BYTES, State, append, commit, open_journal, segments, state

BEYOND = 600
"""So much of the zeros after the last batch of a segment can be changed too."""


@dataclass(frozen=True)
class Written:
    """A journal as it was written: the parts of its segments that say something, one after the other."""

    files: dict[str, bytes]
    content: bytes
    places: dict[str, tuple[int, int]]
    """Of each segment, where its part stands in the content."""
    frames: list[tuple[int, int, State]]
    """Of each batch and mark in turn, where it begins and ends in the content; and the log with all up to
    it."""


@functools.cache
def written() -> Written:
    """Three segments with every kind of record; the last batch was never synced."""
    disk = ModelDisk()
    journal = open_journal(disk)
    states = [state(journal)]

    def put(last: bool = False) -> None:
        if last:
            journal.flush_batch()
        else:
            commit(journal)
            disk.work()
        states.append(state(journal))

    journal.setCurrentTerm(3, "n1")
    append(journal, 4, term=1)
    put()
    journal.deleteEntriesFrom(3)
    append(journal, 1, term=2)
    put()
    for number in range(5):
        journal.setCurrentTerm(4 + number, "n2")
        append(journal, 2, term=3, size=10 if number % 2 else 30_000, fill=b"\0" if number == 2 else b"c")
        put()
    append(journal, 2, term=5, size=40)
    put(last=True)
    return _described(disk, states)


def _described(disk: ModelDisk, states: list[State]) -> Written:
    files = {name: disk.read(name) for name in segments(disk)}
    content, places, frames = b"", {}, []
    batches = 0
    for name, data in files.items():
        end = len(data.rstrip(b"\0"))
        start = len(content)
        salt = decode_header(name, data).salt
        for at, _ in frames_after(data, salt, HEADER_BYTES - 1):
            frame = read_frame(data, salt, at)
            assert frame is not None
            batches += bool(frame[2])
            frames.append((start + at, start + frame[0], states[batches - 1]))
        part = data[: min(end + BEYOND, len(data))]
        places[name] = (start, start + len(part))
        content += part
    assert batches == len(states), "all batches have been found, the first of them opens the journal"
    assert len([name for name, data in files.items() if data[HEADER_BYTES]]) >= 3
    return Written(files, content, places, frames)


def check_damage(data: bytes) -> bool:
    """What comes back is the log up to the first batch or mark that is not as it was written, and nothing
    beyond; or nothing comes back. Then nothing has been changed either."""
    before = written()
    content = edited(before.content, Bytes(data))[: len(before.content)].ljust(len(before.content), b"\0")
    disk = ModelDisk()
    for name, whole in before.files.items():
        start, end = before.places[name]
        disk.overwrite(name, content[start:end] + whole[end - start :])
    found = {name: disk.read(name) for name in disk.names()}
    try:
        journal = open_journal(disk)
    except JournalDamaged as damage:
        assert damage.file in before.files or damage.file == segment_name(1)
        assert {name: disk.read(name) for name in disk.names()} == found
        return False
    for start, end, log in before.frames:
        if content[start:end] != before.content[start:end]:
            break
        intact = log
    assert state(journal) == intact
    goes_on(disk, journal)
    return True


def check_records(data: bytes) -> bool:
    """Whatever stands in batches whose checksums are right: the log that is read is one that could have been
    written, or the journal is refused."""
    script = Bytes(data)
    header = SegmentHeader("cluster", "n1", 1, SEGMENT_BYTES, 7)
    opening = pack([records.opened((0, None, 0, 0), 0)])
    bodies = [] if script.number() % 4 == 3 else [opening]
    while script.left:
        bodies.append(script.piece(script.number(2) % 4096))
    segment = header.encode()
    for body in bodies:
        segment += encode_frame(body, header.salt, len(segment), NOWHERE)
    disk = ModelDisk()
    disk.overwrite(header.name, segment[:SEGMENT_BYTES].ljust(SEGMENT_BYTES, b"\0"))
    snapshot = None
    try:
        recovered = recover(disk, "cluster", "n1")
        assert recovered is not None
        if recovered.log.floor_index != 0 and len(recovered.log.entries) > 1:
            # Such a log has a snapshot beside it.
            snapshot = (recovered.log.entries[0], recovered.log.entries[1])
        journal = open_journal(disk, snapshot)
    except JournalDamaged as damage:
        assert damage.file == header.name
        return False
    entries, term, voted_for = state(journal)
    assert isinstance(term, int)
    assert voted_for is None or isinstance(voted_for, str)
    assert all(isinstance(command, bytes) for command, _, _ in entries)
    indexes, terms = [index for _, index, _ in entries], [of for _, _, of in entries]
    assert indexes == list(range(indexes[0], indexes[0] + len(entries))) if entries else True
    assert terms == sorted(terms)
    goes_on(disk, journal, snapshot)
    return len(bodies) > 1


def goes_on(disk: ModelDisk, journal: Journal, snapshot: tuple[Entry, Entry] | None = None) -> None:
    """It is read again as it was, and can be written to."""
    before = state(journal)
    disk.kill()
    again = open_journal(disk, snapshot)
    assert state(again) == before
    append(again, 1)
    commit(again)
    after = state(again)
    disk.kill()
    assert state(open_journal(disk, snapshot)) == after


def damage_seeds() -> list[bytes]:
    frames = written().frames
    at = [start + skip for start, _, _ in frames for skip in (0, 4, 24, 29, 40)]
    at += [end - 1 for _, end, _ in frames]
    flips = [edit(2, place, 0x40) for place in at]
    zeros = [edit(1, place, 40) for place in at[::5]]
    places = [(start, other) for start, _, _ in frames for other, _, _ in frames[::3]]
    moved = [edit(3, start) + other.to_bytes(3, "little") + b"\x10" for start, other in places]
    return [b"", *flips, *zeros, *moved, edit(5, frames[-1][0] + 20), edit(0, frames[-2][0], 4, *b"\xf7TJF")]


def record_seeds() -> list[bytes]:
    kind = records.Kind
    batches = [
        [(b"a", 1, 1), (b"b", 2, 1), (kind.TERM, 2, "n1")],
        [(kind.CUT, 2, 1), (b"c", 2, 2)],
        [(kind.TERM, 3, None), (kind.BASE, ((b"x", 40, 2), (b"y", 41, 3)))],
        [(b"z", 42, 3)],
    ]
    packed = [pack(batch) for batch in batches]
    sized = [len(body).to_bytes(2, "little") + body for body in packed]
    first = pack([records.opened((4, "n1", 9, 2), 0), (b"a", 10, 4), (b"b", 11, 4)])
    return [
        b"\0" + b"".join(sized),
        *(b"\0" + one for one in sized),
        b"\3" + len(first).to_bytes(2, "little") + first,
    ]


DAMAGE = Target("journal_damage", check_damage, damage_seeds, (bytes(40), b"\xf7TJF", b"\xe5", b"\x5a"), 512)
RECORDS = Target("journal_records", check_records, record_seeds, (*PACKED_WORDS, NESTED), 4096)
