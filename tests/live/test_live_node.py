"""What a node's process writes down about itself, and how its clock and disk are bent."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenure_chaos.live.collect import Observations
from tenure_chaos.live.node.bends import Bends, BentClock, BentDisk
from tenure_chaos.live.node.observer import ObservedReplica, Observer, records
from tenure_cluster.lease.commands import Acquire, Release, encode


@pytest.fixture
def bends() -> Bends:
    return Bends()


@pytest.fixture
def disk(tmp_path: Path, bends: Bends) -> BentDisk:
    class Disk(BentDisk):
        pass

    Disk.bends = bends
    return Disk(tmp_path / "data")


def test_a_sync_fails_once_when_it_is_told_to(disk: BentDisk, bends: Bends) -> None:
    file = disk.create("journal-1", 100)
    file.sync()
    bends.sync_fails = True
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    disk.close()


def test_a_sync_takes_its_time_when_it_is_told_to(disk: BentDisk, bends: Bends) -> None:
    file = disk.create("journal-1", 100)
    bends.sync_takes_s = (0.2, 0.3)
    began = time.monotonic()
    file.sync()
    assert time.monotonic() - began >= 0.2
    disk.close()


def test_a_full_disk_takes_writes_into_what_it_has_and_no_more(disk: BentDisk, bends: Bends) -> None:
    file = disk.create("journal-1", 100)
    bends.free_bytes = 0
    assert disk.free_bytes() == 0
    file.write_at(50, b"x" * 50)
    for growing in (lambda: file.write_at(60, b"x" * 50), lambda: disk.create("journal-2", 1)):
        with pytest.raises(OSError, match="No space left") as full:
            growing()
        assert full.value.errno == errno.ENOSPC
    bends.free_bytes = None
    file.write_at(60, b"x" * 50)
    assert file.size() == 110
    disk.close()


def test_a_torn_write_leaves_a_part_and_no_process(tmp_path: Path) -> None:
    program = f"""
from tenure_chaos.live.node.bends import Bends, BentDisk
class Disk(BentDisk): bends = Bends()
disk = Disk({str(tmp_path)!r})
file = disk.create("journal-1", 4096)
file.write_at(0, b"a" * 100)
Disk.bends.tears = True
disk.create("snapshot-1", 10).write_at(0, b"whole")
file.write_at(100, b"b" * 1000)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    left = (tmp_path / "journal-1").read_bytes()
    assert left.startswith(b"a" * 100)
    assert 0 < left.count(b"b") < 1000
    assert (tmp_path / "snapshot-1").read_bytes().startswith(b"whole")


def test_a_bent_clock_goes_on_from_where_it_was(bends: Bends) -> None:
    clock = BentClock(bends)
    clock.set_rate(2.0)
    began, true = clock.monotonic(), time.monotonic()
    time.sleep(0.1)
    ran, truly = clock.monotonic() - began, time.monotonic() - true
    assert ran == pytest.approx(2 * truly, abs=0.05)
    clock.set_rate(1.0)
    assert clock.monotonic() >= began + ran
    clock.step_wall(-86_400_000)
    assert clock.wall_ms() == pytest.approx(time.time() * 1000 - 86_400_000, abs=1_000)


def acquire(number: int) -> bytes:
    return encode(
        Acquire(
            tenant="default",
            keys=[f"k{number}"],
            lease_ids=[f"l{number}"],
            owner="a",
            session_id=None,
            ttl_ms=3_000,
            request_id=f"r{number}",
            remember=True,
            wait=False,
            mode="exclusive",
            slots=0,
            grace_ms=0,
            if_held="return",
            metadata={},
            wall_ms=0,
        )
    )


def test_what_a_node_applies_becomes_the_history_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "observed"
    began = time.monotonic()
    replica = ObservedReplica(Observer(path, "n1", 1))
    replica.apply(2, [(100, acquire(1)), (100, acquire(2))])
    replica.apply(3, [(200, encode(Release(tenant="default", lease_id="l1", wall_ms=0)))])
    seen = Observations(began)
    seen.read("n1", path)
    [first, second, third] = seen.effects()
    assert [(e.index, e.place, e.at_ms, e.command) for e in (first, second, third)] == [
        (2, 0, 100, "Acquire"),
        (2, 1, 100, "Acquire"),
        (3, 0, 200, "Release"),
    ]
    assert first.result == "Granted"
    assert first.events[0]["kind"] == "granted"
    assert third.result == "Released"
    assert 0 <= first.first_applied_at <= third.first_applied_at < 60
    assert [(entry.node, entry.index) for entry in seen.applied] == [("n1", 2), ("n1", 3)]


def test_the_node_that_was_first_at_an_entry_tells_when(tmp_path: Path) -> None:
    began = time.monotonic()
    for node in ("n1", "n2"):
        ObservedReplica(Observer(tmp_path / node, node, 1)).apply(2, [(100, acquire(1))])
    seen = Observations(began)
    for node in ("n2", "n1"):
        seen.read(node, tmp_path / node)
    [effect] = seen.effects()
    [first] = [r["at"] for r in records(tmp_path / "n1") if r["is"] == "applied"]
    assert effect.first_applied_at == pytest.approx(first / 1e9 - began)
    assert sorted(entry.node for entry in seen.applied) == ["n1", "n2"]
    assert len({entry.content for entry in seen.applied}) == 1


def test_a_record_that_a_kill_has_torn_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "observed"
    replica = ObservedReplica(Observer(path, "n1", 1))
    replica.apply(2, [(100, acquire(1))])
    whole = list(records(path))
    replica.apply(3, [(100, acquire(2))])
    os.truncate(path, path.stat().st_size - 1)
    assert list(records(path)) == whole
