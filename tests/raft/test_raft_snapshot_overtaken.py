"""A snapshot that is being received, and the log that catches up in the meantime by other means."""

import msgspec
from raft_handkit import OPTIONS, HandNet

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.snapshot_file import SnapshotInfo

EVERY = 20
"""Entries after which a snapshot is made."""


def behind() -> tuple[HandNet, wire.Snapshot]:
    """n1 lacks what n2, which leads, and n3 have; and the whole of the snapshot that it would be sent."""
    net = HandNet(3, options=msgspec.structs.replace(OPTIONS, snapshot_entries=EVERY))
    net.elect("n2", "n1", "n3")
    net.pump()
    net.isolate("n1")
    for n in range(EVERY + 5):
        net["n2"].propose(b"%d" % n)
        net.pump("n2", "n3", rounds=1)
    info = net["n2"].snapshots._store.latest()
    assert info is not None
    assert net["n1"].last < info.index
    data = net["n2"].disk.read(info.name)
    return net, wire.Snapshot(net["n2"].term, 1, info.index, info.term, info.size, 0, data)


def catch_up_by_entries(net: HandNet) -> None:
    """From a leader that has not compacted its log."""
    entries = [net.committed[index] for index in range(2, net["n2"].commit + 1)]
    append = wire.Append(net["n2"].term + 1, 2, 1, 0, net["n2"].commit, entries)
    net.inject("n3", "n1", append)
    net["n1"].round(tick=True)
    while net["n1"].core.behind:
        net["n1"].round(tick=True)
    assert net["n1"].commit >= net["n2"].commit


def test_a_transfer_that_nobody_goes_on_with_does_not_keep_a_node_from_making_snapshots() -> None:
    net, whole = behind()
    net.inject("n2", "n1", msgspec.structs.replace(whole, data=whole.data[:100]))
    catch_up_by_entries(net)
    for _ in range(3):
        net["n1"].disk.work()
        net["n1"].round(tick=True)
    assert net["n1"].snapshots.made == 1
    assert net["n1"].snapshots.latest_index == net["n2"].commit
    assert not any("received" in name for name in net["n1"].disk.names())


def test_a_transfer_that_still_brings_something_is_waited_for() -> None:
    net, whole = behind()
    net.inject("n2", "n1", msgspec.structs.replace(whole, data=whole.data[:100]))
    net["n1"].round(tick=True)
    net.inject("n2", "n1", msgspec.structs.replace(whole, number=2, offset=100, data=whole.data[100:]))
    net["n1"].disk.work()
    net["n1"].round(tick=True)
    assert net["n1"].snapshots.installed == 1


def test_who_wants_a_snapshot_is_told_of_one_that_came_and_was_not_needed_any_more() -> None:
    net, whole = behind()
    told: list[SnapshotInfo | None] = []
    net.inject("n2", "n1", whole)
    net["n1"].snapshots.want(lambda info, error: told.append(info))
    entries = [net.committed[index] for index in range(2, whole.index + 1)]
    net.inject("n3", "n1", wire.Append(net["n2"].term + 1, 2, 1, 0, whole.index, entries))
    net["n1"].round(tick=True)
    assert net["n1"].commit == whole.index, "the log was faster than the disk"
    for _ in range(3):
        net["n1"].disk.work()
        net["n1"].round(tick=True)
    assert net["n1"].snapshots.installed == 0
    assert [info and info.index for info in told] == [whole.index]
