"""Cluster time: starts at the base, never falls, does not count stalls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure_cluster.raft.cluster_clock import ClusterClock

STALL_S = 0.25


def make(base_ms: int = 1000, now_s: float = 50.0) -> ClusterClock:
    return ClusterClock(base_ms, now_s, STALL_S)


def test_time_is_the_base_plus_what_has_passed_since_taking_office() -> None:
    clock = make()
    assert clock.now_ms(50.0) == 1000
    assert clock.now_ms(50.2) == 1200
    assert clock.now_ms(50.3005) == 1300


def test_a_stall_does_not_count() -> None:
    clock = make()
    clock.observe(50.2)
    assert clock.now_ms(53.2) == pytest.approx(1200, abs=1), "three seconds in which nobody looked"
    assert clock.now_ms(53.3) == pytest.approx(1300, abs=1)
    assert clock.stalls == 1


def test_looking_often_enough_is_not_a_stall() -> None:
    clock = make()
    for step in range(1, 101):
        clock.observe(50.0 + step * 0.2)
    assert clock.now_ms(70.0) == pytest.approx(21000, abs=1)
    assert clock.confirmed


def test_after_a_stall_only_a_quorum_round_that_began_later_confirms() -> None:
    clock = make()
    before = clock.stalls
    clock.observe(60.0)
    assert not clock.confirmed
    clock.confirm(before)
    assert not clock.confirmed
    clock.confirm(clock.stalls)
    assert clock.confirmed


@given(st.lists(st.floats(min_value=0.0, max_value=1.0), max_size=50))
def test_time_never_falls_and_never_runs_ahead(steps: list[float]) -> None:
    clock, now_s, last_ms = make(), 50.0, 1000
    for step in steps:
        now_s += step
        stamp_ms = clock.now_ms(now_s)
        assert last_ms <= stamp_ms <= 1000 + (now_s - 50.0) * 1000 + 1
        last_ms = stamp_ms
