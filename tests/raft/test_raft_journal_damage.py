"""Files that were cut, changed or written in part: all that was acknowledged comes back, or the node does not
start.

Acknowledged batches end with the mark that the journal writes before anything may be acknowledged. Their
files are changed at every byte of the last batches; a batch that was never synced is written in part in every
way in which a disk can do that.
"""

import itertools
from collections.abc import Iterator

import pytest
from disk_model import SECTOR_BYTES, ModelDisk, PowerLost
from journal_cases import SEGMENT_BYTES, State, append, commit, open_journal, segments, state

from tenure_cluster.raft.journal import Journal, JournalDamaged
from tenure_cluster.raft.segment import HEADER_BYTES, decode_header, frames_after

FIRST = "journal-0000000001.seg"


def acknowledged(batches: int = 4) -> tuple[ModelDisk, Journal]:
    """A journal with a few small batches, one of each kind of record, all of them acknowledged."""
    disk = ModelDisk()
    journal = open_journal(disk)
    journal.setCurrentTerm(3, "n1")
    append(journal, 4, term=1)
    commit(journal)
    journal.deleteEntriesFrom(3)
    append(journal, 1, term=2)
    commit(journal)
    for number in range(batches):
        journal.setCurrentTerm(4 + number, "n2")
        append(journal, 1, term=3, size=10)
        commit(journal)
    return disk, journal


def frame_starts(content: bytes) -> list[int]:
    header = decode_header(FIRST, content)
    return [offset for offset, _ in frames_after(content, header.salt, 0)]


def written_end(content: bytes) -> int:
    return len(content.rstrip(b"\0"))


def opens_with_everything_or_refuses(disk: ModelDisk, expected: State, name: str = FIRST) -> bool:
    """Whether it was refused. What comes back must be what was acknowledged, and it must come back again."""
    damage: JournalDamaged | None = None
    try:
        journal = open_journal(disk)
    except JournalDamaged as refused:
        damage = refused
    if damage is not None:
        assert damage.file == name
        assert f"{name}, byte {damage.offset}" in str(damage)
        return True
    assert state(journal) == expected
    disk.kill()
    assert state(open_journal(disk)) == expected
    return False


def test_a_file_that_is_cut_anywhere_is_refused() -> None:
    disk, _ = acknowledged()
    content = disk.read(FIRST)
    end = written_end(content)
    for length in itertools.chain(range(end + 40), range(end + 40, len(content), 997), [len(content) - 1]):
        disk.overwrite(FIRST, content[:length])
        with pytest.raises(JournalDamaged) as refused:
            open_journal(disk)
        assert (refused.value.file, refused.value.offset) == (FIRST, length)


def test_a_file_that_has_grown_is_refused() -> None:
    disk, _ = acknowledged()
    disk.overwrite(FIRST, disk.read(FIRST) + b"\0")
    with pytest.raises(JournalDamaged, match="65537 bytes of 65536 allocated"):
        open_journal(disk)


