"""The benches of very many leases run and give figures of the promised shape; what they are is not judged
here, save that nothing is lost and nothing is left."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


async def quick(script: str, directory: Path) -> dict[str, Any]:
    """Run a script's quick form; its figures. What it prints has to end well."""
    figures = directory / "figures.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "bench" / script),
        *("--quick", "--json", str(figures), "--directory", str(directory)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(240):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    found: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
@pytest.mark.process
async def test_after_a_quick_expiry_storm_all_leases_are_gone_and_no_renewal_is_lost(tmp_path: Path) -> None:
    figures = await quick("expiry_storm.py", tmp_path)
    assert figures["expired"] == figures["leases"] > 1_000
    assert set(figures["left_on_nodes"].values()) == {0}
    assert len(figures["left_on_nodes"]) == 3
    assert (figures["lost"], figures["unanswered_frames"]) == (0, 0), figures["lost_because"]
    assert figures["all_ended_after_s"] > 0
    assert figures["loop"]["held_ms"] >= figures["loop"]["ran_ms"] > 0
    for phase in ("before", "during"):
        took = figures[phase]
        assert took["renewals"] > 0
        assert 0 < took["p50_ms"] <= took["p99_ms"] <= took["max_ms"]


@pytest.mark.slow
@pytest.mark.process
async def test_a_quick_bench_of_held_numbers_gives_ratios_memory_and_times(tmp_path: Path) -> None:
    figures = await quick("many_leases.py", tmp_path)
    numbers = list(figures["memory"])
    assert len(numbers) == 2
    assert all(len(cost["follower_bytes"]) == 2 for cost in figures["memory"].values())
    assert set(figures["acquire"]) == {"http", "stream"}
    for acquire in figures["acquire"].values():
        assert list(acquire["p99_ratio"]) == numbers
        assert acquire["p99_ratio"][numbers[0]] == 1.0
        assert all(0 < acquire["p50_ms"][number] <= acquire["p99_ms"][number] for number in numbers)
    snapshot = figures["snapshot"]
    assert set(snapshot["seconds"]) == set(snapshot["loop"]) == {"leader", "follower"}
    assert snapshot["renewals_max_ms"] > 0
    assert figures["restart_s"] > 0
    assert all(seconds > 0 for seconds in figures["failover_s"])
    assert len(figures["failover_s"]) == 1
