"""The garbage collector does not walk what a node holds."""

import gc
from collections.abc import Iterator

import pytest

from tenure_cluster import collector
from tenure_cluster.collector import Collector
from tenure_cluster.lease.commands import Acquire, Release
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.table import LeaseTable


class Holding:
    """A machine that holds leases."""

    def __init__(self) -> None:
        self.machine = LeaseMachine()
        self.count = 0

    def table(self) -> LeaseTable:
        return self.machine.table

    def grow_to(self, leases: int) -> None:
        while len(self.machine.table.leases) < leases:
            self.count += 1
            name = f"l{self.count}"
            keys, ids = [f"k{self.count}"], [name]
            what = (name, False, False, "exclusive", 0, 0, "return", {}, 1)
            self.machine.apply(1_000 + self.count, Acquire("t", keys, ids, "o", None, 60_000, *what))

    def release(self, number: int) -> None:
        self.machine.apply(1_000 + self.count, Release("t", f"l{number}", 0))


@pytest.fixture(autouse=True)
def left_as_it_was() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    assert gc.callbacks == callbacks


def seen_by_the_collector(*things: object) -> int:
    known = {id(thing) for thing in gc.get_objects()}
    return sum(id(thing) in known for thing in things)


def test_the_dictionaries_of_an_empty_table_are_out_of_sight_before_they_are_filled() -> None:
    holding = Holding()
    collecting = Collector(holding.table)
    collecting.begin()
    holding.grow_to(1_000)
    holding.release(1)
    table = holding.machine.table
    large = (table.sessions, table.leases, table.keys, table.ended)
    assert all(large)
    assert all(gc.is_tracked(each) for each in large)
    assert seen_by_the_collector(*large) == 0
    collecting.end()


def test_a_table_that_nobody_shows_comes_into_sight_with_its_first_lease() -> None:
    """The proof that the test above can fail."""
    holding = Holding()
    gc.collect()
    gc.freeze()
    holding.grow_to(10)
    assert seen_by_the_collector(holding.machine.table.leases) == 1


def test_what_is_granted_is_frozen_each_time_that_the_leases_have_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "DOUBLED_MIN", 10)
    holding = Holding()
    collecting = Collector(holding.table)
    collecting.begin()
    frozen_at = []
    for leases in range(1, 100):
        holding.grow_to(leases)
        before = collecting.frozen
        gc.collect(1)
        if collecting.frozen > before:
            frozen_at.append(leases)
    assert frozen_at == [10, 20, 40, 80]
    collecting.end()


def test_another_table_is_frozen_though_it_is_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "DOUBLED_MIN", 10)
    holding = Holding()
    holding.grow_to(20)
    collecting = Collector(holding.table)
    collecting.begin()
    before = collecting.frozen
    collecting.look()
    assert collecting.frozen == before
    holding.machine = LeaseMachine()  # as when a snapshot is installed
    holding.grow_to(20)
    collecting.look()
    assert collecting.frozen == before + 1
    collecting.end()