PATTERNS = {
    "lowest bit flipped": lambda byte: byte ^ 0x01,
    "highest bit flipped": lambda byte: byte ^ 0x80,
    "all bits flipped": lambda byte: byte ^ 0xFF,
    "zero": lambda byte: 0x00,
    "all bits set": lambda byte: 0xFF,
    "magic": lambda byte: 0xF7,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_changed_byte_of_the_last_batches_loses_nothing_that_was_acknowledged(pattern: str) -> None:
    disk, journal = acknowledged()
    expected = state(journal)
    content = disk.read(FIRST)
    starts = frame_starts(content)
    end = written_end(content)
    last_mark = starts[-1]
    for position in range(starts[-8], end):
        changed = bytearray(content)
        changed[position] = PATTERNS[pattern](changed[position])
        if bytes(changed) == content:
            continue
        disk.overwrite(FIRST, bytes(changed))
        was_refused = opens_with_everything_or_refuses(disk, expected)
        if position < last_mark:
            assert was_refused, f"byte {position} had been acknowledged"


def test_a_changed_byte_of_a_batch_that_lost_its_mark_is_refused_unless_it_looks_unwritten() -> None:
    """The power failed right after the acknowledgement, and took the mark with it."""
    disk, _ = acknowledged()
    content = disk.read(FIRST)
    start, mark = frame_starts(content)[-2:]
    assert start % SECTOR_BYTES < mark % SECTOR_BYTES  # within one sector
    content = content[:mark].ljust(len(content), b"\0")
    for position in range(start, mark):
        for value in (content[position] ^ 0x01, content[position] ^ 0x80, 0x5A):
            if value not in (0, content[position]):
                disk.overwrite(FIRST, content[:position] + bytes([value]) + content[position + 1 :])
                with pytest.raises(JournalDamaged, match="checksum"):
                    open_journal(disk)


def test_a_changed_byte_of_the_header_is_refused() -> None:
    disk, _ = acknowledged()
    content = disk.read(FIRST)
    for position in [*range(100), *range(100, HEADER_BYTES, 97), *range(HEADER_BYTES - 8, HEADER_BYTES)]:
        changed = bytearray(content)
        changed[position] ^= 0x10
        disk.overwrite(FIRST, bytes(changed))
        with pytest.raises(JournalDamaged):
            open_journal(disk)


def test_a_changed_byte_after_the_end_is_no_batch_and_is_taken_away() -> None:
    disk, journal = acknowledged()
    content = disk.read(FIRST)
    end = written_end(content)
    for position in [*range(end, end + 70), len(content) - 1]:
        changed = bytearray(content)
        changed[position] = 0xF7
        disk.overwrite(FIRST, bytes(changed))
        again = open_journal(disk)
        assert state(again) == state(journal)
        assert again.repair is not None
        assert again.repair.file == FIRST
        append(again, 1)
        commit(again)
        disk.kill()
        assert state(open_journal(disk)) == state(again)


@pytest.mark.parametrize("length", [SECTOR_BYTES, 4096])
def test_a_zeroed_or_foreign_block_before_the_last_mark_is_refused(length: int) -> None:
    disk, _ = acknowledged(60)
    content = disk.read(FIRST)
    end = written_end(content)
    last_mark = frame_starts(content)[-1]
    assert end > HEADER_BYTES + length
    for start in range(HEADER_BYTES, last_mark - length, SECTOR_BYTES):
        for block in (bytes(length), content[HEADER_BYTES : HEADER_BYTES + length]):
            changed = bytearray(content)
            changed[start : start + length] = block
            if bytes(changed) != content:
                disk.overwrite(FIRST, bytes(changed))
                with pytest.raises(JournalDamaged) as refused:
                    open_journal(disk)
                assert HEADER_BYTES <= refused.value.offset <= start + length


def test_a_batch_in_the_place_of_another_is_refused() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    for vote in ("n1", "n2", "n3"):
        journal.setCurrentTerm(5, vote)
        commit(journal)
    content = disk.read(FIRST)
    first, first_mark, second, second_mark, *_ = frame_starts(content)[2:]
    assert first_mark - first == second_mark - second
    changed = content[:second] + content[first:first_mark] + content[second_mark:]
    disk.overwrite(FIRST, changed)
    with pytest.raises(JournalDamaged) as refused:
        open_journal(disk)
    assert refused.value.offset == second


def test_damage_in_an_older_segment_is_refused() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    while len(segments(disk)) < 4:
        append(journal, 1, size=6000)
        commit(journal)
        disk.work()
    older = segments(disk)[:2]
    for name in older:
        content = disk.read(name)
        end = written_end(content)
        for position in [*range(end - 40, end), HEADER_BYTES + 3, HEADER_BYTES + 2000, end // 2]:
            for value in (content[position] ^ 0x04, 0x00):
                changed = bytearray(content)
                changed[position] = value
                if bytes(changed) != content:
                    copy = disk.copy()
                    copy.overwrite(name, bytes(changed))
                    with pytest.raises(JournalDamaged) as refused:
                        open_journal(copy)
                    assert refused.value.file == name


def test_batches_that_have_vanished_from_the_end_of_an_older_segment_are_noticed() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    while len(segments(disk)) < 3 or not disk.read(segments(disk)[1])[HEADER_BYTES]:
        append(journal, 1, size=3000)
        commit(journal)
        disk.work()
    content = disk.read(FIRST)
    for start in frame_starts(content)[1:]:
        copy = disk.copy()
        copy.overwrite(FIRST, content[:start].ljust(len(content), b"\0"))
        with pytest.raises(JournalDamaged) as refused:
            open_journal(copy)
        assert (refused.value.file, refused.value.offset) == (FIRST, start)


def test_a_segment_that_was_emptied_is_noticed() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    while len(segments(disk)) < 4:
        append(journal, 1, size=6000)
        commit(journal)
        disk.work()
    for name in segments(disk)[:2]:
        copy = disk.copy()
        copy.overwrite(name, disk.read(name)[:HEADER_BYTES].ljust(SEGMENT_BYTES, b"\0"))
        with pytest.raises(JournalDamaged) as refused:
            open_journal(copy)
        assert (refused.value.file, refused.value.offset) == (name, HEADER_BYTES)


# -- a batch that was never synced


def unacknowledged(journal: Journal) -> None:
    """A batch in which much is zero, so that missing sectors are hard to tell from written ones."""
    journal.setCurrentTerm(50, "n3")
    journal.deleteEntriesFrom(len(journal) - 1)
    append(journal, 1, term=40, size=300)
    append(journal, 1, term=40, size=1100, fill=b"\0")
    append(journal, 1, term=40, size=200, fill=b"\xf7TJF")


def opens_with_all_or_nothing_of_the_batch(disk: ModelDisk, before: State, after: State) -> bool:
    """Whether the batch came back. The journal must open, and go on."""
    journal = open_journal(disk)
    found = state(journal)
    assert found in (before, after)
    append(journal, 1, term=60)
    commit(journal)
    longer = state(journal)
    disk.kill()
    assert state(open_journal(disk)) == longer
    return found == after


def test_any_prefix_of_a_batch_that_was_never_synced_is_repaired() -> None:
    disk, journal = acknowledged()
    before = state(journal)
    acked = disk.read(FIRST)
    unacknowledged(journal)
    journal.flush_batch()
    after = state(journal)
    content = disk.read(FIRST)
    start, end = written_end(acked), written_end(content)
    assert end - start > 1600
    for length in range(start, end + 1):
        disk.overwrite(FIRST, content[:length].ljust(len(content), b"\0"))
        came_back = opens_with_all_or_nothing_of_the_batch(disk, before, after)
        assert came_back == (length == end)


def sector_mixes(durable: bytes, writes: list[tuple[int, bytes]]) -> Iterator[bytes]:
    """Every content that a disk can hold after the writes, none of them synced: each sector is as it was
    after any of them."""
    versions = [durable]
    for offset, data in writes:
        versions.append(versions[-1][:offset] + data + versions[-1][offset + len(data) :])
    first = min(offset for offset, _ in writes) // SECTOR_BYTES
    last = max(offset + len(data) - 1 for offset, data in writes) // SECTOR_BYTES
    choices = []
    for sector in range(first, last + 1):
        span = slice(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)
        choices.append(list(dict.fromkeys(version[span] for version in versions)))
    for sectors in itertools.product(*choices):
        yield durable[: first * SECTOR_BYTES] + b"".join(sectors) + durable[(last + 1) * SECTOR_BYTES :]


def start_of_batch_after(padding: int) -> tuple[ModelDisk, State, State, int]:
    """An acknowledged batch with so much padding, then one that was written and never synced."""
    disk, journal = acknowledged(1)
    journal.add(b"p" * padding, journal[-1][1] + 1, 3)
    commit(journal)
    before = state(journal)
    unacknowledged(journal)
    journal.flush_batch()
    (mark_offset, mark), (offset, _) = disk._names[FIRST].writes
    assert mark_offset + len(mark) == offset
    return disk, before, state(journal), offset


@pytest.mark.parametrize("remainder", range(8))
def test_any_sectors_of_a_batch_that_was_never_synced_are_repaired(remainder: int) -> None:
    """The batch begins at every place in a sector at which its header, or the mark before it, is split by the
    end of the sector, and at some others. The mark was not synced either."""
    *_, unpadded = start_of_batch_after(300)
    for place in (*range(SECTOR_BYTES - 64 + remainder, SECTOR_BYTES + 8, 8), 40 * remainder):
        disk, before, after, offset = start_of_batch_after(300 + (place - unpadded) % SECTOR_BYTES)
        assert (offset - place) % SECTOR_BYTES == 0
        inode = disk._names[FIRST]
        came_back = 0
        for content in sector_mixes(bytes(inode.durable), inode.writes):
            copy = disk.copy()
            copy.overwrite(FIRST, content)
            came_back += opens_with_all_or_nothing_of_the_batch(copy, before, after)
        assert came_back >= 1


def torn_first_batch() -> tuple[ModelDisk, State, State, bytes]:
    """A batch that begins a segment and was written, but not synced; and what that file then holds."""
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 9, size=6000)
    commit(journal)
    disk.work()
    before = state(journal)
    unacknowledged(journal)
    append(journal, 1, term=40, size=6000)
    ticket = journal.flush_batch()
    assert ticket is not None
    disk.fail_after(2)  # the old segment is synced, the frame is written, and then not synced
    with pytest.raises(PowerLost):
        ticket.sync()
    inode = disk._names[segments(disk)[1]]
    assert [offset for offset, _ in inode.writes] == [HEADER_BYTES]
    disk.kill()
    return disk, before, state(journal), bytes(inode.present)


def test_any_part_of_the_first_batch_of_a_segment_is_repaired() -> None:
    disk, before, after, content = torn_first_batch()
    second = segments(disk)[1]
    end = written_end(content)
    torn = [content[:length].ljust(len(content), b"\0") for length in range(HEADER_BYTES, end + 1, 7)]
    for start in range(HEADER_BYTES, end, SECTOR_BYTES):
        torn.append(content[:start] + bytes(SECTOR_BYTES) + content[start + SECTOR_BYTES :])
    for changed in torn:
        copy = disk.copy()
        copy.overwrite(second, changed)
        opens_with_all_or_nothing_of_the_batch(copy, before, after)


def test_a_repair_is_durable_before_anything_is_written_in_its_place() -> None:
    """Otherwise a crash could leave a sector of what was taken away among sectors of what came instead, which
    does not look torn."""
    disk, before, _, content = torn_first_batch()
    second = segments(disk)[1]
    disk.overwrite(second, content[: HEADER_BYTES + 5000].ljust(len(content), b"\0"))
    journal = open_journal(disk)
    append(journal, 1, term=60, size=9000)
    ticket = journal.flush_batch()
    assert ticket is not None
    disk.fail_after(2)
    with pytest.raises(PowerLost):
        ticket.sync()
    inode = disk._names[second]
    first_sector = HEADER_BYTES + SECTOR_BYTES
    disk.kill()
    disk.overwrite(second, bytes(inode.durable[:first_sector] + inode.present[first_sector:]))
    assert state(open_journal(disk)) == before


def test_a_batch_that_begins_a_segment_proves_that_the_one_before_was_durable() -> None:
    disk, _, _, content = torn_first_batch()
    older = disk.read(FIRST)
    last_mark = frame_starts(older)[-1]
    disk.overwrite(FIRST, older[:last_mark].ljust(len(older), b"\0"))
    disk.overwrite(segments(disk)[1], content[: HEADER_BYTES + 5000].ljust(len(content), b"\0"))
    assert state(open_journal(disk.copy()))  # the mark alone is gone: nothing is lost
    disk.overwrite(FIRST, older[: last_mark + 9].ljust(len(older), b"\0"))
    with pytest.raises(JournalDamaged) as refused:
        open_journal(disk)
    assert (refused.value.file, refused.value.offset) == (FIRST, last_mark)


def test_a_repair_that_is_cut_short_is_repaired_again() -> None:
    disk, journal = acknowledged()
    before = state(journal)
    acked = disk.read(FIRST)
    unacknowledged(journal)
    journal.flush_batch()
    content = disk.read(FIRST)
    start, end = written_end(acked), written_end(content)
    for missing in range(start // SECTOR_BYTES + 1, end // SECTOR_BYTES):
        span = slice(missing * SECTOR_BYTES, (missing + 1) * SECTOR_BYTES)
        torn = content[: span.start] + bytes(SECTOR_BYTES) + content[span.stop :]
        if torn == content:
            continue  # the sector holds nothing but zeros, and so is not missing
        for zeroed in range(start, end, 3):
            disk.overwrite(FIRST, torn[:start] + bytes(zeroed - start) + torn[zeroed:])
            assert state(open_journal(disk)) == before


def test_the_repair_says_what_it_took_away() -> None:
    disk, journal = acknowledged()
    start = written_end(disk.read(FIRST))
    unacknowledged(journal)
    journal.flush_batch()
    content = disk.read(FIRST)
    torn = content[: start + 700]
    disk.overwrite(FIRST, torn.ljust(len(content), b"\0"))
    repair = open_journal(disk).repair
    assert repair is not None
    assert (repair.file, repair.offset) == (FIRST, start)
    assert repair.bytes == written_end(torn) - start
    assert written_end(disk.read(FIRST)) == start


def test_a_client_cannot_forge_evidence_by_what_it_stores() -> None:
    """A value that holds a piece of this very journal is no batch, wherever the copy comes to stand."""
    disk, journal = acknowledged(20)
    content = disk.read(FIRST)
    before = state(journal)
    start = written_end(content)
    journal.add(content[HEADER_BYTES:start], journal[-1][1] + 1, 60)
    journal.flush_batch()
    written = disk.read(FIRST)
    for length in range(start + 1, written_end(written), 13):
        disk.overwrite(FIRST, written[:length].ljust(len(written), b"\0"))
        assert state(open_journal(disk)) == before
