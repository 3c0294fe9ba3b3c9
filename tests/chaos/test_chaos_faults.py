"""Each kind of fault by itself: it strikes, it is healed, and no rule is broken. Some must show what they
are there for.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from tenure_chaos.sim.actor import Actor
from tenure_chaos.sim.faults import KINDS, Scene
from tenure_chaos.sim.faults.crashing import POINTS
from tenure_chaos.sim.faults.disks import BitRot, DiskFull, SyncError
from tenure_chaos.sim.nemesis import Nemesis
from tenure_chaos.sim.options import FAULTS, Options
from tenure_chaos.sim.run import Report, run_seed
from tenure_chaos.sim.world import World
from tenure_cluster import faults

NODES = {"ring of majorities": 5}

SPARES = {"replace all members": 12}

QUICK = Options(safety_s=25.0, fault_gap_s=2.0, snapshot_entries=20, think_s=0.2, segment_bytes=65_536)

LONG = Options(safety_s=120.0, fault_gap_s=2.0, snapshot_entries=10, think_s=0.1, segment_bytes=65_536)


def run_with(fault: str, seed: int) -> Report:
    return run_seed(seed, QUICK.override({"faults": fault, "nodes": str(NODES.get(fault, 3))}))


def test_options_and_kinds_name_the_same_faults() -> None:
    assert tuple(KINDS) == FAULTS


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_by_itself_strikes_and_breaks_no_rule(fault: str) -> None:
    report = run_with(fault, 1_000 + FAULTS.index(fault))
    assert report.violations == []
    assert report.counts[f"fault {fault}"] > 0
    assert all(struck.ended_at <= report.simulated_s for struck in report.history.faults)
    assert report.counts["call acquire ok"] > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_gone_once_the_world_is_healed(fault: str) -> None:
    """Also one that has just begun."""

    async def story(world: World) -> None:
        await all_up(world)
        nemesis = Nemesis(world)
        for _ in range(3):
            begun = len(world.history.faults)
            while len(world.history.faults) == begun:  # not every moment is one at which it can strike
                nemesis.begin(fault)
                await asyncio.sleep(0.1)
            await nemesis.heal()
            assert all(struck.ended_at <= world.now() for struck in world.history.faults)
            await all_up(world)
            assert not any(
                link.cut or link.slow_s or link.tears_next for link in world.network._links.values()
            )
            assert not any(node.process.paused or node.rot or node.short_of_space for node in nodes(world))
            assert all(node.disk.free_bytes() > 1 << 29 for node in nodes(world))
            assert not faults._armed

    play(story, nodes=NODES.get(fault, 3), spares=SPARES.get(fault, 0))


def test_crashes_happen_in_syncs_and_at_every_point() -> None:
    reached: set[str] = set()
    for seed in range(1, 30):
        report = run_seed(seed, LONG.override({"faults": "crash at a point,crash in a sync"}))
        assert report.violations == []
        reached |= report.counts.keys()
        if reached >= {"crashed in a sync", *(f"crashed at {point}" for point in POINTS)}:
            return
    raise AssertionError(f"never crashed at {[p for p in POINTS if f'crashed at {p}' not in reached]}")


def test_a_node_refuses_to_start_on_a_rotten_file_and_starts_when_it_is_restored() -> None:
    report = run_with("bit rot", 7)
    assert report.violations == []
    assert report.counts["rot refused"] > 0
    assert report.counts["torn tail repaired"] == 0 or report.counts["rot did no harm"] > 0


def test_a_node_that_breaks_without_a_cause_is_a_violation() -> None:
    async def story(world: World) -> None:
        await all_up(world)
        node = nodes(world)[0]
        node.disk.fail_next_sync = True
        write_something(world)
        await until(lambda: not node.process.alive)

    world = play(story, check=False)
    assert [violation.rule for violation in world.violations] == ["nodes don't break"]


def test_a_failed_sync_ends_a_node_and_is_expected_to() -> None:
    async def story(world: World) -> None:
        await all_up(world)
        fault = SyncError(Scene(world, world.rng))
        assert fault.begin()
        write_something(world)
        await until(lambda: not fault.node.process.alive)
        fault.heal()
        await all_up(world)

    assert play(story).counts["stopped itself: EIO"] == 1


def test_a_leader_on_a_full_disk_takes_no_acquires_and_renews() -> None:
    totals = {"Renewed while a disk is full": 0, "call acquire unavailable overloaded": 0}
    for seed in range(1, 12):
        report = run_with("disk full", seed)
        assert report.violations == []
        for name in totals:
            totals[name] += report.counts[name]
        if all(totals.values()):
            return
    raise AssertionError(totals)


def test_a_disk_that_was_full_has_its_space_again() -> None:
    async def story(world: World) -> None:
        await all_up(world)
        fault = DiskFull(Scene(world, world.rng))
        assert fault.begin()
        before = fault.node.disk.free_bytes()
        assert before < fault.node.reserve_bytes
        fault.heal()
        assert fault.node.disk.free_bytes() > 1 << 29
        assert fault.node.excuses.get(errno.ENOSPC, 0) <= fault.node.process.incarnation

    play(story)


def test_rot_leaves_the_file_as_it_was() -> None:
    async def story(world: World) -> None:
        await all_up(world)
        before = {node.name: node.disk.read("members") for node in nodes(world)}
        for _ in range(40):
            fault = BitRot(Scene(world, world.rng))
            assert fault.begin()
            assert fault.node.rot is not None
            name = fault.node.rot.file
            rotten = fault.node.disk.read(name)
            fault.heal()
            assert sum(a != b for a, b in zip(rotten, fault.node.disk.read(name), strict=True)) == 1
            await all_up(world)
        assert {node.name: node.disk.read("members") for node in nodes(world)} == before

    play(story)


# -- a world by hand


def nodes(world: World) -> list:  # type: ignore[type-arg]
    return list(world.nodes.values())


async def all_up(world: World) -> None:
    for node in nodes(world):
        world.start_node(node)
    await until(lambda: all(node.up for node in nodes(world)) and world.leader() is not None)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- virtual time
            await asyncio.sleep(0.01)


def write_something(world: World) -> None:
    """Something that every node must sync, sooner or later."""
    actor = Actor(world, world.clients["c1"], "A")
    actor.begin(actor.open_session(3_000))


def play(
    story: Callable[[World], Awaitable[None]], *, nodes: int = 3, spares: int = 0, check: bool = True
) -> World:
    world = World(1, Options(nodes=nodes, spares=spares, clients=2, snapshot_entries=20))
    world.run(story(world))
    if check:
        assert [str(violation) for violation in world.violations] == []
    return world
