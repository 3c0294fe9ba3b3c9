"""The journal on a disk that never fails: what it says to PySyncObj, how it grows, shrinks and comes back."""

import contextlib
import errno
import itertools
import random

import pytest
from disk_model import ModelDisk, PowerLost
from journal_cases import append, commit, open_journal, segments, state, write

from tenure_cluster import faults
from tenure_cluster.raft.journal import Entry, InconsistentLog, Journal, JournalDamaged, JournalFailed


def reopened(disk: ModelDisk, snapshot: tuple[Entry, Entry] | None = None) -> Journal:
    disk.kill()
    return open_journal(disk, snapshot)


def fill_segments(disk: ModelDisk, journal: Journal, count: int) -> None:
    while len(segments(disk)) < count:
        append(journal, 1, size=6000)
        commit(journal)
        disk.work()


def test_a_new_journal_is_empty_and_knows_no_term() -> None:
    journal = open_journal(ModelDisk())
    assert len(journal) == 0
    assert state(journal) == ([], 0, None)
    assert not journal.dirty
    assert journal.flush_batch() is None


def test_what_was_made_durable_comes_back_as_the_same_tuples() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    journal.add(b"\x01", 1, 0)
    journal.setCurrentTerm(3, "n1")
    journal.add(b"command", 2, 3)
    assert journal.dirty
    commit(journal)
    assert not journal.dirty

    again = reopened(disk)
    assert again[:] == [(b"\x01", 1, 0), (b"command", 2, 3)]
    assert again[1] == again[-1] == (b"command", 2, 3)
    assert isinstance(again[0], tuple)
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (3, "n1")


def test_a_vote_can_be_taken_back_and_is_remembered_so() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    journal.setCurrentTerm(7, "n2")
    commit(journal)
    journal.setCurrentTerm(8, None)
    commit(journal)
    assert state(reopened(disk)) == ([], 8, None)


def test_saying_the_same_term_and_vote_again_writes_nothing() -> None:
    journal = open_journal(ModelDisk())
    journal.setCurrentTerm(7, "n2")
    commit(journal)
    journal.setCurrentTerm(7, "n2")
    assert not journal.dirty


def test_the_commit_index_is_not_kept() -> None:
    journal = open_journal(ModelDisk())
    journal.setRaftCommitIndex(50)
    assert journal.getRaftCommitIndex() == 1


def test_entries_from_a_position_on_are_taken_away() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 10, term=1)
    commit(journal)
    journal.deleteEntriesFrom(6)
    assert journal[-1][1] == 6
    journal.add(b"other", 7, 2)
    commit(journal)
    journal.deleteEntriesFrom(7)  # nothing stands there: not an error, and no record
    assert not journal.dirty
    entries = journal[:]
    assert len(entries) == 7
    assert reopened(disk)[:] == entries


def test_what_is_added_while_a_batch_is_in_flight_belongs_to_the_next_batch() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 2)
    ticket = journal.flush_batch()
    assert ticket is not None
    assert journal.in_flight
    append(journal, 1)
    assert journal.dirty
    with pytest.raises(RuntimeError, match="in flight"):
        journal.flush_batch()
    ticket.sync()
    journal.mark_durable()
    assert journal.durable_index == 2
    assert len(reopened(disk)) == 2


def test_the_durable_index_rises_with_the_mark_and_falls_with_a_cut() -> None:
    journal = open_journal(ModelDisk())
    append(journal, 10)
    assert journal.durable_index == 0
    write(journal)
    assert journal.durable_index == 0
    journal.deleteEntriesFrom(4)
    append(journal, 3, term=1)
    journal.mark_durable()
    assert journal.durable_index == 4  # entries 5 to 7 are others than those that were written
    commit(journal)
    assert journal.durable_index == 7
    journal.deleteEntriesFrom(2)
    assert journal.durable_index == 2


def test_marking_without_a_batch_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="no batch"):
        open_journal(ModelDisk()).mark_durable()


