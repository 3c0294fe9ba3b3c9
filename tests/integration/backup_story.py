"""What the stories about backups do with a real cluster: save, wipe, restore, look, hold against."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from live_cluster import LiveCluster, LiveNode
from workload import Load

import tenure
from tenure.errors import CommitRefused, LeaseLost
from tenure_cluster.inspection import described, read_stopped

TTL_S = 600.0
"""Nobody's lease ends by itself in these stories."""


def run(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`tenured …` or `tenure …` as a process of its own."""
    module = {"tenured": "tenure_cluster.cli", "tenure": "tenure.cli"}[program]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        env=environment | variables,
        timeout=120,
    )


def endpoints(cluster: LiveCluster) -> str:
    return ",".join(node.url for node in cluster.nodes.values())


def save(file: Path, *nodes: LiveNode) -> dict[str, Any]:
    """`tenure backup save`, of these nodes."""
    urls = ",".join(node.url for node in nodes)
    done = run("tenure", "backup", "save", str(file), "-o", "json", TENURE_ENDPOINTS=urls)
    assert done.returncode == 0, done.stderr
    saved = json.loads(done.stdout)
    assert isinstance(saved, dict)
    return saved


def restore(node: LiveNode, file: Path, *options: str) -> dict[str, Any]:
    """`tenured restore` for one node, which must succeed."""
    done = run("tenured", "restore", str(file), "--config", str(node.config_path), "-o", "json", *options)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


def wipe(*nodes: LiveNode) -> None:
    for node in nodes:
        assert not node.running
        shutil.rmtree(node.data_dir)


async def begin_anew(cluster: LiveCluster, file: Path, *options: str) -> None:
    """Kill all, wipe all, restore all, start all."""
    nodes = list(cluster.nodes.values())
    cluster.kill(*nodes)
    wipe(*nodes)
    told = [restore(node, file, *options) for node in nodes]
    assert len({each["known_as"] for each in told}) == 1
    for node in nodes:
        cluster.start(node)
    await cluster.ready()


@dataclass
class OldHolder:
    """Somebody who holds a key, and will not hear of what happens to the cluster."""

    key: str
    lease_id: str
    token: int

    @classmethod
    async def of(cls, client: tenure.Client, key: str, value: str | None = None) -> "OldHolder":
        grant = await client.acquire(key, owner="old", ttl=TTL_S)
        if value is not None:
            await client.commit(key, lease_id=grant.lease_id, token=grant.token, mode="current", value=value)
        return cls(key, grant.lease_id, grant.token)

    async def refusals(self, client: tenure.Client) -> list[str]:
        """How the cluster refuses all that it may try."""
        found = []
        for require_live in (True, False):
            try:
                await client.commit(
                    self.key,
                    lease_id=self.lease_id,
                    token=self.token,
                    mode="current",
                    value="late",
                    require_live=require_live,
                )
            except CommitRefused as refused:
                found.append(refused.code)
        try:
            await client.renew(self.lease_id)
        except LeaseLost as lost:
            found.append(lost.reason)
        return found


def tokens_of(load: Load) -> list[int]:
    """Every token that the load was ever told."""
    tokens = []
    for call in load.history.calls:
        lease = call.answer.get("lease") if isinstance(call.answer, dict) else None
        if isinstance(lease, dict) and "token" in lease:
            tokens.append(int(lease["token"]))
    return tokens


def states(cluster: LiveCluster) -> dict[str, dict[str, Any]]:
    """What the stopped nodes hold, by `tenured inspect`'s own words."""
    return {name: described(read_stopped(node.data_dir), 0) for name, node in cluster.nodes.items()}
