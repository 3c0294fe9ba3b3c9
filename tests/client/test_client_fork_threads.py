"""A fork of a program that uses the client by threads, which is what a prefork server does."""

import json
import subprocess
import sys

PROGRAM = """
import gc, json, os, threading
import tenure
from tenure.testing import FakeCluster

cluster = FakeCluster()
client = cluster.connect_sync()
handles = []

def acquire(number):
    handles.append(client.lease(f"job/{number}", ttl=30).acquire())

# Each by a thread of its own, and used by another: tokens and handles are plain values.
threads = [threading.Thread(target=acquire, args=(number,)) for number in range(5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
tokens = [handle.token for handle in handles]

out, into = os.pipe()
child = os.fork()
if child == 0:
    said = {"states": [[h.state.value, h.lost_reason] for h in handles], "tokens": [h.token for h in handles]}
    said["errors"] = []
    for act in (handles[0].check, handles[0].release, handles[0].renew, lambda: client.get("job/0")):
        try:
            act()
        except tenure.TenureError as error:
            said["errors"].append(type(error).__name__)
    client.close()
    del handles, client, act
    gc.collect()
    with FakeCluster().connect_sync() as own, own.lease("own") as held:
        said["own"] = held.state.value
    os.write(into, json.dumps(said).encode())
    os._exit(0)
os.close(into)
said = json.loads(b"".join(iter(lambda: os.read(out, 4096), b"")))
assert os.waitpid(child, 0)[1] == 0
for handle in handles:
    handle.renew()
parent = [handle.state.value for handle in handles]
left = cluster.left()
for handle in handles:
    handle.release()
client.close()
print(json.dumps({"child": said, "parent": parent, "tokens": tokens, "left": left, "end": cluster.left()}))
"""


def test_t49_a_fork_of_a_program_with_threads_leaves_the_parents_five_leases_alone() -> None:
    """T49."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["child"]["states"] == [["lost", "forked"]] * 5
    assert said["child"]["tokens"] == said["tokens"]
    # The client itself is of no use there, and says so.
    assert said["child"]["errors"] == ["LeaseLost", "InvalidRequest", "InvalidRequest", "InvalidRequest"]
    assert said["child"]["own"] == "held"
    assert said["parent"] == ["held"] * 5
    assert said["left"] == [[f"job/{number}" for number in range(5)], []]
    assert said["end"] == [[], []]