def test_a_gap_and_a_falling_term_are_refused() -> None:
    journal = open_journal(ModelDisk())
    journal.add(b"a", 1, 5)
    for index, term in ((3, 5), (1, 5), (2, 4)):
        with pytest.raises(InconsistentLog):
            journal.add(b"b", index, term)
    journal.setCurrentTerm(6, None)
    with pytest.raises(InconsistentLog):
        journal.setCurrentTerm(5, "n1")
    assert len(journal) == 1


def test_a_batch_is_one_write_and_one_sync() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 100)
    before = disk.operations
    journal.flush_batch()
    assert disk.operations == before + 1


def test_the_next_segment_is_ready_long_before_it_is_needed() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    assert segments(disk) == ["journal-0000000001.seg"]
    append(journal, 3, size=6000)
    commit(journal)
    disk.work()
    assert segments(disk) == ["journal-0000000001.seg", "journal-0000000002.seg"]
    assert journal.space_bytes > 100_000
    assert len(disk.read("journal-0000000002.seg")) == len(disk.read("journal-0000000001.seg"))


def test_the_log_goes_on_in_the_next_segment() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    journal.setCurrentTerm(4, "n3")
    fill_segments(disk, journal, 5)
    assert journal.stats.segments_made >= 4
    before = state(journal)
    again = reopened(disk)
    assert state(again) == before
    append(again, 1)
    commit(again)
    assert len(reopened(disk)) == len(before[0]) + 1


def test_a_segment_that_is_not_allocated_yet_is_made_by_the_sync() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    for _ in range(30):
        append(journal, 1, size=6000)
        commit(journal)  # and the disk's thread never gets to the allocation
    before = state(journal)
    disk.work()
    append(journal, 1)
    commit(journal)
    assert len(reopened(disk)) == len(before[0]) + 1


def test_an_allocation_may_be_anywhere_when_its_segment_is_needed() -> None:
    for pieces in (0, 1, 2, 7, 11, 12, 13, 14):
        disk = ModelDisk()
        journal = open_journal(disk, segment_bytes=3 << 20)
        append(journal, 1, size=2 << 20)
        commit(journal)
        disk.work(pieces)
        for _ in range(3):
            append(journal, 1, size=1 << 20)
            commit(journal)
        before = state(journal)
        disk.work()
        append(journal, 1)
        commit(journal)
        assert state(reopened(disk))[0][:-1] == before[0]


def test_a_batch_that_is_larger_than_a_segment_gets_a_larger_segment() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    for size in (10, 300_000, 10, 70_000, 500_000):
        append(journal, 1, size=size)
        commit(journal)
        disk.work()
    assert state(reopened(disk)) == state(journal)


def test_a_larger_segment_replaces_the_one_that_was_ready() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 3, size=6000)
    commit(journal)
    disk.work()
    assert len(segments(disk)) == 2
    append(journal, 1, size=100_000)
    commit(journal)
    assert len(segments(disk)) == 2
    append(journal, 1)
    commit(journal)
    assert state(reopened(disk)) == state(journal)


def test_a_segment_that_was_ready_is_used_after_a_restart() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 3, size=6000)
    commit(journal)
    disk.work()
    again = reopened(disk)
    names = segments(disk)
    append(again, 6, size=6000)
    commit(again)
    append(again, 6, size=6000)
    commit(again)
    assert segments(disk) == names
    assert state(reopened(disk)) == state(again)


def boundary(journal: Journal, index: int) -> tuple[Entry, Entry]:
    position = index - journal[0][1]
    return journal[position - 1], journal[position]


def compact(disk: ModelDisk, journal: Journal, index: int) -> tuple[Entry, Entry]:
    """What PySyncObj does when a snapshot that ends at ``index`` is durable."""
    snapshot = boundary(journal, index)
    journal.deleteEntriesTo(index - 1 - journal[0][1])
    disk.work()
    return snapshot


