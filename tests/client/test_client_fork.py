"""After a fork the child has no lease, and the parent keeps its own."""

import json
import subprocess
import sys

PROGRAM = """
import asyncio, json, os, sys
import tenure
from tenure.testing import FakeCluster

def told(handles):
    return [[handle.state.value, handle.lost_reason] for handle in handles]

async def own(cluster, said):
    async with cluster.connect() as client, client.lease("child's own") as held:
        said["own"] = held.state.value

async def main():
    cluster = FakeCluster()
    client = cluster.connect()
    handles = [await client.lease(f"job/{n}", ttl=30).acquire() for n in range(5)]
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        said = {"states": told(handles)}
        try:
            handles[0].check()
        except tenure.LeaseLost as lost:
            said["check"] = lost.reason
        try:
            await handles[0].release()
        except tenure.LeaseLost as lost:
            said["release"] = lost.reason
        try:
            await client.get("job/0")
        except tenure.InvalidRequest as error:
            said["call"] = str(error)
        await client.close()
        asyncio.run(own(cluster, said))
        os.write(into, json.dumps(said).encode())
        os._exit(0)
    os.close(into)
    said = b"".join(iter(lambda: os.read(out, 4096), b""))
    assert os.waitpid(child, 0)[1] == 0
    await cluster.pass_time(100)
    parent = told(handles)
    renewals = cluster.calls["/v1/renew"]
    left = cluster.left()
    for handle in handles:
        await handle.release()
    await client.close()
    print(json.dumps({"child": json.loads(said), "parent": parent, "renewals": renewals, "left": left,
                      "in the end": cluster.left()}))

asyncio.run(main())
"""


def test_t49_after_a_fork_the_childs_handles_are_lost_and_the_parents_are_kept() -> None:
    """T49: with five leases; and the child can make a client of its own."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["child"]["states"] == [["lost", "forked"]] * 5
    assert said["child"]["check"] == said["child"]["release"] == "forked"
    assert "fork" in said["child"]["call"]
    assert said["child"]["own"] == "held"
    assert said["parent"] == [["held", ""]] * 5
    assert said["renewals"] >= 8
    assert said["left"] == [[f"job/{number}" for number in range(5)], []]
    assert said["in the end"] == [[], []]
