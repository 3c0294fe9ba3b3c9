"""Answers to what this process asked as a leader in its life before: its numbers began at the same place."""

import pytest
from raft_handkit import HandNet

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.read_barrier import quorum_number


@pytest.mark.parametrize("kind", [wire.AppendReply, wire.SnapshotReply])
def test_an_answer_to_the_life_before_does_not_confirm_a_read(
    kind: type[wire.AppendReply] | type[wire.SnapshotReply],
) -> None:
    net = HandNet(3)
    net.elect("n1", "n2", "n3")
    net.pump()
    before = net["n1"].term
    net.crash("n1")
    net.restart("n1")
    net.elect("n1", "n2", "n3")
    net.pump("n1", "n2")
    leader = net["n1"].core
    assert leader.office is not None
    confirmed = leader.office.answered()["n3"]
    net.clock.now_s += 10.0
    leader.heartbeat()
    net["n1"].round()
    asked, since_s = leader.last_number, leader.office.followed_since_s(net.clock.now_s)
    if kind is wire.AppendReply:
        late: wire.Consensus = wire.AppendReply(before, asked, True, 2)
    else:
        late = wire.SnapshotReply(before, asked, 1, 0, False)
    net.inject("n3", "n1", late)
    assert leader.office is not None
    assert leader.office.answered()["n3"] == confirmed
    assert quorum_number(leader.office.answered(), leader.voter_count) < asked
    assert leader.office.followed_since_s(net.clock.now_s) == since_s
    net.inject("n3", "n1", wire.AppendReply(net["n1"].term, asked, True, 2))
    assert quorum_number(leader.office.answered(), leader.voter_count) == asked
