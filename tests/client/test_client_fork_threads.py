"""A fork of a program that uses the client by threads, which is what a prefork server does."""

import json
import subprocess
import sys

PROGRAM = """
import gc, json, logging, os, threading
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
parked = client.lease("parked", ttl=30).acquire()
parked.park(600)
released = client.lease("released", ttl=30).acquire()
released.release()
block = client.lease("block", ttl=30)
entered = block.__enter__()
logged = []
logging.getLogger("tenure").addFilter(lambda record: logged.append(record.getMessage()))

out, into = os.pipe()
child = os.fork()
if child == 0:
    said = {
        "states": [[h.state.value, h.lost_reason] for h in [*handles, parked]],
        "tokens": [h.token for h in handles],
    }
    held = handles[0]
    acts = {
        "check": held.check,
        "renew": held.renew,
        "progress": held.progress,
        "commit": lambda: held.commit("late"),
        "handover": lambda: held.handover("session"),
        "park": lambda: held.park(60),
        "unpark": held.unpark,
        "release": held.release,
        "release of what was parked": parked.release,
        "release of what was released": released.release,
        "renewal of what was released": released.renew,
        "leaving the block": lambda: block.__exit__(None, None, None),
        "a call of the client": lambda: client.get("job/0"),
    }
    said["errors"] = {}
    for name, act in acts.items():
        try:
            act()
        except tenure.TenureError as error:
            said["errors"][name] = [type(error).__name__, getattr(error, "reason", "")]
    said["logged"] = logged
    client.close()
    del handles, client, act, acts, held, parked, released, block
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
parent = [handle.state.value for handle in [*handles, parked]]
left = cluster.left()
for handle in [*handles, parked]:
    handle.release()
block.__exit__(None, None, None)
client.close()
print(json.dumps({"child": said, "parent": parent, "tokens": tokens, "left": left, "end": cluster.left()}))
"""


def test_t49_a_fork_of_a_program_with_threads_leaves_the_parents_five_leases_alone() -> None:
    """T49."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["child"]["states"] == [["lost", "forked"]] * 6
    assert said["child"]["tokens"] == said["tokens"]
    # The handles say that they are lost, as those of asyncio do; the client, that it is of no use there.
    errors = said["child"]["errors"]
    assert errors.pop("a call of the client") == ["InvalidRequest", ""]
    assert errors.pop("renewal of what was released") == ["LeaseLost", "released"]
    assert "release of what was released" not in errors, "a second release does nothing"
    assert len(errors) == 10
    assert set(map(tuple, errors.values())) == {("LeaseLost", "forked")}
    assert said["child"]["logged"] == []
    assert said["child"]["own"] == "held"
    assert said["parent"] == [*["held"] * 5, "parked"]
    assert said["left"] == [["block", *(f"job/{number}" for number in range(5)), "parked"], []]
    assert said["end"] == [[], []]
