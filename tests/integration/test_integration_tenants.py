"""One tenant asks real nodes for ten times its quota, and another tenant's renewals go on.

The bench does it (bench/tenant_storm.py), in its quick form; how fast the renewals are is judged loosely
here, since the machine may have other work to do, and what each tenant was told strictly.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]

P99_MAX_MS = 1_500
"""What even a machine with other work must keep to; 100 is what the bench is judged by."""


async def storm(directory: Path, *arguments: str) -> dict[str, Any]:
    figures = directory / "figures.json"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "bench" / "tenant_storm.py"), "--quick", "--json", str(figures)),
        *("--directory", str(directory), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(240):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    found: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("times", ["10", "0"], ids=["ten times its quota", "as fast as it is answered"])
async def test_a_tenants_storm_costs_it_its_quota_and_another_tenant_nothing(
    tmp_path: Path, times: str
) -> None:
    figures = await storm(tmp_path, "--times", times)
    told = figures["storm"]
    assert figures["leader_stayed"]

    # The other tenant: nothing is refused, nothing is lost, nothing comes late.
    assert (figures["lost"], figures["overloaded"], figures["unanswered_frames"]) == ({}, 0, 0)
    for way in ("http", "stream"):
        during = figures["during"][way]
        assert during["renewals"] >= 50, "too few to tell anything"
        assert during["p99_ms"] < P99_MAX_MS

    # The one that storms has its quota and no more, and is told which one it has exceeded.
    assert 0 < told["granted"] <= figures["granted_max"]
    assert figures["leases_seen_max"] <= figures["leases_max"]
    assert told["exceeded"]["acquire: operations_per_s"] > 0
    assert told["exceeded"]["watch: watches"] > 0
    assert (told["unnamed"], told["broken"]) == (0, 0)
    assert set(told["answers"]["watch"]) == {"200", "429"}
    assert told["answers"]["watch"]["200"] == 20

    # What it holds it keeps and gives back, whatever else it asks for.
    for operation in ("renew", "release"):
        assert set(told["answers"][operation]) == {"200"}, operation
