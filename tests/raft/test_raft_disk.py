"""The real disk, and the model of it that other tests use: the same contract."""

import asyncio
import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from disk_model import ModelDisk, PowerLost

from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.disk import DirectoryInUse, Disk, Done, SystemDisk

Give = Callable[[Callable[[], None], Done], None]


@pytest.fixture
def system_disk(tmp_path: Path) -> Iterator[SystemDisk]:
    disk = SystemDisk(tmp_path / "data")
    yield disk
    disk.close()


@pytest.fixture(params=["system", "model"])
def disk(request: pytest.FixtureRequest, system_disk: SystemDisk) -> Disk:
    return system_disk if request.param == "system" else ModelDisk()


def test_a_new_file_is_zeros_of_the_size_that_was_asked_for(disk: Disk) -> None:
    file = disk.create("a", (1 << 20) + 77)
    assert file.size() == (1 << 20) + 77
    assert disk.read("a") == bytes((1 << 20) + 77)
    assert disk.names() == ["a"]


def test_a_new_file_takes_the_place_of_one_of_that_name(disk: Disk) -> None:
    disk.create("a", 10).write_at(0, b"x" * 10)
    assert disk.create("a", 3).size() == 3
    assert disk.read("a") == b"\0\0\0"


def test_what_is_written_is_read(disk: Disk) -> None:
    file = disk.create("a", 8)
    file.write_at(2, b"abc")
    file.write_at(7, b"xyz")
    file.sync()
    assert disk.read("a") == b"\0\0abc\0\0xyz"
    assert file.read_at(3, 5) == b"bc\0\0x"
    assert file.read_at(8, 100) == b"yz"
    assert file.read_at(50, 100) == b""
    again = disk.open("a")
    again.write_at(0, b"!!")
    assert file.read_at(0, 3) == b"!!a"


def test_a_large_write_is_written_whole(disk: Disk) -> None:
    data = random.Random(1).randbytes(3 << 20)
    file = disk.create("a", 0)
    file.write_at(5, data)
    assert file.read_at(5, len(data)) == data
    assert disk.read("a") == bytes(5) + data


def test_a_rename_replaces_and_a_removed_file_stays_readable_while_open(disk: Disk) -> None:
    disk.create("a", 0).write_at(0, b"a")
    file = disk.create("b", 0)
    file.write_at(0, b"b")
    disk.rename("a", "b")
    disk.sync_directory()
    assert disk.names() == ["b"]
    assert disk.read("b") == b"a"
    disk.remove("b")
    disk.sync_directory()
    assert disk.names() == []
    assert file.read_at(0, 1) == b"b"


def test_a_file_that_is_not_there_is_an_error(disk: Disk) -> None:
    for action in (disk.read, disk.open, disk.remove):
        with pytest.raises(FileNotFoundError):
            action("a")


def test_a_closed_file_cannot_be_used(disk: Disk) -> None:
    file = disk.create("a", 1)
    file.close()
    file.close()
    for action in (file.sync, file.size, lambda: file.write_at(0, b"x")):
        with pytest.raises((OSError, ValueError)):
            action()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd"])
def test_only_plain_names_are_used(system_disk: SystemDisk, name: str) -> None:
    for action in (system_disk.open, system_disk.read, lambda n: system_disk.create(n, 1)):
        with pytest.raises(ValueError, match="plain file name"):
            action(name)


def test_free_space_is_what_the_file_system_says(system_disk: SystemDisk) -> None:
    assert 0 < system_disk.free_bytes() < 1 << 60


def test_a_directory_belongs_to_one_process(tmp_path: Path) -> None:
    first, second = SystemDisk(tmp_path), SystemDisk(tmp_path)
    first.lock()
    first.lock()
    with pytest.raises(DirectoryInUse, match=str(tmp_path)):
        second.lock()
    assert first.names() == []
    script = f"from tenure_cluster.raft.disk import SystemDisk; SystemDisk({str(tmp_path)!r}).lock()"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "DirectoryInUse" in other.stderr
    first.close()
    second.lock()
    second.close()


async def run(give: Give, work: Callable[[], None]) -> BaseException | None:
    future: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    give(work, future.set_result)
    return await future


@pytest.fixture(params=["urgent", "bulk"])
def give(request: pytest.FixtureRequest, system_disk: SystemDisk) -> Give:
    return system_disk.run if request.param == "urgent" else system_disk.run_bulk


async def test_work_is_done_off_the_loop_in_order_and_reported_on_the_loop(give: Give) -> None:
    order: list[tuple[int, bool]] = []
    reported: list[int] = []
    loop_thread = threading.get_ident()

    def work(number: int) -> None:
        order.append((number, threading.get_ident() == loop_thread))

    for number in range(50):
        give(
            lambda n=number: work(n),
            lambda error, n=number: reported.append(n if threading.get_ident() == loop_thread else -1),
        )
    assert await run(give, lambda: None) is None
    assert order == [(number, False) for number in range(50)]
    assert reported == list(range(50))