def test_compaction_removes_the_segments_that_are_covered_and_no_other() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    journal.setCurrentTerm(9, "n2")
    fill_segments(disk, journal, 6)
    entries = journal[:]
    held = {name: disk.read(name) for name in segments(disk)}
    for index in range(2, len(entries) + 1, 3):
        snapshot = compact(disk, journal, index)
        assert (journal[0], journal[1]) == snapshot
        for name in segments(disk):
            assert disk.read(name)[: len(held[name])].startswith(held[name][:4096])
        copy = disk.copy()
        again = open_journal(copy, snapshot)
        assert state(again) == (entries[index - 2 :], 9, "n2")
    assert len(segments(disk)) < 4


def test_compaction_to_the_last_entry_leaves_the_snapshots_two_entries() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    fill_segments(disk, journal, 4)
    last = journal[-1][1]
    snapshot = compact(disk, journal, last)
    assert journal[:] == list(snapshot)
    assert reopened(disk, snapshot)[:] == list(snapshot)


def test_term_and_vote_outlive_the_segment_in_which_they_were_written() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    journal.setCurrentTerm(77, "n3")
    commit(journal)
    fill_segments(disk, journal, 5)
    snapshot = compact(disk, journal, journal[-1][1])
    assert segments(disk)[0] != "journal-0000000001.seg"
    again = reopened(disk, snapshot)
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (77, "n3")


def test_the_segment_before_is_kept_until_its_successor_is_durable() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 8, size=6000)
    commit(journal)
    disk.work()
    append(journal, 8, size=6000)
    ticket = journal.flush_batch()
    assert ticket is not None
    journal.deleteEntriesTo(12)
    disk.work()
    assert segments(disk)[0] == "journal-0000000001.seg"


def test_a_crash_anywhere_in_a_compaction_leaves_a_journal_that_opens() -> None:
    for operations, seed in itertools.product(range(9), range(8)):
        disk = ModelDisk()
        journal = open_journal(disk)
        journal.setCurrentTerm(9, "n2")
        fill_segments(disk, journal, 5)
        disk.work()
        last = journal[-1][1]
        snapshot = boundary(journal, last)
        disk.fail_after(operations)
        with contextlib.suppress(PowerLost):
            compact(disk, journal, last)
        disk.lose_power(random.Random(seed))
        assert state(open_journal(disk, snapshot)) == (list(snapshot), 9, "n2")


def test_a_segment_whose_name_was_not_durable_when_the_process_ended_is_made_so() -> None:
    for seed in range(8):
        disk = ModelDisk()
        journal = open_journal(disk)
        append(journal, 3, size=6000)
        commit(journal)
        faults.arm("journal.segment_rename", lambda disk=disk: disk.fail_after(1))
        with pytest.raises(PowerLost):
            disk.work()
        faults.disarm()
        again = reopened(disk)
        assert len(segments(disk)) == 2
        append(again, 9, size=6000)
        commit(again)
        disk.lose_power(random.Random(seed))
        assert state(open_journal(disk)) == state(again)


def test_compaction_never_empties_the_log() -> None:
    journal = open_journal(ModelDisk())
    append(journal, 3)
    for position in (3, 4, -1):
        with pytest.raises(InconsistentLog):
            journal.deleteEntriesTo(position)
    assert len(journal) == 3


def test_an_installed_snapshot_restarts_the_log_with_its_two_entries() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    journal.setCurrentTerm(2, None)
    fill_segments(disk, journal, 4)
    snapshot = ((b"p", 900, 2), (b"l", 901, 2))
    journal.rebase(snapshot)
    append(journal, 2)
    commit(journal)
    disk.work()
    assert len(segments(disk)) <= 2  # the one in use, and the next
    before = state(journal)
    assert before[0][:2] == list(snapshot)
    assert journal.durable_index == 903
    assert state(reopened(disk, snapshot)) == before


def test_an_installed_snapshot_makes_a_longer_log_that_was_never_committed_superfluous() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    fill_segments(disk, journal, 4)
    assert journal[-1][1] > 20
    snapshot = ((b"p", 10, 2), (b"l", 11, 2))
    journal.rebase(snapshot)
    commit(journal)
    disk.work()
    assert len(segments(disk)) <= 2
    assert reopened(disk, snapshot)[:] == list(snapshot)


