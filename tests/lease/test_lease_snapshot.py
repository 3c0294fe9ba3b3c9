"""Snapshots: the whole state and nothing but the state, in bytes that are equal on every node."""

import base64
import random
from pathlib import Path

import msgspec
import pytest
from lease_world import TENANT, World, expect, grant_in

from tenure_cluster.lease import commands, limits, results, snapshot
from tenure_cluster.lease.machine import LeaseMachine


def full_world(world: World, *, later: bool = True) -> World:
    """Something of everything that a table can hold; with ``later`` also what version 1 did not know."""
    world.open("s", "A", ttl_ms=60_000)
    world.open("gone", "A", ttl_ms=1)
    world.acquire("held", "A", session="s", lease="held", request="r", metadata={"run": "7"})
    grant = world.granted("written", "B", ttl_ms=60_000)
    world.commit(grant, mode="sequence", seq=3, op="o", value=b"\x00\xff")
    world.acquire("held", "B", request="rb", wait=True)
    world.acquire("held", "C", request="rc", wait=True)
    world.acquire("held", "S", request="rs", session="s", if_held="conflict")
    world.acquire("graced", "C", ttl_ms=1_000, grace_ms=60_000)
    world.acquire("idle", "D", lease="idle")
    world.release("idle")
    world.acquire("handed", "D", lease="d")
    world.acquire("handed", "E", lease="e", wait=True)
    world.wait(1_000)
    world.acquire("held", "B", request="rb", wait=True)
    world.acquire("graced", "F", request="rf", wait=True)
    world.release("d")
    world.abandon("never")
    world.acquire("elsewhere", "G", tenant="other")
    if later:
        world.acquire(keys=["of-set", "of-set-too"], owner="H", lease="set", request="of-set")
        world.acquire("read", "I", lease="reader", mode="shared")
        world.acquire("pool", "J", lease="permit", mode="permit", slots=2)
        world.acquire(keys=["of-set", "free"], owner="K", request="set-waits", wait=True)
        world.acquire("rests", "L", lease="rests", request="rests", session="s")
        world.park("rests")
        world.acquire("works", "M", lease="works", ttl_ms=60_000, progress_ms=60_000)
        world.renew("works", progress=("plan", "reading", 3))
        world.acquire("given", "N", lease="given", metadata={"run": "8"})
        world.handover("given", "s", "given-on")
        world.acquire("held", "O", request="ro", wait=True, progress_ms=5_000)
    world.expire()
    return world


def go_on(seed: int, steps: int, machine: LeaseMachine, *others: LeaseMachine) -> None:
    """A random continuation. What the reaper proposes is seen by the first machine; all must answer alike."""
    pick = random.Random(seed)
    now_ms = machine.table.time_ms
    keys = ["held", "written", "graced", "idle", "handed", "new", "pool", "of-set", "rests"]
    ids = ["held", "e", "rests", "works", "given-on", *(f"x{number}" for number in range(40))]
    modes = [("exclusive", 0), ("exclusive", 0), ("shared", 0), ("permit", 2)]
    requests = ["r", "rb", "rc", "rf", "never", *(f"q{number}" for number in range(40))]
    for _ in range(steps):
        now_ms += pick.choice([0, 1, 100, 3_000])
        key, lease_id, request_id = pick.choice(keys), pick.choice(ids), pick.choice(requests)
        session_id = pick.choice([None, None, "s", "gone"])
        ttl_ms = None if session_id else 10_000
        two = pick.random()
        command = pick.choice(
            [
                commands.Acquire(
                    TENANT,
                    [key] if two < 0.8 else [key, "beside"],
                    [lease_id] if two < 0.8 else [lease_id, f"{lease_id}.1"],
                    "Z",
                    session_id,
                    ttl_ms,
                    request_id,
                    True,
                    pick.random() < 0.7,
                    *pick.choice(modes),
                    pick.choice([0, 2_000]),
                    "return",
                    {},
                    now_ms,
                ),
                commands.Release(TENANT, lease_id, now_ms),
                commands.Renew(TENANT, lease_id, None, None, now_ms),
                commands.Claim(TENANT, lease_id, now_ms),
                commands.Abandon(TENANT, request_id, session_id, now_ms),
                commands.Expire(machine.table.due(now_ms, 3), now_ms),
                commands.Break(TENANT, key, "x", "y", now_ms),
                commands.Handover(TENANT, lease_id, "s", f"h{now_ms}.{pick.random()}", now_ms),
                commands.Park(TENANT, lease_id, 20_000, now_ms),
                commands.Unpark(TENANT, lease_id, session_id, None, now_ms),
                commands.Renew(TENANT, lease_id, None, None, now_ms, commands.ProgressNote("x", "", now_ms)),
            ]
        )
        applied = machine.apply(now_ms, command)
        assert all(other.apply(now_ms, command) == applied for other in others)


