"""A dictionary that stands still: what is seen over it is what a dictionary would be, order included, and
snapshots under way neither see later changes nor hold the table up."""

import random

import pytest
from lease_world import TENANT, World

from tenure_cluster.lease import snapshot
from tenure_cluster.lease.overlay import Overlay


@pytest.mark.parametrize("seed", range(30))
def test_an_overlay_is_a_dictionary_whose_base_stands_still(seed: int) -> None:
    pick = random.Random(seed)
    plain = {number: str(number) for number in range(20)}
    base = dict(plain)
    overlay: Overlay[int, str] = Overlay(base)
    merging = False
    for step in range(300):
        key = pick.randrange(30)
        if pick.random() < 0.4 and key in plain:
            del plain[key]
            del overlay[key]
        elif pick.random() < 0.7:
            plain[key] = overlay[key] = f"{step}"
        assert (key in overlay) == (key in plain)
        assert overlay.get(key) == plain.get(key)
        assert len(overlay) == len(plain)
        if not merging:
            assert list(overlay.items()) == list(plain.items())
            assert list(base) == list(range(20))
        merging = merging or (step > 200 and pick.random() < 0.1)
        if merging:
            overlay.merge(pick.randrange(3))
            assert dict(overlay) == plain
    while not overlay.merge(1):
        pass
    assert dict(overlay.base) == plain
    with pytest.raises(KeyError):
        del overlay[99]
    with pytest.raises(KeyError):
        overlay[99]


def test_the_order_after_a_merge_in_one_go_is_that_of_a_dictionary() -> None:
    plain = dict.fromkeys(range(6), "x")
    overlay: Overlay[int, str] = Overlay(dict(plain))
    for mapping in (plain, overlay):
        del mapping[2]  # type: ignore[attr-defined]
        mapping[7] = "new"  # type: ignore[index]
        mapping[2] = "again"  # type: ignore[index]
        mapping[3] = "other"  # type: ignore[index]
    assert overlay.merge(100) > 0
    assert list(overlay.base.items()) == list(plain.items())


def fill(world: World, count: int) -> None:
    for number in range(count):
        world.acquire(f"k{number}", lease=f"l{number}")


def test_a_snapshot_under_way_stands_for_its_moment_while_everything_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "CHUNK_BYTES", 500)
    world.tidy_steps = 2
    fill(world, 20)
    expected = list(snapshot.dump(world.table))
    world.tick()
    running = snapshot.dump(world.table)
    drawn = [next(running)]
    assert world.table.frozen
    for number, chunk in enumerate(running):
        drawn.append(chunk)
        world.release(f"l{number % 20}")
        world.acquire(f"new{number}", lease=f"n{number}")
        world.renew("l19")
    assert drawn[1:] == expected[1:]
    entries = 0
    while world.table.frozen:
        world.tick()
        entries += 1
        assert entries < 100
    assert entries > 1
    assert type(world.table.leases) is dict
    world.restart()


def test_a_snapshot_that_is_dropped_lets_the_table_go_on(world: World) -> None:
    fill(world, 3)
    running = snapshot.dump(world.table)
    next(running)
    world.release("l0")
    del running
    world.tick()
    assert world.table.frozen == {}
    assert [grant.lease.key for grant in world.table.list_leases(TENANT, "", None, None, 9)[0]] == [
        "k1",
        "k2",
    ]


def test_a_second_snapshot_at_the_same_time_is_of_its_own_moment(world: World) -> None:
    fill(world, 3)
    first = snapshot.dump(world.table)
    world.release("l0")
    second = snapshot.dump(world.table)
    world.release("l1")
    assert len(snapshot.load(list(first)).leases) == 3
    assert len(snapshot.load(list(second)).leases) == 2
    world.tick()
    assert world.table.frozen == {}