def test_pysyncobj_restarts_the_log_by_clearing_it_and_adding_two_entries() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 5)
    commit(journal)
    journal.clear()
    assert len(journal) == 0
    journal.add(b"p", 900, 2)
    journal.add(b"l", 901, 2)
    commit(journal)
    snapshot = (journal[0], journal[1])
    assert reopened(disk, snapshot)[:] == list(snapshot)


def test_a_log_that_ends_before_the_snapshot_is_restarted_at_the_snapshot() -> None:
    snapshot = ((b"p", 40, 2), (b"l", 41, 3))
    for count in (0, 1, 39, 40):
        disk = ModelDisk()
        journal = open_journal(disk)
        journal.setCurrentTerm(3, "n2")
        append(journal, count, term=2)
        commit(journal)
        again = reopened(disk, snapshot)
        assert state(again) == (list(snapshot), 3, "n2")
        assert not again.dirty
        assert state(reopened(disk, snapshot)) == state(again)


def test_a_log_that_contradicts_the_snapshot_in_an_older_term_is_restarted_there() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 60, term=2)  # from 41 on never committed: the cluster has another entry 41
    commit(journal)
    snapshot = (journal[39], (b"l", 41, 3))
    assert reopened(disk, snapshot)[:] == list(snapshot)


def test_a_log_that_goes_beyond_the_snapshot_keeps_what_follows_it() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 60, term=2)
    commit(journal)
    entries = journal[:]
    snapshot = boundary(journal, 41)
    again = reopened(disk, snapshot)
    assert again[:] == entries[39:]
    assert (again[0], again[1]) == snapshot


def test_entries_that_the_snapshot_contradicts_otherwise_are_refused() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 60, term=2)
    commit(journal)
    previous, last = boundary(journal, 41)
    for wrong in (
        (previous, (b"other", 41, 2)),
        ((b"other", 40, 2), last),
    ):
        with pytest.raises(JournalDamaged, match="entry 41"):
            open_journal(disk.copy(), wrong)


def test_a_snapshot_that_has_gone_is_noticed() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    fill_segments(disk, journal, 5)
    older = boundary(journal, 3)
    snapshot = compact(disk, journal, journal[-1][1])
    for wrong in (None, older):
        with pytest.raises(JournalDamaged, match="snapshot"):
            open_journal(disk.copy(), wrong)
    assert open_journal(disk.copy(), snapshot)[:] == list(snapshot)


def test_a_journal_that_has_gone_is_noticed_when_there_is_a_snapshot() -> None:
    with pytest.raises(JournalDamaged, match="no journal"):
        open_journal(ModelDisk(), ((b"p", 40, 2), (b"l", 41, 3)))


def test_a_missing_segment_is_noticed() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    fill_segments(disk, journal, 5)
    for name in segments(disk)[1:-1]:
        copy = disk.copy()
        copy.remove(name)
        with pytest.raises(JournalDamaged) as refused:
            open_journal(copy)
        assert refused.value.file == name
    copy = disk.copy()
    copy.remove(segments(disk)[0])
    with pytest.raises(JournalDamaged, match="no snapshot"):
        open_journal(copy)


def test_the_journal_of_another_node_or_cluster_is_refused() -> None:
    disk = ModelDisk()
    open_journal(disk)
    with pytest.raises(JournalDamaged, match="belongs to node 'n1' of cluster 'cluster'"):
        open_journal(disk.copy(), node_id="n2")
    with pytest.raises(JournalDamaged, match="belongs to"):
        open_journal(disk.copy(), cluster_id="other")


def test_segments_under_another_name_are_refused() -> None:
    disk = ModelDisk()
    open_journal(disk)
    disk.rename("journal-0000000001.seg", "journal-0000000002.seg")
    with pytest.raises(JournalDamaged, match=r"written as journal-0000000001\.seg"):
        open_journal(disk)


