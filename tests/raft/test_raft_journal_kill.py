"""A real process on a real disk, killed by SIGKILL at chosen and at unchosen places."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from journal_cases import SEGMENT_BYTES, SeededClock
from journal_writer import command

from tenure_cluster import faults
from tenure_cluster.raft.disk import SystemDisk
from tenure_cluster.raft.journal import Journal
from tenure_cluster.raft.snapshot_file import SnapshotStore

WRITER = Path(__file__).with_name("journal_writer.py")


def start(directory: Path, armed: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(directory), armed],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(WRITER.parent)},
    )


def acknowledged(writer: subprocess.Popen[str]) -> tuple[int, int, str] | None:
    """The last acknowledgement of a writer that has been killed."""
    output, errors = writer.communicate(timeout=60)
    assert writer.returncode == -signal.SIGKILL, errors
    lines = [line for line in output.splitlines(keepends=True) if line.endswith("\n")]
    if not lines:
        return None
    index, term, voted_for = lines[-1].split()
    return int(index), int(term), voted_for


def check(directory: Path, last: tuple[int, int, str] | None) -> int:
    """All that was acknowledged is there, and nothing that was not written. Returns the last index."""
    disk = SystemDisk(directory)
    latest = SnapshotStore(disk, "cluster").latest()
    journal = Journal.open(
        disk,
        SeededClock(),
        cluster_id="cluster",
        node_id="n1",
        segment_bytes=SEGMENT_BYTES,
        snapshot=latest.boundary if latest else None,
    )
    entries = journal[:]
    found = (entries[-1][1], journal.getCurrentTerm()) if entries else (0, 0)
    vote = journal.getVotedForNodeId()
    disk.close()
    assert [entry[0] for entry in entries] == [command(entry[1]) for entry in entries]
    if last is not None:
        assert found >= last[:2]
        if found == last[:2]:
            assert vote == last[2]
    return found[0]


@pytest.mark.process
@pytest.mark.parametrize("point", sorted(faults.POINTS))
def test_a_kill_at_a_fault_point_loses_nothing_that_was_acknowledged(tmp_path: Path, point: str) -> None:
    index = 0
    for count in (1, 2):
        last = acknowledged(start(tmp_path, f"{point}=kill:{count}"))
        if last is not None:
            assert last[0] >= index
        index = check(tmp_path, last)
    assert index > 0


@pytest.mark.process
def test_kills_at_any_time_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    index = 0
    for lines in (1, 17, 120):
        writer = start(tmp_path)
        assert writer.stdout is not None
        for _ in range(lines):
            line = writer.stdout.readline()
        writer.kill()
        last = acknowledged(writer) or (int(line.split()[0]), int(line.split()[1]), line.split()[2])
        assert last[0] > index
        index = check(tmp_path, last)


def test_a_fault_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no fault point 'journal\.before_sink'"):
        faults.arm_from("journal.before_sink=kill:1")
    for wrong in ("journal.before_sync", "journal.before_sync=kill", "journal.before_sync=sleep:1"):
        with pytest.raises(ValueError, match="not of the form"):
            faults.arm_from(wrong)


def test_an_armed_point_acts_until_it_is_disarmed() -> None:
    hits: list[str] = []
    faults.arm("journal.before_sync", lambda: hits.append("hit"))
    faults.hit("journal.before_sync")
    faults.hit("journal.after_sync")
    faults.disarm()
    faults.hit("journal.before_sync")
    assert hits == ["hit"]