def dump(machine: LeaseMachine) -> list[bytes]:
    return list(snapshot.dump(machine.table))


def test_a_loaded_table_is_the_dumped_one(world: World) -> None:
    machine = full_world(world).machine
    loaded = snapshot.load(dump(machine))
    for section in (
        "tenants",
        "sessions",
        "leases",
        "keys",
        "waiters",
        "records",
        "ended",
        "expired_sessions",
        "abandoned",
        "operations",
        "sets",
    ):
        before = getattr(machine.table, section)
        assert before, f"the world has no {section}"
        assert list(getattr(loaded, section).items()) == list(before.items())
    assert (loaded.time_ms, loaded.last_ticket) == (machine.table.time_ms, machine.table.last_ticket)
    LeaseMachine(loaded).check()


@pytest.mark.parametrize("seed", range(20))
def test_going_on_after_a_load_is_going_on(world: World, seed: int) -> None:
    """The same answers, events and bytes, whether the node was restarted in between or not."""
    machine = full_world(world).machine
    loaded = LeaseMachine(snapshot.load(dump(machine)))
    go_on(seed, 150, machine, loaded)
    assert dump(machine) == dump(loaded)
    machine.check()
    loaded.check()


def test_the_same_entries_give_the_same_bytes(world: World) -> None:
    first = full_world(world)
    second = full_world(World())
    assert dump(first.machine) == dump(second.machine) == dump(first.replica)


def test_a_snapshot_stands_for_the_moment_of_the_call(world: World) -> None:
    machine = full_world(world).machine
    expected = dump(machine)
    running = snapshot.dump(machine.table)
    taken = [next(running)]
    for chunk in running:
        taken.append(chunk)
        go_on(len(taken), 20, machine)
    assert taken == expected
    assert dump(machine) != expected


def test_chunks_are_bounded_also_with_the_greatest_records(world: World) -> None:
    machine = world.machine
    for number in range(20):
        grant = grant_in(machine.apply(world.now_ms, world.acquire_command(f"k{number}")).result)
        write = commands.Commit(
            TENANT,
            f"k{number}",
            0,
            grant.lease.lease_id,
            grant.lease.token,
            "once",
            None,
            None,
            True,
            None,
            bytes(limits.VALUE_BYTES_MAX),
            True,
            "",
            0,
        )
        assert isinstance(machine.apply(world.now_ms, write).result, results.Committed)
    chunks = dump(machine)
    assert max(len(chunk) for chunk in chunks) <= snapshot.CHUNK_BYTES + 64
    assert snapshot.digest(snapshot.load(chunks)) == snapshot.digest(machine.table)


