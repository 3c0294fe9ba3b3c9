"""A rolling upgrade of real processes from an older commit to this tree, while a holder renews.

    python tests/integration/upgrade_from.py 44b21aa

Starts three nodes from the commit's sources, and one after the other with this tree's. Fails if a renewal
failed, if a newer command was taken while an older node would have had to stop at it, or if it is still
refused when all have been upgraded. It needs the repository's history, so it is no test of the suite.
"""

import argparse
import asyncio
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from live_cluster import LiveCluster, until

import tenure

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 300.0
RENEW_EVERY_S: Final = 0.05
BETWEEN_S: Final = 2.0
"""For how long the nodes of both versions serve side by side after each step."""


class Holder:
    """Holds one lease all the while and renews it far more often than it must."""

    def __init__(self, endpoints: str) -> None:
        self._endpoints = endpoints
        self.renewed = 0
        self.failed: list[str] = []

    async def run(self) -> None:
        async with tenure.connect(self._endpoints, timeout=20.0) as client:
            lease = await client.acquire("upgrade", owner="holder", ttl=60)
            while True:
                try:
                    await client.renew(lease.lease_id)
                    self.renewed += 1
                except tenure.TenureError as error:
                    self.failed.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(RENEW_EVERY_S)


def sources_of(commit: str, directory: Path) -> str:
    """The commit's packages, as a PYTHONPATH."""
    archive = directory / "sources.tar"
    subprocess.run(
        ["git", "-C", str(ROOT), "archive", f"--output={archive}", commit, "cluster", "client"], check=True
    )
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return f"{directory / 'cluster'}:{directory / 'client'}"


async def newer_command(url: str) -> str:
    """What a node answers to a call that needs a command which the old nodes don't know."""
    async with tenure.connect(url, timeout=3.0) as client:
        try:
            await client.create_credential("after the upgrade", rights=["observe"])
        except tenure.TenureError as error:
            return error.code
        return "done"


async def upgrade(commit: str, directory: Path) -> None:
    older = sources_of(commit, directory)
    cluster = LiveCluster(directory / "nodes", wait_ready=False)
    for node in cluster.nodes.values():
        node.extra_environment["PYTHONPATH"] = older
    async with cluster:
        await cluster.ready(timeout_s=START_S)
        holder = Holder(",".join(node.url for node in cluster.nodes.values()))
        holding = asyncio.create_task(holder.run())
        left = len(cluster.nodes)
        for node in cluster.nodes.values():
            await asyncio.sleep(BETWEEN_S)
            await cluster.stop(node)
            del node.extra_environment["PYTHONPATH"]
            cluster.start(node)
            await cluster.ready(timeout_s=START_S)
            left -= 1
            code = await newer_command(node.url)
            say(f"{node.node_id} upgraded, {holder.renewed} renewals; a newer command: {code}")
            assert left == 0 or code != "done", "it was taken beside older nodes"
            cluster.assert_all_run()
        url = next(iter(cluster.nodes.values())).url

        async def taken() -> bool:
            return await newer_command(url) == "done"

        await until(taken, 60, "the newer command to be taken", 0.5)
        renewed = holder.renewed

        async def goes_on() -> bool:
            return holder.renewed > renewed

        await until(goes_on, 60, "another renewal")
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        assert holder.failed == [], holder.failed
        say(f"{holder.renewed} renewals, none failed")


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", help="the older version")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(upgrade(commit, Path(directory)))


if __name__ == "__main__":
    main()
