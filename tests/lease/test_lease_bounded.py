"""However much becomes due at once, one entry does a bounded part of it, and the next go on from there."""

import random
from collections import Counter

import pytest
from lease_world import TENANT, World, expect
from model_compare import LONG_MS, command_of
from model_lease import Model
from model_scripts import KEYS, STEP_BYTES, Writer

from tenure_cluster.lease import commands, holding, limits, results, room, snapshot
from tenure_cluster.lease.machine import LeaseMachine

SETS = 101
"""As many waiting sets as are looked at in one queue."""


def reap(world: World) -> list[int]:
    """Let the reaper propose until nothing is due; how many events each of its entries had."""
    sizes = []
    while world.table.due(world.now_ms, limits.EXPIRE_BATCH_MAX):
        world.expire()
        sizes.append(len(world.events))
        assert len(sizes) < 1_000, "the reaper comes to no end"
    return sizes


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often it was asked whether a key has room."""
    counts: Counter[str] = Counter()
    right = room.has_room

    def counted(*args: object) -> bool:
        counts["looks"] += 1
        return right(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(holding, "has_room", counted)
    return counts


def test_a_hundred_sets_that_wait_for_the_same_keys_are_looked_at_once_in_an_entry(
    looks: Counter[str],
) -> None:
    """All keys but one come free together. Each set is found to lack that one, and is not asked again at
    every other key."""
    world, machine = World(), LeaseMachine()
    keys = [f"k{number}" for number in range(limits.SET_KEYS_MAX)]
    machine.apply(1, world.acquire_command(keys=keys[:-1], lease="most"))
    machine.apply(1, world.acquire_command(keys[-1], lease="last"))
    for number in range(SETS):
        machine.apply(2, world.acquire_command(keys=keys, owner=f"set{number}", wait=True))
    looks.clear()
    applied = machine.apply(3, commands.Release(TENANT, "most", 0, whole_set=True))
    assert [event.kind for event in applied.events] == ["released"] * (len(keys) - 1)
    assert looks["looks"] <= (SETS + 1) * len(keys)
    looks.clear()
    applied = machine.apply(4, commands.Release(TENANT, "last", 0))
    assert {event.owner for event in applied.events if event.kind == "granted"} == {"set0"}
    assert looks["looks"] <= 2 * limits.LOOKS_PER_ENTRY_MAX
    machine.check()


def test_a_set_is_looked_at_again_when_the_key_that_it_lacked_comes_free_in_the_same_entry(
    world: World,
) -> None:
    """The leases of a session are ended, and their keys served, one after the other."""
    world.open("s", ttl_ms=600_000)
    for key in "abc":
        world.acquire(key, session="s")
    world.acquire(keys=["a", "b", "c"], owner="set", wait=True, ttl_ms=600_000)
    world.close("s")
    assert world.kinds() == ["released"] * 3 + ["granted"] * 3
    assert [world.holder(key) for key in "abc"] == ["set"] * 3


def test_what_was_known_of_the_head_of_a_queue_is_looked_at_again_when_a_set_has_left_it(
    world: World,
) -> None:
    """Two sets let the others pass, then one. The writer behind them must not be passed by the set after it,
    although before it two were, in the same entry."""
    world.acquire("b", "reader", mode="shared", ttl_ms=600_000)
    world.acquire("y2", ttl_ms=600_000)
    for key in "xyz":
        world.acquire(key, lease=key, ttl_ms=2_000)
    world.acquire(keys=["b", "x"], owner="first", wait=True, mode="shared")
    world.acquire(keys=["b", "y", "y2"], owner="second", wait=True, mode="shared")
    world.acquire("b", "writer", wait=True)
    world.acquire(keys=["b", "z"], owner="last", wait=True, mode="shared")
    world.wait(2_000)
    deadlines = {item.id: item for item in world.table.due(world.now_ms, 10)}
    assert world.expire([deadlines["y"], deadlines["x"], deadlines["z"]]) == results.Done(3)
    assert world.holder("x") == "first"
    assert world.queue("b") == ["second", "writer", "last"]
    assert world.holder("z") is None


def test_of_many_readers_an_entry_lets_in_a_bounded_number_and_the_reaper_goes_on_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GRANTS_PER_ENTRY_MAX", 3)
    world.acquire("k", "writer", lease="w", ttl_ms=600_000)
    for number in range(10):
        world.acquire("k", f"r{number}", wait=True, mode="shared", ttl_ms=600_000)
    world.release("w")
    assert world.kinds() == ["released"] + ["granted"] * 3
    world.restart()
    assert isinstance(world.acquire("k", "newcomer", mode="shared"), results.Held)
    granted = [grant.lease.owner for grant in world.table.holders(TENANT, "k")]
    assert granted == [f"r{number}" for number in range(6)]
    assert max(reap(world)) <= 3
    holders = world.table.holders(TENANT, "k")
    assert [grant.lease.owner for grant in holders] == [f"r{number}" for number in range(10)]
    assert len({grant.lease.token for grant in holders}) == 1


def test_the_grace_period_of_a_key_is_not_cut_short_by_an_entry_that_has_done_enough(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GRANTS_PER_ENTRY_MAX", 1)
    world.acquire(keys=["a", "b"], lease="l", ttl_ms=1_000, grace_ms=5_000)
    world.acquire("c", lease="c", ttl_ms=1_000)
    for key in "abc":
        world.acquire(key, f"of-{key}", wait=True, ttl_ms=600_000)
    world.wait(1_000)
    world.expire()
    reap(world)
    assert [world.holder(key) for key in "abc"] == [None, None, "of-c"]
    world.wait(5_000)
    world.claim(next(iter(world.table.leases))[1])
    reap(world)
    assert [world.holder(key) for key in "ab"] == ["of-a", "of-b"]


def test_sets_of_many_keys_that_expire_together_are_ended_in_bounded_entries(world: World) -> None:
    """A private set is one session and one item of the reaper's, and has many leases."""
    machine = world.machine
    count, size = 60, limits.SET_KEYS_MAX
    for number in range(count):
        keys = [f"k{number}.{at}" for at in range(size)]
        machine.apply(world.now_ms, world.acquire_command(keys=keys, ttl_ms=1_000))
    world.wait(1_000)
    sizes = []
    while due := machine.table.due(world.now_ms, limits.EXPIRE_BATCH_MAX):
        sizes.append(len(machine.apply(world.now_ms, commands.Expire(due, 0)).events))
    assert sum(sizes) == count * size
    assert max(sizes) < limits.EVENTS_PER_EXPIRE_MAX + size
    machine.check()


