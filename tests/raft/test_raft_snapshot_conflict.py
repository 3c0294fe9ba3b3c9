"""A snapshot that was received, and a log that has another entry where that ends."""

from disk_model import ModelDisk
from journal_cases import append, commit, open_journal
from raft_handkit import HandNet

from tenure_cluster.raft import messages as wire


def test_a_log_that_contradicts_the_snapshot_in_a_later_term_is_restarted_there() -> None:
    disk = ModelDisk()
    journal = open_journal(disk)
    append(journal, 38, term=1)
    append(journal, 10, term=3)  # by a leader that nobody followed
    commit(journal)
    disk.kill()
    snapshot = ((b"p", 40, 2), (b"l", 41, 2))  # committed by the leader of term 4, which had them of term 2
    again = open_journal(disk, snapshot)
    assert again[:] == list(snapshot)
    disk.kill()
    assert open_journal(disk, snapshot)[:] == list(snapshot)


def test_a_node_whose_later_entries_were_never_committed_starts_on_the_snapshot_of_earlier_ones() -> None:
    net = HandNet(3)
    net.elect("n1", "n2", "n3")
    net.pump()
    net.isolate("n1")
    assert net["n1"].propose(*(b"%d" % n for n in range(5)))
    net["n1"].round()
    earlier, index = net["n1"].term, net["n1"].last
    net.elect("n2", "n3")
    net.isolate("n2")
    assert net["n2"].propose(*(b"never %d" % n for n in range(7)))
    net["n2"].round()
    assert net["n2"].core.replica.term_at(index) == earlier + 1
    net.connect("n1", "n3")
    net.connect("n3", "n1")
    net.inject("n3", "n1", wire.HigherTerm(net["n3"].term))
    net.elect("n1", "n3")
    net.pump("n1", "n3")
    assert net["n1"].commit > index
    leader, replica = net["n1"], net["n1"].core.replica
    # Applied in two slices, with a snapshot made in between.
    state = iter([b"".join(leader.machine.snapshot())])
    leader.snapshots._store.save(
        replica.entry(index), replica.entry(index - 1), state, lambda info, error: None
    )
    leader.disk.work()
    info = leader.snapshots._store.latest()
    assert info is not None
    assert (info.index, info.term) == (index, earlier)
    data = leader.disk.read(info.name)
    net.inject("n1", "n2", wire.Snapshot(leader.term, 1, info.index, info.term, info.size, 0, data))
    net["n2"].disk.work()  # the file has its name; the log still has entries of a later term
    net.crash("n2")
    net.restart("n2")
    assert net["n2"].commit == index
    net.pump(rounds=12)
    assert net["n2"].last == net["n1"].last
    assert net["n2"].core.replica.log[-1] == net["n1"].core.replica.log[-1]