def test_digests_tell_states_apart_and_not_histories(world: World) -> None:
    other = World()
    for key in ("a", "b"):
        world.acquire(key, lease=key, request=key)
    for key in ("b", "a"):
        other.acquire(key, lease=key, request=key)
    assert snapshot.digest(world.table) != snapshot.digest(other.table)
    turned = snapshot.load(dump(world.machine))
    for section in ("leases", "sessions"):
        rows = getattr(turned, section)
        setattr(turned, section, dict(reversed(rows.items())))
    assert snapshot.digest(turned) == snapshot.digest(world.table)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda chunks: [], "no header"),
        (lambda chunks: chunks[1:], "decoded"),
        (lambda chunks: chunks[:-1], "missing"),
        (lambda chunks: chunks + chunks[-1:], "doubled"),
        (lambda chunks: [chunks[0][:-3], *chunks[1:]], "decoded"),
        (lambda chunks: [*chunks[:-1], chunks[-1][:-3]], "decoded"),
        (lambda chunks: [*chunks, b"\x00"], "decoded"),
        (lambda chunks: [*chunks, msgspec.msgpack.encode(("strange", []))], "strange"),
        (
            lambda chunks: [chunks[0].replace(b"tenure-lease-table", b"tenure-other-table"), *chunks[1:]],
            "not",
        ),
        (lambda chunks: [chunks[0].replace(b"table\x05", b"table\x63"), *chunks[1:]], "version 99"),
    ],
)
def test_a_damaged_snapshot_is_refused_and_says_why(world: World, damage: object, says: str) -> None:
    chunks = dump(full_world(world).machine)
    with pytest.raises(snapshot.SnapshotDamaged, match=says):
        snapshot.load(damage(chunks))  # type: ignore[operator]


def test_a_state_that_contradicts_itself_is_refused_at_load(world: World) -> None:
    """T64: a lease that is listed and cannot be found never comes back from a snapshot."""
    table = full_world(world).machine.table
    del table.sessions[(TENANT, "s")]
    with pytest.raises(snapshot.SnapshotDamaged, match="no session"):
        snapshot.load(snapshot.dump(table))


@pytest.mark.parametrize(("version", "later"), [(1, False), (2, True)])
def test_a_snapshot_of_an_earlier_version_is_read_and_goes_on(
    world: World, version: int, later: bool
) -> None:
    """Kept as that version wrote it, of the history of full_world(), in base64."""
    path = Path(__file__).parent / "snapshots" / f"version_{version}.txt"
    chunks = msgspec.msgpack.decode(base64.b64decode(path.read_text()), type=list[bytes])
    old = LeaseMachine(snapshot.load(chunks))
    old.check()
    present = full_world(world, later=later).machine
    sections = ["tenants", "sessions", "leases", "keys", "waiters", "records", "ended"]
    for section in sections:
        assert list(getattr(old.table, section)) == list(getattr(present.table, section))
    if version == snapshot.VERSION:
        assert chunks == dump(present)
    go_on(1, 150, present, old)
    old.check()


def test_an_empty_table_has_a_snapshot_too() -> None:
    loaded = snapshot.load(dump(LeaseMachine()))
    assert loaded.time_ms == 0
    assert isinstance(
        expect(results.Done, LeaseMachine(loaded).apply(5, commands.Tick(0)).result), results.Done
    )


def test_a_loaded_table_shares_its_strings_as_a_running_one_does(world: World) -> None:
    for key in "jk":
        world.acquire(key, "".join(["age", "nt"]), lease=f"of-{key}")
    for table in (world.table, snapshot.load(dump(world.machine))):
        owners = []
        for (ref, lease), (session_ref, session) in zip(
            table.leases.items(), table.sessions.items(), strict=True
        ):
            assert ref is session_ref
            assert lease.lease_id is lease.session_id is session.session_id is ref[1]
            assert lease.tenant is session.tenant is table.tenants[TENANT].tenant
            assert lease.metadata is session.metadata
            owners += [lease.owner, session.owner]
        assert len(owners) == 4
        assert all(owner is owners[0] for owner in owners)
    one, other = world.table.leases.values()
    assert one.granted_wall_ms is other.granted_wall_ms, "they came together"
