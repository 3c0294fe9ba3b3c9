"""The simulated disk is slow, full, rotten and forgetful in the ways that disks are."""

import errno
import random
from collections.abc import Callable, Iterator

import pytest

from tenure_chaos.sim.disk import SYNC_S, SimDisk
from tenure_chaos.sim.loop import Process, VirtualLoop

Done = list[BaseException | None]


_loops: list[VirtualLoop] = []


@pytest.fixture(autouse=True)
def close_loops() -> Iterator[None]:
    yield
    while _loops:
        _loops.pop().close()


def new_disk(seed: int = 1, space_bytes: int = 1 << 30) -> SimDisk:
    _loops.append(VirtualLoop())
    return SimDisk(_loops[-1], random.Random(seed), space_bytes)


def took_s(disk: SimDisk, work: Callable[[], None], done: Done) -> float:
    """How long the disk takes for one piece of work."""
    began_s, future = disk.loop.time(), disk.loop.create_future()

    def ended(error: BaseException | None) -> None:
        done.append(error)
        future.set_result(None)

    disk.run(work, ended)
    disk.loop.run_until_complete(future)
    return disk.loop.time() - began_s


def written(disk: SimDisk, name: str, content: bytes) -> None:
    """A file with this, durable with its name."""
    file = disk.create(name, 0)
    file.write_at(0, content)
    file.sync()
    disk.sync_directory()


def test_work_takes_as_long_as_the_disk_is_slow() -> None:
    disk, done = new_disk(), []
    written(disk, "a", b"x")
    sync = disk.open("a").sync
    assert SYNC_S[0] <= took_s(disk, sync, done) <= SYNC_S[1]
    disk.slow_down(0.5, 0.7)
    assert 0.5 <= took_s(disk, sync, done) <= 0.7
    disk.be_quick()
    assert SYNC_S[0] <= took_s(disk, sync, done) <= SYNC_S[1]
    assert done == [None, None, None]


def test_a_write_beyond_the_space_that_is_left_fails_and_changes_nothing() -> None:
    disk = new_disk()
    written(disk, "a", b"x" * 100)
    disk.fill(left_bytes=10)
    assert disk.free_bytes() == 10
    file = disk.open("a")
    file.write_at(90, b"y" * 20)
    with pytest.raises(OSError, match="full") as failed:
        file.write_at(105, b"z" * 6)
    assert failed.value.errno == errno.ENOSPC
    assert disk.read("a") == b"x" * 90 + b"y" * 20
    # What is there may be written over.
    file.write_at(0, b"z" * 110)
    disk.make_room()
    file.write_at(110, b"z" * 1000)


def test_space_comes_back_with_what_is_removed_or_replaced() -> None:
    disk = new_disk(space_bytes=1_000)
    written(disk, "a", b"x" * 400)
    written(disk, "b", b"x" * 500)
    assert disk.free_bytes() == 100
    disk.rename("a", "b")
    assert disk.free_bytes() == 600
    disk.remove("b")
    assert disk.free_bytes() == 1_000


def test_a_sync_that_fails_once_leaves_what_was_written_to_be_lost() -> None:
    disk, done = new_disk(), []
    written(disk, "a", b"old")
    file = disk.open("a")
    file.write_at(0, b"new")
    disk.fail_next_sync = True
    took_s(disk, file.sync, done)
    assert isinstance(done[0], OSError)
    assert done[0].errno == errno.EIO
    assert disk.read("a") == b"new", "the process that starts next still sees it"
    file.sync()
    disk.lose_power()
    assert disk.read("a") == b"old", "no later sync has made it durable"


def test_what_is_written_again_after_a_failed_sync_is_kept() -> None:
    disk = new_disk()
    written(disk, "a", b"old")
    file = disk.open("a")
    file.write_at(0, b"new")
    disk.fail_next_sync = True
    with pytest.raises(OSError, match="failed to sync"):
        file.sync()
    disk.kill()
    file = disk.open("a")
    file.write_at(0, b"new")
    file.sync()
    disk.lose_power()
    assert disk.read("a") == b"new"


def test_a_bit_that_flips_is_wrong_after_a_power_loss_too_and_flips_back() -> None:
    disk = new_disk()
    written(disk, "a", b"\0\0\0")
    bit = disk.flip("a", 1)
    assert disk.read("a") == bytes([0, 1 << bit, 0])
    disk.lose_power()
    assert disk.read("a") == bytes([0, 1 << bit, 0])
    assert disk.flip("a", 1, bit) == bit
    assert disk.read("a") == b"\0\0\0"


def test_a_power_loss_keeps_what_was_synced_and_any_part_of_what_was_not() -> None:
    seen = set()
    for seed in range(200):
        disk = new_disk(seed)
        written(disk, "a", b"a" * 512 + b"b" * 512)
        disk.open("a").write_at(0, b"C" * 1024)
        disk.lose_power()
        content = disk.read("a")
        assert len(content) == 1024
        assert set(content) <= set(b"abC")
        seen.add((content[:512] == b"C" * 512, content[512:] == b"C" * 512))
    # Nothing, all, the first half and the second half: writes do not reach the platter in order.
    assert seen == {(False, False), (True, True), (True, False), (False, True)}


def test_a_name_that_was_not_synced_may_be_gone_or_there() -> None:
    seen = set()
    for seed in range(50):
        disk = new_disk(seed)
        file = disk.create("a", 0)
        file.write_at(0, b"x")
        file.sync()
        disk.lose_power()
        seen.add(tuple(disk.names()))
    assert seen == {(), ("a",)}


def test_work_that_a_crash_falls_into_is_never_done_nor_answered() -> None:
    disk = new_disk()
    done: Done = []
    ran: list[str] = []
    disk.run(lambda: ran.append("work"), done.append)
    disk.run_bulk(lambda: ran.append("bulk"), done.append)
    disk.kill()
    future = disk.loop.create_future()
    disk.loop.call_later(1.0, future.set_result, None)
    disk.loop.run_until_complete(future)
    assert ran == done == []


def test_a_file_of_a_process_that_has_ended_can_not_be_used() -> None:
    disk = new_disk()
    written(disk, "a", b"x")
    file = disk.open("a")
    disk.kill()
    for use in (file.sync, file.size, lambda: file.write_at(0, b"y"), lambda: file.read_at(0, 1)):
        with pytest.raises(OSError, match="closed"):
            use()
    assert disk.read("a") == b"x"


def idle() -> None:
    pass


def test_what_a_process_asks_for_while_it_is_being_killed_does_not_hold_the_next_one_up() -> None:
    disk, done = new_disk(), []
    ended: Done = []
    first = Process("n1")

    def killed_within_its_own_call() -> None:
        first.alive = False
        disk.kill()
        disk.run(idle, ended.append)
        disk.run_bulk(idle, ended.append)

    first.context.run(killed_within_its_own_call)
    assert took_s(disk, idle, done) < 1.0
    assert (done, ended) == ([None], [])