async def test_an_error_of_the_work_is_reported_and_the_next_work_is_done(give: Give) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "broken")

    error = await run(give, fail)
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
    assert await run(give, lambda: None) is None


async def test_bulk_work_does_not_stand_in_the_way_of_urgent_work(system_disk: SystemDisk) -> None:
    gate = threading.Event()
    bulk = asyncio.create_task(run(system_disk.run_bulk, lambda: assert_set(gate)))
    await asyncio.sleep(0)
    assert await run(system_disk.run, lambda: None) is None
    assert not bulk.done()
    gate.set()
    assert await bulk is None


def assert_set(gate: threading.Event) -> None:
    assert gate.wait(30)


def test_work_that_ends_after_its_loop_is_no_error(system_disk: SystemDisk) -> None:
    gate = threading.Event()
    done: list[object] = []

    async def leave_work_behind() -> None:
        system_disk.run(lambda: assert_set(gate), done.append)

    asyncio.run(leave_work_behind())
    gate.set()
    system_disk.close()
    assert done == []


async def test_closing_finishes_the_work_first(system_disk: SystemDisk) -> None:
    file = system_disk.create("a", 0)
    errors: list[BaseException | None] = []
    system_disk.run(lambda: file.write_at(0, b"last"), errors.append)
    system_disk.run(file.sync, errors.append)
    system_disk.close()
    system_disk.close()
    await asyncio.sleep(0)
    assert errors == [None, None]
    assert (system_disk.directory / "a").read_bytes() == b"last"


@pytest.mark.parametrize(("durability", "expected"), [("fsync", 3), ("os", 0)])
def test_only_with_durability_fsync_anything_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, expected: int
) -> None:
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (synced.append(descriptor), real(descriptor)))
    disk = SystemDisk(tmp_path, durability)  # type: ignore[arg-type]
    file = disk.create("a", 1)
    file.sync()
    disk.sync_directory()
    disk.close()
    assert len(synced) == expected, "the directory's own name, the file, the file's name"


def test_the_name_of_a_new_directory_is_durable_before_anything_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        assert not any((tmp_path / "a" / "b").iterdir())

    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setattr(os, "fdatasync", sync)
    SystemDisk(tmp_path / "link" / "a" / "b").close()
    assert set(synced) == {str(tmp_path), str(tmp_path / "a")}
    synced.clear()
    SystemDisk(tmp_path / "a" / "b").close()
    assert synced == [str(tmp_path / "a")], "whoever made it may not have come so far"


def test_the_clock_goes_on_and_chance_is_in_range() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    assert clock.monotonic() >= before
    assert clock.wall_ms() > 1_700_000_000_000
    draws = [clock.random() for _ in range(100)]
    assert all(0 <= draw < 1 for draw in draws)
    assert len(set(draws)) > 90


# -- what the model adds


def test_the_model_keeps_what_was_synced_and_may_lose_the_rest() -> None:
    outcomes = set()
    for seed in range(200):
        disk = ModelDisk()
        file = disk.create("a", 0)
        file.write_at(0, b"old" * 400)
        file.sync()
        disk.sync_directory()
        file.write_at(0, b"new" * 400)
        disk.create("b", 10)
        disk.lose_power(random.Random(seed))
        content = disk.read("a")
        assert len(content) == 1200
        outcomes.add((content[:512].startswith(b"new"), content[-3:] == b"new", "b" in disk.names()))
    assert len(outcomes) == 8


def test_the_model_keeps_everything_when_only_the_process_ends() -> None:
    disk = ModelDisk()
    file = disk.create("a", 0)
    file.write_at(0, b"x")
    disk.kill()
    assert disk.read("a") == b"x"
    with pytest.raises(OSError, match="closed"):
        file.write_at(0, b"y")


def use(disk: ModelDisk) -> None:
    file = disk.create("a", 0)
    file.write_at(0, b"x")
    file.sync()
    disk.sync_directory()
    disk.sync_directory()


def test_the_model_can_fail_at_any_operation() -> None:
    for operations, expected in enumerate([[], ["a"], ["a"], ["a"]]):
        disk = ModelDisk()
        disk.fail_after(operations)
        with pytest.raises(PowerLost):
            use(disk)
        assert disk.names() == expected


def test_the_model_can_be_full() -> None:
    disk = ModelDisk(space_bytes=10)
    file = disk.create("a", 6)
    with pytest.raises(OSError, match="full"):
        file.write_at(4, b"1234567")
    file.write_at(4, b"123456")
    assert disk.free_bytes() == 0
