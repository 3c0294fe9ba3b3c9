"""What the others show a node that has just started, and when it is a fault."""

from tenure_cluster.raft.admission import DOUBLE, OTHER_CLUSTER
from tenure_cluster.start_checks import CLOCK_TOLERANCE_MS, WINDOW_S, StartChecks

ELSEWHERE = f"{OTHER_CLUSTER}'parcels', this node is of 'orders'"
TWICE = f"{DOUBLE} 'n1', and was here before"
FAR = CLOCK_TOLERANCE_MS + 1_000


class Started:
    """A node n1 with others, on a clock that the test moves."""

    def __init__(self, *peers: str) -> None:
        self.now_s = 100.0
        self.faults: list[str] = []
        self.checks = StartChecks("n1", peers, lambda: self.now_s, self.faults.append)
        self.checks.begin()


def test_more_than_half_of_the_others_make_it_another_cluster() -> None:
    node = Started("n2", "n3", "n4", "n5")
    for peer in ("n2", "n2", "n3"):
        node.checks.refused(peer, ELSEWHERE)
    assert node.faults == []
    node.checks.refused("n4", ELSEWHERE)
    [told] = node.faults
    assert told.startswith("n2 and n3 and n4 are nodes of another cluster")
    assert "correct the addresses in [members] or the cluster_id" in told


def test_others_are_those_that_the_log_names_by_then() -> None:
    node = Started("n2", "n3")
    node.checks.begin({"n2", "n3", "n4", "n5"})
    for peer in ("n2", "n3", "n9"):
        node.checks.refused(peer, ELSEWHERE)
    assert node.faults == []
    node.checks.refused("n5", ELSEWHERE)
    [told] = node.faults
    assert told.startswith("n2 and n3 and n5 are nodes of another cluster")


def test_one_word_is_enough_for_a_double() -> None:
    node = Started("n2", "n3")
    node.checks.refused("n2", TWICE)
    [told] = node.faults
    assert "another process runs as node 'n1'" in told
    assert "stop that one, or give this node an id of its own" in told


def test_other_refusals_are_no_fault_of_a_start() -> None:
    node = Started("n2", "n3")
    for peer in ("n2", "n3"):
        node.checks.refused(peer, "it counts n1, n2 as members, this node n1, n2, n3")
    assert node.faults == []


def test_a_clock_that_is_off_from_the_others_is_told_with_the_direction() -> None:
    for skew, word in ((FAR, "61 s behind n2, 61 s behind n3"), (-FAR, "61 s ahead of n2, 61 s ahead of n3")):
        node = Started("n2", "n3")
        node.checks.clocks({"n2": skew, "n3": skew})
        [told] = node.faults
        assert word in told
        assert "set it" in told


def test_whose_clock_is_wrong_must_be_clear() -> None:
    node = Started("n2", "n3")
    node.checks.clocks({"n2": FAR})
    node.checks.clocks({"n2": FAR, "n3": 0})
    node.checks.clocks({"n2": CLOCK_TOLERANCE_MS, "n3": -CLOCK_TOLERANCE_MS})
    two = Started("n2")
    two.checks.clocks({"n2": FAR})
    five = Started("n2", "n3", "n4", "n5")
    five.checks.clocks({"n2": FAR, "n3": FAR})
    assert node.faults == two.faults == five.faults == []
    five.checks.clocks({"n2": FAR, "n3": FAR, "n4": FAR})
    assert len(five.faults) == 1


def test_clocks_are_compared_until_all_have_been_seen() -> None:
    node = Started("n2", "n3")
    assert not node.checks.compared
    node.checks.clocks({"n2": 0})
    assert not node.checks.compared
    node.checks.clocks({"n2": 0, "n3": 0})
    assert node.checks.compared


def test_a_node_that_has_run_for_longer_is_not_ended_by_what_others_say() -> None:
    node = Started("n2", "n3")
    node.now_s += WINDOW_S + 1
    node.checks.refused("n2", TWICE)
    node.checks.clocks({"n2": FAR, "n3": FAR})
    assert node.faults == []
    assert node.checks.over


def test_a_fault_is_told_once_and_a_cluster_of_one_has_none() -> None:
    node = Started("n2", "n3")
    node.checks.refused("n2", TWICE)
    node.checks.refused("n3", TWICE)
    assert len(node.faults) == 1
    assert node.checks.over
    assert Started().checks.over
