"""The bench runs and gives figures of the promised shape; what they are is not judged here."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.process
async def test_a_quick_bench_gives_a_table_and_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "bench" / "bench.py"),
        *("--quick", "--json", str(figures), "--directory", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(90):
        output, _ = await process.communicate()
    text = output.decode()
    assert process.returncode == 0, text
    result = json.loads(figures.read_text(encoding="utf-8"))
    assert result["durability"] == "fsync"
    series = [(each["work"], each["clients"]) for each in result["results"]]
    assert series == [("acquire+release", 1), ("renew", 1), ("acquire+release", 16), ("renew", 16)]
    for each in result["results"]:
        assert each["rate_per_s"] > 0, each
        assert 0 < each["first_p50_ms"] <= each["first_p99_ms"], each
        assert len(each["follower_cpu_us"]) == 2, each
        assert each["work"] in text
