"""The audit of real processes: what was done by force and what was refused survives a killed leader, and what
was exported before continues after."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from guarded_cluster import GuardedCluster
from live_cluster import until

import tenure
from tenure.audit import verify

pytestmark = pytest.mark.process

CLI_TIMEOUT_S = 60


async def exported(cluster: GuardedCluster, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    """What `tenure audit --verify` prints, and what it has verified up to."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure.cli", "audit", "-o", "json", "--verify", *arguments),
        env={**kept, "TENURE_ENDPOINTS": cluster.urls, "TENURE_CREDENTIAL": cluster.root},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), CLI_TIMEOUT_S)
    assert process.returncode == 0, err.decode()
    position = err.decode().splitlines()[-1].removeprefix("verified up to ")
    return [json.loads(line) for line in out.splitlines()], position


async def begun(cluster: GuardedCluster) -> None:
    async with tenure.connect(cluster.urls, credential=cluster.root) as client:

        async def recording() -> bool:
            return (await client.audit()).recording

        await until(recording, 30, "the audit's beginning")


async def test_what_was_recorded_survives_a_killed_leader_and_its_chain_goes_on(tmp_path: Path) -> None:
    async with GuardedCluster(tmp_path) as cluster:
        await begun(cluster)
        async with tenure.connect(cluster.urls, credential=cluster.root, timeout=20.0) as root:
            made = await root.create_credential("worker", rights=["acquire", "commit"])
            worker_id = made.credential.credential_id
            async with tenure.connect(cluster.urls, credential=made.bearer, timeout=20.0) as worker:
                held = await worker.acquire("job", owner="agent-a", ttl=60)
                await root.break_("job", reason="it hangs")
                with pytest.raises(tenure.CommitRefused):
                    await worker.commit("job", lease_id=held.lease_id, token=held.token, value="late")
                for _ in range(5):
                    with pytest.raises(tenure.NotAuthorized):
                        await worker.break_("job", reason="not mine to break")

            async def refusal_recorded() -> bool:
                return any(one["kind"] == "refused" for one in (await root.audit()).records)

            await until(refusal_recorded, 30, "the refusal in the audit")
            before, position = await exported(cluster)
            told = {(one["kind"], one["code"], one["actor"]): one for one in before}
            root_id = cluster.root.split(".")[1]
            assert told["break", "", root_id]["detail"] == "it hangs"
            assert told["break", "", root_id]["owner"] == "agent-a"
            assert told["commit", "stale_token", worker_id]["token"] == held.token
            assert told["refused", "forbidden", worker_id]["subject"] == "break"
            assert told["create_credential", "", root_id]["subject"] == worker_id
            assert {one["origin"] for one in before if one["actor"]} == {"127.0.0.1"}

            leader = await cluster.leader()
            cluster.kill(leader)
            again, _ = await exported(cluster)
            assert again[: len(before)] == before
            await root.revoke_credential(worker_id)
            since, _ = await exported(cluster, "--after", position)
            assert since[-1]["kind"] == "revoke_credential"
            verify([*before, *since])

            cluster.start(leader)
            await cluster.ready()
            cluster.kill(*cluster.nodes.values())
            for node in cluster.nodes.values():
                cluster.start(node)
            await cluster.ready()
            whole, _ = await exported(cluster)
            assert whole[: len(before) + len(since)] == [*before, *since]
