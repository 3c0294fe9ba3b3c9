"""Other rules from one entry of the log on, for nodes of two versions that apply the same log."""

import msgspec
import pytest
from lease_world import World

from tenure_cluster.lease import commands, snapshot
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.restoration import put_back
from tenure_cluster.lease.results import Done
from tenure_cluster.lease.rules import PRESENT, AdoptRules
from tenure_cluster.lease.table import LeaseTable


def test_a_state_begins_with_the_oldest_rules_and_adopts_others_once() -> None:
    machine = LeaseMachine()
    assert machine.table.rules == 0
    assert machine.apply(1, AdoptRules(PRESENT, 0)).result == Done(1)
    assert machine.table.rules == PRESENT
    assert machine.apply(2, AdoptRules(PRESENT, 0)).result == Done(0)


def test_rules_are_never_given_up_for_older_ones() -> None:
    machine = LeaseMachine()
    machine.table.rules = PRESENT + 1  # of a later version, which knows these too
    assert machine.apply(1, AdoptRules(PRESENT, 0)).result == Done(0)
    assert machine.table.rules == PRESENT + 1


def test_rules_that_a_version_does_not_know_can_t_be_decoded_like_its_unknown_commands() -> None:
    data = commands.encode(AdoptRules(PRESENT, 5))
    assert commands.decode(data) == AdoptRules(PRESENT, 5)
    tag, _, wall_ms = msgspec.msgpack.decode(data)
    with pytest.raises(msgspec.ValidationError):
        commands.decode(msgspec.msgpack.encode([tag, PRESENT + 1, wall_ms]))


@pytest.mark.parametrize("restored", [False, True])
def test_rules_are_part_of_the_state(world: World, restored: bool) -> None:
    world.granted("k")
    if restored:
        put_back(world.table, made_wall_ms=0)
    chunks = list(snapshot.dump(world.table))
    loaded = snapshot.load(chunks)
    assert loaded.rules == PRESENT
    assert loaded.restoration == world.table.restoration
    before = snapshot.digest(loaded)
    loaded.rules = 0
    assert snapshot.digest(loaded) != before


def test_without_adopted_rules_a_snapshot_is_one_that_nodes_of_before_can_read() -> None:
    table = LeaseTable()
    header, *_ = snapshot.dump(table)
    assert len(msgspec.msgpack.decode(header)) == 5
    assert snapshot.load(snapshot.dump(table)).rules == 0


def test_a_snapshot_under_rules_that_are_not_known_is_refused() -> None:
    table = LeaseTable()
    table.rules = PRESENT + 1
    with pytest.raises(snapshot.SnapshotDamaged, match=f"rules {PRESENT + 1}, and {PRESENT} are known"):
        snapshot.load(snapshot.dump(table))
