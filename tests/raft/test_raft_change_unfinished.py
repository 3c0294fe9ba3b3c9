"""A change of members that an earlier leader began and did not finish, and that is asked for again."""

from raft_handkit import HandNet

from tenure_cluster.raft import RaftError
from tenure_cluster.raft.changes import Changed, Changes
from tenure_cluster.raft.membership import Add, changed, encode_members

N4 = Add("n4", "h4:1", "http://h4")


def left_by_a_leader() -> HandNet:
    """n1 has begun a change, which n2 alone has heard of, and is dead; n2 leads."""
    net = HandNet(3)
    net.elect("n1", "n2", "n3")
    net.pump()
    net.isolate("n3")
    before = net["n1"].core
    before.append(encode_members(changed(before.members.current, N4, before.replica.last_index + 1)))
    net["n1"].round()
    net.deliver("n1", "n2")
    net.crash("n1")
    net.connect("n2", "n3")
    net.connect("n3", "n2")
    net.elect("n2", "n3")
    return net


def test_a_change_is_told_as_done_when_the_entry_of_the_leader_before_is_committed_and_not_sooner() -> None:
    net = left_by_a_leader()
    leader = net["n2"].core
    assert "n4" in leader.members.current.names
    assert leader.members.current.index > leader.replica.commit_index
    told: list[Changed | RaftError] = []
    changes = Changes(1.0, lambda done, outcome: done(outcome))
    changes.begin(leader, N4, told.append)
    added = changes.advance(leader, net.clock.now_s, (), held=False)
    assert (told, added) == ([], False), "only two of three have it, and one of them is dead"
    net.pump("n2", "n3")
    assert leader.members.current.index <= leader.replica.commit_index
    assert not changes.advance(leader, net.clock.now_s, (), held=False)
    [outcome] = told
    assert isinstance(outcome, Changed)
    assert "n4" in outcome.membership.names


def test_a_change_of_the_leader_before_that_is_lost_with_this_leader_was_not_told_as_done() -> None:
    net = left_by_a_leader()
    told: list[Changed | RaftError] = []
    changes = Changes(1.0, lambda done, outcome: done(outcome))
    changes.begin(net["n2"].core, N4, told.append)
    changes.advance(net["n2"].core, net.clock.now_s, (), held=False)
    changes.end_office(None)
    assert [type(outcome).__name__ for outcome in told] == ["NotLeader"]
