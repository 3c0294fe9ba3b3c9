"""Members that come and go in a live run: what an operator does, the lines that a new node needs, and what is
looked at in the end.

A new node is one more process with a line to and from every other one, which nodes and clients are told of
before the cluster is. Its name is one that nobody had. Who has been removed ends by itself; its log and its
disk are looked at in the end like those of the others.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import tenure
from tenure.aio import Client
from tenure.errors import InvalidRequest, TenureError
from tenure_chaos.live.cluster import CLUSTER_ID, EXIT_REMOVED, LiveNode
from tenure_chaos.live.collect import Observations
from tenure_cluster.inspection import NothingThere, read_contents

if TYPE_CHECKING:
    from tenure_chaos.live.bench import Bench

AGAIN_S: Final = 0.2
FOREVER: Final = 1 << 30
ENDS_S: Final = 120.0
"""How long changes may take once everything is mended."""


def _tell_clients(bench: "Bench") -> None:
    for name, client in bench.clients.items():
        client.tell_nodes(bench.names_by_url(), bench.routes_of(name))


async def newcomer(bench: "Bench", reserved_by: str) -> LiveNode:
    """A node that waits for being made a member, known to all processes. Not to be called twice at a time."""
    cluster, network = bench.cluster, bench.network
    node = cluster.new_node(await network.prepare(cluster.next_name()))
    node.reserved_by = reserved_by

    def route(a: str, b: str) -> str:
        return network.address(f"{a}>{b}")

    try:
        await network.join(
            node.name, lambda a, b: cluster.nodes[b].peer if a in cluster.nodes else cluster.nodes[b].http[7:]
        )
        cluster.configure_node(node, route)
        cluster.write_routes(route)
        _tell_clients(bench)
        cluster.start(node)
    except BaseException:
        _gone(bench, node)
        raise
    return node


def _gone(bench: "Bench", node: LiveNode) -> None:
    node.may_end = FOREVER
    bench.cluster.leave(node)
    bench.network.leave(node.name)


async def add(bench: "Bench", node: LiveNode) -> None:
    """Return when it votes."""
    await _have(bench, lambda client: client.add_member(node.name, peer=node.peer, http=node.http))
    while node.name not in await _voters(bench):
        await asyncio.sleep(AGAIN_S)
    bench.note(f"{node.name} is a member and votes")


async def remove(bench: "Bench", node: LiveNode) -> None:
    """Return when its process has ended for it; one that is dead is started, to learn of it."""
    node.may_end = FOREVER
    await _have(bench, lambda client: client.remove_member(node.name))
    _gone(bench, node)
    _tell_clients(bench)
    bench.note(f"{node.name} is no member any more")
    bench.cluster.start(node)
    while node.running:
        await asyncio.sleep(AGAIN_S)
    bench.cluster.look()
    if (code := node.endings[-1].code) != EXIT_REMOVED:
        bench.failures.append(f"{node.name} was removed, and ended with {code}")


async def _have(bench: "Bench", ask: Callable[[Client], Awaitable[Any]]) -> None:
    """Ask whoever can be asked, until it has come about."""
    while True:
        nodes = bench.cluster.nodes.values()
        urls = [node.http for node in nodes if node.running and not node.paused]
        async with tenure.connect(urls or [node.http for node in nodes]) as client:
            try:
                await ask(client)
            except InvalidRequest as refused:
                if refused.code != "change_refused":
                    raise
            except TenureError:
                pass  # nobody led, or whoever did was lost in the midst of it: then it may be so or not
            else:
                return
        await asyncio.sleep(AGAIN_S)


async def _voters(bench: "Bench") -> list[str]:
    """Of the leader, if it can be asked."""
    leader = await bench.leader()
    state = None if leader is None else await bench.cluster.state(leader)
    return [] if state is None else state["voters"]


# -- in the end


async def changes_end(bench: "Bench") -> None:
    """Now that everything is mended, changes that were begun come about, and all nodes count the same
    members. What does not is a failure."""
    if not bench.unfinished:
        return
    deadline = time.monotonic() + ENDS_S
    _, late = await asyncio.wait(bench.unfinished, timeout=ENDS_S)
    for one in late:
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        bench.failures.append(f"a change of members did not come about within {ENDS_S:.0f} s after healing")
    while wrong := await _told_differently(bench):
        if time.monotonic() > deadline:
            bench.failures.append(f"the members are {', '.join(bench.cluster.nodes)}; {'; '.join(wrong)}")
            return
        await asyncio.sleep(AGAIN_S)


async def _told_differently(bench: "Bench") -> list[str]:
    wanted = sorted(bench.cluster.nodes)
    return [
        f"{name} counts {state and (state['voters'], state['learners'])}"
        for name, state in (await bench.cluster.states()).items()
        if state is None or sorted(state["voters"]) != wanted or state["learners"]
    ]


def compare_gone(gone: Sequence[LiveNode], seen: Observations) -> list[str]:
    """What the disks of nodes that have gone hold is, at the last entry whose state anybody has written down
    a digest of, what it was there. Returns what is wrong."""
    digests = {index: digest for _, index, digest in seen.digests}
    applied = {entry.node: entry.index for entry in sorted(seen.applied, key=lambda entry: entry.index)}
    wrong = []
    for node in gone:
        try:
            contents = read_contents(node.data_dir, CLUSTER_ID, node.name)
        except NothingThere:
            continue
        last = min(contents.last_index, applied.get(node.name, 0))
        known = [index for index in digests if contents.snapshot_index <= index <= last]
        if known and contents.replica_at(max(known)).digest() != digests[max(known)]:
            wrong.append(f"the state on the disk of {node.name}, which has gone, differs at {max(known)}")
    return wrong
