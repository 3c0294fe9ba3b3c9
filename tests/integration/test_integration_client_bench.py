"""The bench of held leases runs and gives figures of the promised shape; heartbeats go with the sessions."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.process
async def test_a_quick_bench_of_held_leases_gives_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "bench" / "client_leases.py"),
        *("--quick", "--json", str(figures)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    text = output.decode()
    assert process.returncode == 0, text
    one, many, own = json.loads(figures.read_text(encoding="utf-8"))["results"]
    assert [(row["leases"], row["sessions"]) for row in (one, many, own)] == [(300, 1), (300, 100), (30, 30)]
    for row in (one, many, own):
        assert row["name"] in text
        assert row["rss_mib"] > 1
        assert row["cpu_share"] > 0
        assert row["threads"] == 2, "however many leases there are"
    assert one["heartbeats_per_s"] < many["heartbeats_per_s"]
