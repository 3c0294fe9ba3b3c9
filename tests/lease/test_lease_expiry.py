"""Time: lazy expiry, the reaper's batches, changes of leader, and what is forgotten."""

import pytest
from lease_world import TENANT, World, expect

from tenure_cluster.lease import commands, limits, results


def test_an_expire_that_was_overtaken_by_a_renewal_ends_nothing(world: World) -> None:
    """T4: an expiry proposed under an old leader re-checks the deadline when it is applied."""
    grant = world.granted("k", ttl_ms=10_000, lease="one")
    seen = world.table.due(world.now_ms + 10_000, 10)
    assert [(item.kind, item.id) for item in seen] == [("session", "one")]
    world.wait(9_000)
    world.renew("one")
    world.change_leader()
    world.wait(1_000)
    assert world.expire(seen) == results.Done(0)
    assert world.table.holders(TENANT, "k")[0].lease == grant.lease


def test_an_expire_before_its_time_ends_nothing(world: World) -> None:
    world.acquire("k", ttl_ms=10_000)
    seen = world.table.due(world.now_ms + 10_000, 10)
    world.wait(9_999)
    assert world.expire(seen) == results.Done(0)
    world.wait(1)
    assert world.expire(seen) == results.Done(1)
    assert world.expire(seen) == results.Done(0)


def test_an_expire_does_not_hit_what_took_the_place_of_what_was_due(world: World) -> None:
    world.acquire("k", "A", lease="a", ttl_ms=10_000)
    seen = world.table.due(world.now_ms + 10_000, 10)
    world.release("a")
    world.wait(10_000)
    world.acquire("k", "B")
    assert world.expire(seen) == results.Done(0)
    assert world.holder() == "B"


def test_items_that_name_nothing_are_passed_over(world: World) -> None:
    world.acquire("k", lease="a")
    items = [
        commands.ExpireItem(kind, TENANT, name, deadline_ms)  # type: ignore[arg-type]
        for kind in ("session", "claim", "waiter", "grace")
        for name in (
            "",
            "a",
            "k",
            "0:",
            "0:x",
            "9:x",
            "٣:abc",
            "-1:x",
            "1:",
            "00:x",
            "99999999999999999999:x",
        )
        for deadline_ms in (0, -5, 1)
    ]
    assert world.expire(items) == results.Done(0)
    assert world.holder() == "A"


def test_a_crashed_holder_is_free_after_its_ttl_of_leaders_time(world: World) -> None:
    """T59: time goes on from the last stamp with each of many leaders; leases never start again in full."""
    world.acquire("k", "A", ttl_ms=10_000)
    elapsed_ms = 0
    for _ in range(20):
        for _ in range(4):
            world.wait(125)
            elapsed_ms += 125
            world.tick()
        world.change_leader()
        assert (world.holder() is None) == (elapsed_ms >= 10_000)
    assert elapsed_ms == 10_000
    assert expect(results.Granted, world.acquire("k", "B")).grants[0].lease.owner == "B"


def test_time_that_no_entry_carried_is_given_to_the_holder_and_no_more(world: World) -> None:
    """T7, T59: leaderless time does not count against a lease, nor does it start it again."""
    world.acquire("k", "A", ttl_ms=10_000)
    world.wait(4_000)
    world.tick()
    world.wait(900)
    world.change_leader()
    world.wait(5_999)
    assert world.expire() == results.Done(0)
    assert world.holder() == "A"
    world.wait(1)
    assert world.expire() == results.Done(1)


def test_many_leases_that_expire_together_go_in_bounded_batches(world: World) -> None:
    """T61: acquires and renewals are right at once; the reaper takes no more than a batch in an entry."""
    machine = world.machine
    count = 3 * limits.EXPIRE_BATCH_MAX
    for number in range(count):
        machine.apply(world.now_ms, world.acquire_command(f"k{number}", ttl_ms=10_000, lease=f"l{number}"))
    world.wait(10_000)
    late = machine.apply(world.now_ms, commands.Renew(TENANT, "l7", None, None, 0)).result
    assert late == results.Lost("expired")
    sizes = []
    while due := machine.table.due(world.now_ms, limits.EXPIRE_BATCH_MAX):
        sizes.append(expect(results.Done, machine.apply(world.now_ms, commands.Expire(due, 0)).result).ended)
    machine.check()
    assert sum(sizes) == count - 1
    assert max(sizes) <= limits.EXPIRE_BATCH_MAX
    assert machine.table.leases == {}