def test_what_an_unfinished_allocation_left_is_removed_at_start() -> None:
    disk = ModelDisk()
    journal = open_journal(disk, segment_bytes=4 << 20)
    append(journal, 1, size=2 << 20)
    commit(journal)
    disk.work(2)
    assert any(name.endswith(".new") for name in disk.names())
    disk.kill()
    open_journal(disk)
    assert disk.names() == ["journal-0000000001.seg"]


def test_a_full_disk_lets_the_present_segment_be_used_up_and_recovers() -> None:
    disk = ModelDisk(space_bytes=100 << 10)
    journal = open_journal(disk)
    append(journal, 3, size=6000)
    commit(journal)
    disk.work()
    assert journal.allocation_error is not None
    assert journal.allocation_error.errno == errno.ENOSPC
    assert segments(disk) == ["journal-0000000001.seg"]
    assert disk.names() == segments(disk)
    append(journal, 3, size=6000)
    commit(journal)
    disk.work()
    assert journal.space_bytes > 20_000
    disk.space_bytes = 1 << 20
    journal.onOneSecondTimer()
    disk.work()
    assert journal.allocation_error is None
    assert len(segments(disk)) == 2


def test_a_full_disk_fails_the_sync_of_the_batch_that_needs_the_next_segment() -> None:
    disk = ModelDisk(space_bytes=100 << 10)
    journal = open_journal(disk)
    append(journal, 9, size=6000)
    commit(journal)
    disk.work()
    before = state(journal)
    append(journal, 3, size=6000)
    ticket = journal.flush_batch()
    assert ticket is not None
    with pytest.raises(OSError, match="full"):
        ticket.sync()
    assert journal.in_flight  # and so nothing of it can ever be acknowledged
    disk.space_bytes = 1 << 20
    assert state(reopened(disk)) == before


def test_an_error_of_the_background_ends_the_journal() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 3, size=6000)
    commit(journal)
    disk.sync_error = OSError(errno.EIO, "broken")
    disk.work()
    append(journal, 1)
    with pytest.raises(JournalFailed):
        journal.flush_batch()


def test_a_failed_sync_leaves_nothing_to_acknowledge() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 1)
    disk.sync_error = OSError(errno.EIO, "broken")
    ticket = journal.flush_batch()
    assert ticket is not None
    with pytest.raises(OSError, match="broken"):
        ticket.sync()
    assert journal.durable_index == 0
    append(journal, 1)
    with pytest.raises(RuntimeError, match="in flight"):
        journal.flush_batch()


@pytest.mark.parametrize("rolls", [False, True])
def test_what_is_found_after_a_failed_sync_is_written_once_more(rolls: bool) -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 9 if rolls else 1, size=6000)
    commit(journal)
    disk.work()
    append(journal, 1, size=9000 if rolls else 100)
    ticket = journal.flush_batch()
    assert ticket is not None
    disk.sync_error = OSError(errno.EIO, "broken")
    disk.good_syncs = int(rolls)  # that of the old segment
    with pytest.raises(OSError, match="broken"):
        ticket.sync()
    disk.sync_error = None
    again = reopened(disk)
    before = state(again)
    assert len(before[0]) == len(journal)
    disk.lose_power(random.Random(1))
    assert state(open_journal(disk)) == before


def test_what_was_not_flushed_is_lost_when_the_journal_is_closed() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 2)
    commit(journal)
    append(journal, 1)
    journal._destroy()
    journal._destroy()
    assert len(reopened(disk)) == 2


def test_opening_makes_durable_what_was_only_written() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 2)
    journal.flush_batch()
    again = reopened(disk)
    assert len(again) == 2
    assert again.durable_index == 2
    assert disk._names["journal-0000000001.seg"].durable.count(b"2.cccc") == 1


@pytest.mark.parametrize("size", [0, (64 << 10) - 1, (1 << 30) + 1])
def test_a_segment_size_out_of_bounds_is_refused_naming_them(size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes; from 65536 to 1073741824"):
        open_journal(ModelDisk(), segment_bytes=size)
