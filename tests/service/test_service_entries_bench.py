"""The bench of single entries runs and prints its lines; what the figures are is not judged here."""

import asyncio
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


async def test_the_quick_form_measures_a_storm_and_acquires() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "bench" / "entries.py"),
        "--quick",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(240):
        output, _ = await process.communicate()
    told = output.decode()
    assert process.returncode == 0, told
    for line in (
        r"600 renewals in an entry: [\d.]+ ms, after 2,000 leases fell due [\d.]+ ms",
        r"expiry by 100: median [\d.]+ ms",
        r"expiry by 500: median [\d.]+ ms",
        r"a snapshot begins in [\d.]+ ms",
        r"1,000 leases: acquire p50 [\d.]+ us, p99 [\d.]+ us, [\d.]+ x the smallest's",
    ):
        assert re.search(line, told), told
