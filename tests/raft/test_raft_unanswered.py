"""A follower that hears its leader and can't answer it for long."""

from raft_handkit import HandNet

from tenure_cluster.raft.replication import UNANSWERED_MAX


def test_a_follower_whose_answers_were_lost_for_long_is_heard_again_when_they_come_through() -> None:
    net = HandNet(3)
    net.elect("n1", "n2", "n3")
    net.pump()
    net.disconnect("n2", "n1")
    office = net["n1"].core.office
    assert office is not None
    for n in range(UNANSWERED_MAX + 10):
        net["n1"].propose(b"%d" % n)
        net["n1"].round(tick=True)
        net.deliver("n1", "n3")
        net.deliver("n1", "n2")
        net.deliver("n3", "n1")
        net["n1"].round(tick=True)
    assert net["n1"].commit == net["n1"].last
    net.connect("n2", "n1")
    net.pump()
    assert office is net["n1"].core.office
    assert office.followers["n2"].match_index == net["n1"].last
    assert net["n2"].commit == net["n1"].commit
    assert net["n2"].machine.values() == net["n1"].machine.values()
