"""Other rules from one entry of the log on, for nodes of two versions that apply the same log."""

import msgspec
import pytest
from lease_world import World

from tenure_cluster.lease import commands, limits, snapshot
from tenure_cluster.lease.audit_trail import SetAuditPolicy
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.restoration import put_back
from tenure_cluster.lease.results import Deadlock, Done, Granted, Lost, Waiting
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


# What is done otherwise since, and was done before


def by_the_rules_of_before(world: World) -> None:
    world.table.rules = world.replica.table.rules = 0


def full_pool(world: World) -> None:
    """A and B have its two slots, and A waits for what C has."""
    for name in ("a", "b", "c"):
        world.open(name, name.upper(), ttl_ms=600_000)
    for name in ("a", "b"):
        world.acquire("pool", name.upper(), session=name, mode="permit", slots=2)
    world.acquire("mine", "C", session="c")
    world.acquire("mine", "A", session="a", wait=True)


def test_a_wait_at_a_smaller_pool_is_hopeless_by_the_rules_of_before_if_no_holder_can_go_on(
    world: World,
) -> None:
    """As test_lease_permits.py has it by those of now."""
    by_the_rules_of_before(world)
    full_pool(world)
    world.resize(1, "pool")
    waits = world.acquire("pool", "C", session="c", mode="permit", slots=1, wait=True)
    assert isinstance(waits, Waiting)


def test_who_waits_for_the_end_of_a_grace_period_is_stuck_by_the_rules_of_before(world: World) -> None:
    """As test_lease_permits.py has it by those of now."""
    by_the_rules_of_before(world)
    full_pool(world)
    world.acquire("resting", "X", lease="x", grace_ms=60_000)
    world.break_key("resting")
    world.acquire("resting", "B", session="b", mode="permit", slots=2, wait=True)
    refused = world.acquire("pool", "C", session="c", mode="permit", slots=2, wait=True)
    assert isinstance(refused, Deadlock)


def test_what_had_expired_is_told_as_closed_by_the_rules_of_before_if_closing_takes_several_entries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As test_lease_progress.py has it by those of now."""
    monkeypatch.setattr(limits, "CLOSE_AT_ONCE_MAX", 3)
    by_the_rules_of_before(world)
    world.open("s", ttl_ms=600_000)
    world.acquire("k", session="s", lease="late", grace_ms=60_000, progress_ms=2_000)
    for number in range(6):
        world.acquire(f"k{number}", session="s", lease=f"l{number}")
    world.wait(3_000)
    world.close("s")
    world.wait(10_000)
    assert world.renew("late") == Lost("session_closed")
    assert isinstance(world.acquire("k", "B"), Granted)


def test_each_refused_commit_is_a_record_of_its_own_by_the_rules_of_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As test_lease_audit.py has it by those of now."""
    monkeypatch.setattr(limits, "AUDIT_COMMITS_MAX", 3)
    by_the_rules_of_before(world)
    world.apply(SetAuditPolicy(100, 60_000, world.wall_ms))
    grant = world.granted("k")
    for number in range(10):
        world.commit(grant, token=grant.lease.token + 1 + number)
    assert sum(record.kind == "commit" for record in world.table.audit_records.values()) == 10


@pytest.mark.parametrize(("rules", "records"), [(0, 5), (PRESENT, 1)])
def test_breaks_of_what_nobody_holds_are_counted_by_the_rules_of_now(
    world: World, rules: int, records: int
) -> None:
    world.table.rules = world.replica.table.rules = rules
    world.apply(SetAuditPolicy(100, 60_000, world.wall_ms))
    for _ in range(5):
        world.break_key("free")
    assert sum(record.kind == "break" for record in world.table.audit_records.values()) == records