def test_a_session_with_many_leases_ends_over_several_entries(world: World) -> None:
    machine = world.machine
    count = limits.EXPIRE_BATCH_MAX + 10
    machine.apply(world.now_ms, commands.OpenSession(TENANT, "s", "A", 10_000, {}, 0))
    for number in range(count):
        machine.apply(world.now_ms, world.acquire_command(f"k{number}", session="s"))
    world.wait(10_000)
    (item,) = machine.table.due(world.now_ms, 10)
    first = machine.apply(world.now_ms, commands.Expire([item], 0))
    assert len(first.events) == limits.EXPIRE_BATCH_MAX
    assert first.result == results.Done(0)
    machine.check()
    assert machine.table.due(world.now_ms, 10) == [item]
    second = machine.apply(world.now_ms, commands.Expire([item], 0))
    assert len(second.events) == 10
    assert second.result == results.Done(1)
    assert machine.table.sessions == {}
    machine.check()


def test_touching_one_key_of_an_expired_session_ends_only_that_lease(world: World) -> None:
    world.open("s", ttl_ms=10_000)
    for number in range(50):
        world.acquire(f"k{number}", session="s", lease=f"l{number}")
    world.wait(10_000)
    world.acquire("k7", "B")
    assert world.kinds() == ["expired", "granted"]
    assert world.table.lease_count(TENANT, "s") == 49
    assert world.renew("l8") == results.Lost("expired")
    assert world.expire() == results.Done(1)
    assert world.table.lease_count(TENANT, "s") == 0


@pytest.mark.parametrize("kind", ["acquire", "poll", "renew", "claim", "release", "abandon", "break"])
def test_every_command_on_a_key_evaluates_expiry_itself(world: World, kind: str) -> None:
    world.acquire("k", "A", lease="a", request="ra", ttl_ms=10_000)
    world.acquire("k", "B", request="rb", wait=True)
    world.wait(10_000)
    touch = {
        "acquire": lambda: world.acquire("k", "C"),
        "poll": lambda: world.acquire("k", "B", request="rb", wait=True),
        "renew": lambda: world.renew("a"),
        "claim": lambda: world.claim("a"),
        "release": lambda: world.release("a"),
        "abandon": lambda: world.abandon("ra"),
        "break": lambda: world.break_key("k"),
    }
    touch[kind]()
    assert world.kinds() == ["expired", "granted"]
    assert world.holder() == "B"


def test_a_tick_moves_time_and_ends_nothing(world: World) -> None:
    world.acquire("k", ttl_ms=10_000)
    world.wait(10_000)
    assert world.tick() == results.Done(0)
    assert world.table.time_ms == world.now_ms
    assert len(world.table.leases) == 1
    assert world.events == []


def test_what_ended_is_forgotten_after_a_minute(world: World) -> None:
    world.acquire("k", lease="a", request="r")
    world.release("a")
    world.wait(limits.REQUEST_MEMORY_MS - 1)
    assert world.release("a") == results.Released(True)
    world.wait(1)
    assert world.release("a") == results.Lost("unknown")
    assert isinstance(world.acquire("k", lease="a", request="r"), results.Granted)


def test_an_expired_session_is_forgotten_after_a_minute(world: World) -> None:
    world.open("s", ttl_ms=1_000)
    world.wait(1_000)
    world.expire()
    world.wait(limits.REQUEST_MEMORY_MS - 1)
    assert world.renew(session="s") == results.SessionExpired()
    world.wait(1)
    assert world.renew(session="s") == results.NoSession()