def test_a_session_that_waits_for_large_sets_is_closed_in_bounded_entries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLOSE_AT_ONCE_MAX", 5)
    monkeypatch.setattr(limits, "EVENTS_PER_EXPIRE_MAX", 4)
    world.open("s", ttl_ms=600_000)
    for number in range(3):
        world.acquire(f"held{number}", "X", ttl_ms=600_000)
        world.acquire(keys=[f"held{number}", f"a{number}", f"b{number}"], session="s", wait=True)
    assert len(world.table.waiters) == 3
    assert expect(results.SessionClosed, world.close("s")).leases == 0
    assert world.events == []
    sizes = reap(world)
    assert len(sizes) > 1
    assert sum(sizes) == 9
    assert max(sizes) <= 4 + 3
    assert world.table.waiters == {}


def test_an_entry_that_has_looked_at_enough_leaves_the_rest_to_the_reaper(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOKS_PER_ENTRY_MAX", 3)
    world.acquire(keys=["a", "b", "c", "d"], lease="l", ttl_ms=600_000)
    for key in "abcd":
        world.acquire(key, f"of-{key}", wait=True, ttl_ms=600_000)
    world.release("l", whole_set=True)
    assert world.kinds().count("granted") == 3
    reap(world)
    assert [world.holder(key) for key in "abcd"] == ["of-a", "of-b", "of-c", "of-d"]


def test_the_looks_of_an_entry_are_enough_for_all_that_is_passed_in_one_queue() -> None:
    """Or an entry that begins with a key could come to no end of it, and neither could the next."""
    assert (limits.SETS_PASSED_MAX + 1) * limits.SET_KEYS_MAX <= limits.LOOKS_PER_ENTRY_MAX


class Narrowed:
    """A random history on a machine whose bounds are reached all the time, with a replica that is restarted
    now and then. The names in the commands come from a model that does the same without these bounds."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = LeaseMachine()
        self.replica = LeaseMachine()
        self.kinds: Counter[str] = Counter()

    def apply(self, at_ms: int, command: commands.Command) -> None:
        applied = self.machine.apply(at_ms, command)
        again = self.replica.apply(at_ms, command)
        assert applied == again
        self.kinds.update(event.kind for event in applied.events)
        self.machine.check()
        if self.rng.random() < 0.1:
            chunks = list(snapshot.dump(self.replica.table))
            self.machine, self.replica = LeaseMachine(snapshot.load(chunks)), self.machine
            assert list(snapshot.dump(self.machine.table)) == chunks

    def reap(self, at_ms: int) -> None:
        for _ in range(5_000):
            due = self.machine.table.due(at_ms, 3)
            if not due:
                return
            self.apply(at_ms, commands.Expire(due, 1))
        raise AssertionError("the reaper comes to no end")

    def play(self, steps: int) -> None:
        model = Model()
        writer = Writer(model)
        for _ in range(steps):
            written = writer.command(self.rng.randbytes(STEP_BYTES))
            if written is not None:
                model.step(*written)
                self.apply(written[0], command_of(written[1]))
                if self.rng.random() < 0.1:
                    self.reap(self.machine.table.time_ms)
        table = self.machine.table
        self.reap(table.time_ms)
        self.apply(table.time_ms + LONG_MS, commands.Tick(1))
        self.reap(self.machine.table.time_ms)
        assert not self.machine.table.sessions
        assert not self.machine.table.waiters


@pytest.mark.parametrize("seed", range(24))
def test_with_the_narrowest_bounds_all_comes_to_its_end_and_alike_on_a_restarted_replica(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 1
    narrow = {"GRANTS": 1, "LOOKS": (passed + 1) * len(set(KEYS)) + seed % 3, "DROPS": 1 + seed % 2}
    for name, bound in narrow.items():
        monkeypatch.setattr(limits, f"{name}_PER_ENTRY_MAX", bound)
    monkeypatch.setattr(limits, "EVENTS_PER_EXPIRE_MAX", 2)
    monkeypatch.setattr(limits, "CLOSE_AT_ONCE_MAX", 1)
    monkeypatch.setattr(limits, "SETS_PASSED_MAX", passed)
    history = Narrowed(seed)
    history.play(250)
    assert sum(history.kinds.values()) > 50
