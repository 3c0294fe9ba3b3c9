"""The commands of cluster/AUDIT.md, run as they are written: an export, what continues it, and what is said
of one that was changed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from live_cluster import LiveCluster, until
from written_commands import Page

import tenure

pytestmark = pytest.mark.process


async def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    page = Page("cluster/AUDIT.md")
    async with LiveCluster(tmp_path / "cluster", nodes=1) as cluster:
        url = cluster.nodes["n1"].url
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        environment = plain | {
            "PATH": f"{Path(sys.executable).parent}:{plain['PATH']}",
            "TENURE_ENDPOINTS": url,
        }

        async def typed(command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
            done = await asyncio.to_thread(
                subprocess.run,
                ["sh", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == code, (command, done.stderr)
            return done

        async with tenure.connect(url) as client:

            async def recording() -> bool:
                return (await client.audit()).recording

            await until(recording, 60, "the audit's beginning")
            await client.acquire("job", owner="agent-a", ttl=60)
            await client.break_("job", reason="it hangs")

            shown = await typed(page.take("tenure audit"))
            assert "break" in shown.stdout
            assert "it hangs" in shown.stdout
            export = await typed(page.take("tenure audit -o json --verify >"))
            end = export.stderr.splitlines()[-1].removeprefix("verified up to ")

            await client.break_("another", reason="later")
            more = page.take("tenure audit -o json --verify --after SEQ:HASH >>")
            assert "verified up to" in (await typed(more.replace("SEQ:HASH", end))).stderr

        alone = page.take("tenure audit --file")
        page.leave({})
        environment["TENURE_ENDPOINTS"] = "http://127.0.0.1:9"
        assert "verified up to" in (await typed(alone)).stderr
        file = tmp_path / "audit.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        place = next(place for place, line in enumerate(lines) if "it hangs" in line)
        lines[place] = lines[place].replace("it hangs", "it was asked for")
        file.write_text("".join(lines))
        assert f"line {place + 1}:" in (await typed(alone, code=1)).stderr
