"""A rolling upgrade of real processes from an older commit to this tree, while a holder renews.

    python tests/integration/upgrade_from.py 44b21aa

Starts three nodes from the commit's sources, and one after the other with this tree's. Fails if a renewal
failed, if a newer call was taken while an older node would have had to stop at it, or if it is still
refused when all have been upgraded. It needs the repository's history, so it is no test of the suite.
"""

import argparse
import asyncio
import subprocess
import tarfile
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

from live_cluster import LiveCluster, LiveNode, until

import tenure
from tenure.aio import Client

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


class Newer(NamedTuple):
    """A call that takes something which older versions may not know."""

    what: str
    shown_by: str
    """A file that the versions have which know it."""
    ask: Callable[[Client, LiveNode], Awaitable[object]]


NEWER: Final = (
    Newer(
        "a credential",
        "cluster/tenure_cluster/lease/credentials.py",
        lambda client, node: client.create_credential("after the upgrade", rights=["observe"]),
    ),
    Newer(
        "a change of members",
        "cluster/tenure_cluster/raft/changes.py",
        lambda client, node: client.add_member(
            node.node_id, peer=f"127.0.0.1:{node.peer_port}", http=node.url, readdress=True
        ),
    ),
)


async def asked(newer: Newer, node: LiveNode) -> str:
    """What a node answers."""
    async with tenure.connect(node.url, timeout=3.0) as client:
        try:
            await newer.ask(client, node)
        except tenure.TenureError as error:
            return f"{error.code} ({error})"
        return "done"


async def upgrade(commit: str, directory: Path) -> None:
    older = sources_of(commit, directory)
    unknown = [newer for newer in NEWER if not (directory / newer.shown_by).exists()]
    say(f"{commit} does not know: {', '.join(newer.what for newer in unknown) or 'nothing of what is asked'}")
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
            say(f"{node.node_id} upgraded, {holder.renewed} renewals")
            for newer in unknown:
                told = await asked(newer, node)
                say(f"  {newer.what}: {told}")
                assert left == 0 or told != "done", f"{newer.what}: taken beside older nodes"
            cluster.assert_all_run()
        first = next(iter(cluster.nodes.values()))
        for newer in NEWER:

            async def taken(newer: Newer = newer) -> bool:
                return await asked(newer, first) == "done"

            await until(taken, 60, f"{newer.what} to be taken", 0.5)
            say(f"{newer.what}: done, once all are upgraded")
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
