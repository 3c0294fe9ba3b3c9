"""Faults for somebody's own tests, with the plugin's own cluster and a user's client."""

import pytest

import tenure
from tenure.errors import ClusterUnavailable, OutcomeUnknown
from tenure_chaos.live.chaos import Chaos, ChaosError

pytest_plugins = ["tenure_chaos.live.pytest_plugin"]

pytestmark = pytest.mark.process

PATIENCE_S = 30.0
SHORT_S = 2.0


def grant(endpoints: str, key: str, *, timeout: float = PATIENCE_S) -> int:
    """Acquire and release as a user would; the token."""
    with (
        tenure.connect_sync(endpoints, timeout=timeout) as client,
        client.lease(key, ttl=5, wait=timeout) as held,
    ):
        return held.token


def test_clients_are_served_through_the_proxies_alone(chaos: Chaos) -> None:
    assert grant(chaos.endpoints, "a") > 0
    with chaos.refuse_client(), pytest.raises((ClusterUnavailable, OutcomeUnknown)):
        grant(chaos.endpoints, "a", timeout=SHORT_S)
    assert grant(chaos.endpoints, "a") > 0


def test_a_killed_leader_is_followed_by_another_and_comes_back(chaos: Chaos) -> None:
    before = grant(chaos.endpoints, "b")
    killed = chaos.kill_leader()
    assert chaos.leader() != killed
    assert grant(chaos.endpoints, "b") > before
    chaos.start(killed)
    assert chaos.strikes == {}


def test_a_leader_alone_on_its_side_is_replaced(chaos: Chaos) -> None:
    old = chaos.leader()
    others = [node for node in chaos.nodes if node != old]
    with chaos.partition(old, clients_with=others[0]) as strike:
        assert strike.what == f"partition {old} | {' '.join(others)}"
        assert grant(chaos.endpoints, "c") > 0
        assert chaos.leader() in others


def test_a_cluster_in_three_parts_grants_nothing_until_it_is_healed(chaos: Chaos) -> None:
    with (
        chaos.partition(*chaos.nodes),
        pytest.raises((ClusterUnavailable, OutcomeUnknown, tenure.LeaseUnavailable)),
    ):
        grant(chaos.endpoints, "d", timeout=SHORT_S)
    assert grant(chaos.endpoints, "d") > 0


def test_a_paused_node_is_not_missed(chaos: Chaos) -> None:
    with chaos.pause(chaos.leader()):
        assert grant(chaos.endpoints, "e") > 0


def test_what_is_begun_without_a_block_is_healed_with_all(chaos: Chaos) -> None:
    chaos.cut_client("n1")
    chaos.slow(latency_ms=20)
    chaos.lose_replies("n2")
    assert len(chaos.strikes) == 3
    chaos.heal()
    assert chaos.strikes == {}
    for node in chaos.nodes:
        assert grant(chaos.endpoint(node), "f") > 0


def test_what_makes_no_sense_is_refused_with_words(chaos: Chaos) -> None:
    with pytest.raises(ChaosError, match="no node 'n9'"):
        chaos.pause("n9")
    with pytest.raises(ChaosError, match="two groups"):
        chaos.partition()
    with pytest.raises(ChaosError, match="no node is in two"):
        chaos.partition("n1", ["n1", "n2"])
    with pytest.raises(ChaosError, match="n1 was not killed here"):
        chaos.start("n1")
