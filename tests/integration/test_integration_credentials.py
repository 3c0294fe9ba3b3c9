"""Real processes that ask for credentials: the first administrator, the command line, rotation while a
worker works, a leader that is killed."""

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest
from guarded_cluster import GuardedCluster
from live_cluster import until

import tenure

pytestmark = pytest.mark.process

CLI_TIMEOUT_S = 60


async def cli(cluster: GuardedCluster, shown: str, *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code and output of `tenure`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure.cli", *map(str, arguments)),
        env={**kept, "TENURE_ENDPOINTS": cluster.urls, "TENURE_CREDENTIAL": shown},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), CLI_TIMEOUT_S)
    return process.returncode or 0, out.decode(), err.decode()


async def test_from_the_first_administrator_to_a_worker_and_over_a_lost_leader(tmp_path: Path) -> None:
    async with GuardedCluster(tmp_path) as cluster:
        [file] = cluster.files()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for look in (("status",), ("top", "--once")):
            code, out, err = await cli(cluster, "", *look)
            assert (code, "n2" in out, "credential" in err) == (1, False, True), (look, out, err)
        code, out, err = await cli(cluster, cluster.root, "status")
        assert (code, "n2" in out) == (0, True), err

        made = tmp_path / "agent.credential"
        create = ("credentials", "create", "agent", "--right", "acquire", "--right", "observe")
        code, _, err = await cli(cluster, cluster.root, *create, "--prefix", "jobs/", "--to", made)
        assert code == 0, err
        shown = made.read_text().strip()
        code, out, err = await cli(cluster, shown, "acquire", "jobs/1", "--ttl", "1m", "--owner", "agent")
        assert code == 0, err
        code, out, err = await cli(cluster, shown, "top", "jobs/", "--once")
        assert code == 0, err
        assert "jobs/1" in out
        code, _, err = await cli(cluster, shown, "break", "jobs/1", "--reason", "why not")
        assert (code, "force" in err) == (1, True)
        code, _, err = await cli(cluster, shown, "acquire", "other", "--ttl", "1m")
        assert (code, "credential" in err) == (1, True)

        leader = await cluster.leader()
        cluster.kill(leader)
        code, out, err = await cli(cluster, shown, "get", "jobs/1", "-o", "json")
        assert code == 0, err
        assert '"agent"' in out
        cluster.start(leader)
        await cluster.ready()
        assert cluster.files() == [file], "nobody has made another administrator"


async def test_a_secret_is_rotated_while_its_bearer_works_and_nothing_fails(tmp_path: Path) -> None:
    async with (
        GuardedCluster(tmp_path) as cluster,
        tenure.connect(cluster.urls, credential=cluster.root, timeout=20.0) as root,
    ):
        made = await root.create_credential("worker", rights=["acquire"])
        credential_id, shown = made.credential.credential_id, made.bearer
        done, ending = [0], asyncio.Event()

        async def work() -> None:
            """With what is shown at the time; each round with connections of its own."""
            while not ending.is_set():
                async with (
                    tenure.connect(cluster.urls, credential=shown, timeout=20.0) as client,
                    client.lease("job", ttl=10) as held,
                ):
                    await held.renew()
                done[0] += 1

        working = asyncio.create_task(work())

        async def more(rounds: int) -> None:
            """The worker has done so much more, or has failed."""
            wanted = done[0] + rounds

            async def reached() -> bool:
                return done[0] >= wanted or working.done()

            await until(reached, 60, f"{rounds} more rounds")
            assert not working.done(), working.exception()

        try:
            await more(2)
            for _ in range(3):
                shown = (await root.rotate_credential(credential_id, overlap=60)).bearer
                await more(2)
            ending.set()
            await working
            last = (await root.rotate_credential(credential_id, overlap=0)).bearer
            await _refused(cluster, shown)
            shown = last
            async with tenure.connect(cluster.urls, credential=shown) as client:
                assert await client.session("none") is None
            assert await root.revoke_credential(credential_id)
            await _refused(cluster, shown)
        finally:
            working.cancel()


async def _refused(cluster: GuardedCluster, shown: str) -> None:
    """Every node refuses the bearer, as soon as it has applied why."""
    for node in cluster.nodes.values():
        async with tenure.connect(node.url, credential=shown) as client:

            async def refused(client: tenure.Client = client) -> bool:
                try:
                    await client.session("none")
                except tenure.NotAuthorized as error:
                    return error.code == "unauthenticated"
                return False

            await until(refused, 20, f"{node.node_id} to refuse")