def test_one_command_sweeps_a_bounded_number_of_memories(world: World) -> None:
    machine = world.machine
    for number in range(limits.HOUSEKEEPING_STEPS_MAX + 500):
        machine.apply(world.now_ms, world.acquire_command("k", lease=f"l{number}"))
        machine.apply(world.now_ms, commands.Release(TENANT, f"l{number}", 0))
    world.wait(limits.REQUEST_MEMORY_MS)
    machine.apply(world.now_ms, commands.Tick(0))
    assert len(machine.table.ended) == 500
    world.wait(1)
    machine.apply(world.now_ms, commands.Tick(0))
    assert len(machine.table.ended) == 0
    machine.check()


def test_commands_with_one_stamp_sweep_no_more_than_one_command(world: World) -> None:
    machine = world.machine
    for number in range(limits.HOUSEKEEPING_STEPS_MAX + 500):
        machine.apply(world.now_ms, world.acquire_command("k", lease=f"l{number}"))
        machine.apply(world.now_ms, commands.Release(TENANT, f"l{number}", 0))
    world.wait(limits.REQUEST_MEMORY_MS)
    for _ in range(600):
        machine.apply(world.now_ms, commands.Tick(0))
    assert len(machine.table.ended) == 500


def test_an_entry_moves_on_a_bounded_number_of_deadlines(world: World) -> None:
    machine = world.machine
    for number in range(2_000):
        machine.apply(world.now_ms, world.acquire_command(f"k{number}", lease=f"l{number}", ttl_ms=1_000))
    world.wait(1_100)
    for _ in range(600):
        machine.apply(world.now_ms, commands.Tick(0))
    sessions = machine.table.deadlines.sessions
    assert not sessions._overdue
    machine.tidy(700)
    assert len(sessions._overdue) == 700
    machine.tidy(5_000)
    assert len(sessions._overdue) == 2_000


def test_memories_are_bounded_and_the_oldest_goes_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine in (world.machine, world.replica):
        table = machine.table
        for memory in (table.ended, table.operations, table.abandoned, table.expired_sessions):
            monkeypatch.setattr(memory, "entries_max", 3)
    for number in range(5):
        grant = world.granted(f"k{number}", lease=f"l{number}", request=f"r{number}")
        world.commit(grant, op=f"o{number}")
        world.release(f"l{number}")
        world.abandon(f"a{number}")
        world.open(f"s{number}", ttl_ms=1)
        world.wait(1)
        world.expire()
    assert [lease_id for _, lease_id in world.table.ended] == ["l2", "l3", "l4"]
    assert [op_id for _, _, op_id in world.table.operations] == ["o2", "o3", "o4"]
    assert [request_id for _, _, request_id in world.table.abandoned] == ["a2", "a3", "a4"]
    assert [session_id for _, session_id in world.table.expired_sessions] == ["s2", "s3", "s4"]
    assert isinstance(world.acquire("k0", request="r0"), results.Granted)
    assert world.acquire("k4", request="r4") == results.Lost("released")


def test_idle_keys_are_bounded_and_the_longest_idle_goes_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_KEYS_MAX", 2)
    for number in range(4):
        world.acquire(f"k{number}", lease=f"l{number}")
    for number in (2, 0, 3, 1):
        world.release(f"l{number}")
        world.restart()
    world.wait(1)
    world.tick()
    assert [key for _, key in world.table.keys] == ["k3", "k1"]


def test_an_idle_key_in_its_grace_period_is_not_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_KEYS_MAX", 0)
    world.acquire("k", ttl_ms=1_000, grace_ms=60_000)
    world.wait(1_000)
    world.expire()
    world.wait(59_999)
    world.tick()
    assert isinstance(world.acquire("k", "B"), results.Held)
    world.wait(1)
    world.tick()
    assert world.table.keys == {}


def test_while_anything_is_held_or_waited_for_time_matters(world: World) -> None:
    assert not world.table.has_live_sessions()
    world.acquire("k", lease="a")
    assert world.table.has_live_sessions()
    world.release("a")
    assert not world.table.has_live_sessions()
    assert world.table.next_deadline() is None or world.table.due(world.now_ms, 10) == []
