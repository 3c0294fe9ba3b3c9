"""Measure what very many held leases cost, and whether they slow anything down.

    python bench/many_leases.py                             1,000, 100,000 and 1,000,000 leases
    python bench/many_leases.py --leases 1000 10000 50000   other numbers, from the smallest to the largest
    python bench/many_leases.py --quick                     to see that it runs; figures mean nothing
    python bench/many_leases.py --json FILE                 the figures as JSON as well

For each number three real nodes of their own, everything synced, filled over streams; the clusters stay up
together. Then acquires are timed against each in turn, by HTTP and by stream, round after round, so that
whatever else the machine does meets all of them; p99 is the median of the rounds'. A busy machine makes it
larger, and hardly the ratios.

Against the largest cluster also: the memory of each node for a lease (what its resident set has grown by), a
snapshot while renewals go on, with the longest time for which the event loops were held and what they really
ran of it, a restart of a follower until it serves, and kills of the leader until the next acquire is granted.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from load import Crowd, percentile
from program import run_bench
from streams import Holds, Stream, acquire_many, metrics_of, streams_to
from targets import LiveNode, NoAnswer, NotSent, Pair, TenureTarget, fetch, until

TTL_MS = 6 * 3_600_000
"""Of the leases that are held: longer than any run."""

QUIET_S = 17.0
"""Until the gauge of the loop has forgotten what was before, with a second to spare."""

HELD = 'tenure_leases_held{tenant="default"}'
MADE = "tenure_raft_snapshots_made_total"
MADE_S = "tenure_raft_snapshot_seconds_sum"

WORKS = ("http", "stream")


def resident_bytes(node: LiveNode) -> int:
    fields = Path(f"/proc/{node.pid}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


class Filled:
    """A cluster that holds so many leases, and those who acquire there."""

    def __init__(self, target: TenureTarget, leases: int, clients: int) -> None:
        self.target = target
        self.leases = leases
        self.p99_ms: dict[str, list[float]] = {work: [] for work in WORKS}
        self.p50_ms: dict[str, list[float]] = {work: [] for work in WORKS}
        self.crowd = Crowd([Pair(number) for number in range(clients)])
        self.streams: list[Stream] = []

    @property
    def nodes(self) -> dict[str, LiveNode]:
        return self.target.cluster.nodes

    async def fill(self, batch: int) -> dict[str, Any]:
        """Fill the cluster; what each lease costs each node in bytes."""
        leader = await self.target.cluster.leader()
        async with streams_to(self.target.host, self.target.port, 4) as streams:
            body = {"owner": "worker", "ttl_ms": TTL_MS}
            await acquire_many(streams, 400, 100, lambda number: {"key": f"first/{number}", **body})
            await self.target.cluster.caught_up()
            before = {name: resident_bytes(node) for name, node in self.nodes.items()}
            began_s = time.perf_counter()
            await acquire_many(streams, self.leases, batch, lambda number: {"key": f"held/{number}", **body})
            took_s = time.perf_counter() - began_s
        await self.target.cluster.caught_up(timeout_s=120)
        await until(self._snapshots_are_made, 120, "the snapshots of filling to be made", 0.5)
        grown = {name: resident_bytes(node) - before[name] for name, node in self.nodes.items()}
        per_lease = {name: round(size / self.leases) for name, size in grown.items()}
        own = per_lease.pop(leader.node_id)
        return {
            "filled_in_s": round(took_s, 2),
            "leader_bytes": own,
            "follower_bytes": list(per_lease.values()),
        }

    async def _snapshots_are_made(self) -> bool:
        """Whether none is being written. The copy of a state that is being written is not what it takes."""
        return not any(list(node.data_dir.glob("*.new")) for node in self.nodes.values())

    async def connect(self, clients: int, stack: AsyncExitStack) -> None:
        """To the leader, for `round`."""
        await self.crowd.connect(self.target.host, self.target.port)
        stack.callback(self.crowd.close)
        opened = streams_to(self.target.host, self.target.port, clients)
        self.streams = await stack.enter_async_context(opened)

    async def round(self, work: str, seconds: float, *, counts: bool) -> None:
        """Time acquires for so long."""
        if work == "http":
            took_s = (await self.crowd.round(seconds)).first_s
        else:
            until_s = time.perf_counter() + seconds
            found = await asyncio.gather(
                *(pairs(stream, place, until_s) for place, stream in enumerate(self.streams))
            )
            took_s = [each for one in found for each in one]
        if counts:
            self.p50_ms[work].append(percentile(took_s, 50) * 1e3)
            self.p99_ms[work].append(percentile(took_s, 99) * 1e3)


async def pairs(stream: Stream, place: int, until_s: float) -> list[float]:
    """Acquire and release in closed loop; how long each acquire took."""
    took: list[float] = []
    while (sent_s := time.perf_counter()) < until_s:
        body = {"key": f"pair/{place}", "owner": "agent", "ttl_ms": 30_000, "request_id": f"{place}-{sent_s}"}
        granted = await stream.call("acquire", **body)
        took.append(time.perf_counter() - sent_s)
        await stream.call("release", lease_id=granted["lease"]["lease_id"])
    return took


async def snapshot(filled: Filled, quiet_s: float) -> dict[str, Any]:
    """Renew one lease in closed loop until every node has made a snapshot, and follow the event loops."""
    leader = await filled.target.cluster.leader()
    follower = next(node for node in filled.nodes.values() if node is not leader)
    async with streams_to(filled.target.host, filled.target.port, 1) as [stream]:
        granted = await stream.call("acquire", key="renewed", owner="worker", ttl_ms=TTL_MS)
        renew = partial(stream.call, "renew", lease_id=granted["lease"]["lease_id"])
        await asyncio.sleep(quiet_s)
        before = {name: await metrics_of(node) for name, node in filled.nodes.items()}
        holds = {"leader": Holds(leader, 0.5), "follower": Holds(follower, 0.5)}
        told: dict[str, dict[str, float]] = {}

        async def made() -> bool:
            for name, node in filled.nodes.items():
                told[name] = await metrics_of(node)
            return all(told[name][MADE] > before[name][MADE] for name in told)

        async def renew_for_ever() -> None:
            while True:
                sent_s = time.perf_counter()
                await renew()
                took.append(time.perf_counter() - sent_s)

        took: list[float] = []
        renewing = asyncio.get_running_loop().create_task(renew_for_ever())
        await until(made, 600, "a snapshot of every node", 0.5)
        renewing.cancel()
        for each in holds.values():
            await each.stop()
    seconds = {
        name: (told[name][MADE_S] - before[name][MADE_S]) / (told[name][MADE] - before[name][MADE])
        for name in told
    }
    return {
        "seconds": {
            "leader": round(seconds[leader.node_id], 2),
            "follower": round(seconds[follower.node_id], 2),
        },
        "loop": {name: each.figures() for name, each in holds.items()},
        "renewals_p99_ms": round(percentile(took, 99) * 1e3, 2),
        "renewals_max_ms": round(max(took) * 1e3, 2),
    }


async def restart(filled: Filled) -> float:
    """Seconds from starting a follower that was stopped to its serving."""
    follower = (await filled.target.cluster.followers())[0]
    await filled.target.cluster.stop(follower)
    return await started(filled, follower)


async def started(filled: Filled, node: LiveNode) -> float:
    began_s = time.perf_counter()
    filled.target.cluster.start(node)
    await filled.target.cluster.ready(node, timeout_s=300)
    took_s = time.perf_counter() - began_s
    await filled.target.cluster.caught_up(timeout_s=300)
    return took_s


async def failover(filled: Filled, number: int) -> float:
    """Seconds from the leader's SIGKILL to the next acquire that is granted."""
    cluster = filled.target.cluster
    leader = await cluster.leader()
    others = [node for node in cluster.nodes.values() if node is not leader]
    asked = {"key": f"after/{number}", "owner": "agent", "ttl_ms": 30_000, "request_id": f"kill-{number}"}
    body = json.dumps(asked).encode()
    began_s = time.perf_counter()
    cluster.kill(leader)
    for attempt in range(10_000):
        try:
            answer = await fetch(others[attempt % 2].url, "POST", "/v1/acquire", body, timeout_s=60)
        except (NotSent, NoAnswer):
            continue
        if answer.status == 200:
            break
        await asyncio.sleep(0.005)
    else:
        raise TimeoutError("nobody took over")
    took_s = time.perf_counter() - began_s
    told = await metrics_of(await cluster.leader())
    if told[HELD] < filled.leases:
        raise SystemExit(f"of {filled.leases:,} leases the new leader has {told[HELD]:,.0f}")
    await started(filled, leader)
    return took_s


async def measure(options: argparse.Namespace, directory: Path, stack: AsyncExitStack) -> dict[str, Any]:
    figures: dict[str, Any] = {"memory": {}, "acquire": {}}
    all_filled: list[Filled] = []
    for leases in options.leases:
        target = TenureTarget(directory / str(leases), options.durability)
        target.cluster.settings = options.settings
        stack.callback(target.stop)
        await target.start()
        filled = Filled(target, leases, options.clients)
        all_filled.append(filled)
        cost = figures["memory"][str(leases)] = await filled.fill(options.batch)
        print(
            f"{leases:,} leases: {cost['leader_bytes']:,} B each on the leader, "
            f"{' and '.join(f'{each:,}' for each in cost['follower_bytes'])} on the followers, "
            f"filled in {cost['filled_in_s']:.1f} s",
            flush=True,
        )
    async with AsyncExitStack() as connections:
        for filled in all_filled:
            await filled.connect(options.clients, connections)
        for turn in range(options.rounds + 1):
            for work in WORKS:
                for filled in all_filled:
                    await filled.round(work, options.seconds, counts=turn > 0)
        for filled in all_filled:
            if not await filled.target.leader_stays():
                raise SystemExit("a leader changed meanwhile: the figures mean nothing")
    for work in WORKS:
        figures["acquire"][work] = acquires(all_filled, work)
    largest = all_filled[-1]
    for filled in all_filled[:-1]:
        filled.target.stop()
    figures["snapshot"] = await snapshot(largest, options.quiet_s)
    figures["restart_s"] = round(await restart(largest), 2)
    figures["failover_s"] = [round(await failover(largest, number), 3) for number in range(options.kills)]
    return figures


def acquires(all_filled: list[Filled], work: str) -> dict[str, Any]:
    p50 = {str(each.leases): statistics.median(each.p50_ms[work]) for each in all_filled}
    p99 = {str(each.leases): statistics.median(each.p99_ms[work]) for each in all_filled}
    first = next(iter(p99))
    return {
        "p50_ms": {name: round(value, 2) for name, value in p50.items()},
        "p99_ms": {name: round(value, 2) for name, value in p99.items()},
        "p99_ratio": {name: round(value / p99[first], 2) for name, value in p99.items()},
    }


def report(figures: dict[str, Any]) -> str:
    lines = []
    for work, found in figures["acquire"].items():
        for name, p99_ms in found["p99_ms"].items():
            lines.append(
                f"acquire by {work:6} at {int(name):>9,} leases: p50 {found['p50_ms'][name]:.2f} ms, "
                f"p99 {p99_ms:.2f} ms, {found['p99_ratio'][name]:.2f} x the smallest's (goal: 1.5)"
            )
    made, largest = figures["snapshot"], list(figures["memory"])[-1]
    lines.append(f"at {int(largest):,} leases:")
    lines.append(
        f"  memory on the leader {figures['memory'][largest]['leader_bytes']:,} B a lease (goal: 1,000)"
    )
    for role, loop in made["loop"].items():
        lines.append(
            f"  {role}'s snapshot in {made['seconds'][role]:.1f} s, "
            f"its loop held for {loop['held_ms']:.1f} ms at most, "
            f"of which it ran {loop['ran_ms']:.1f} ms (goal: 50)"
        )
    lines.append(
        f"  renewals meanwhile: p99 {made['renewals_p99_ms']:.1f} ms, max {made['renewals_max_ms']:.1f} ms"
    )
    lines.append(f"  a follower serves {figures['restart_s']:.1f} s after its start")
    kills = ", ".join(f"{each:.2f}" for each in figures["failover_s"])
    lines.append(f"  next acquire after the leader was killed: {kills} s")
    return "\n".join(lines)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        async with AsyncExitStack() as stack:
            figures = await measure(options, Path(directory), stack)
    return {"cores": os.cpu_count(), "durability": options.durability, **figures}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--leases", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--clients", type=int, default=4, help="who acquire at the same time")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round")
    parser.add_argument("--batch", type=int, default=250, help="acquires a frame while filling")
    parser.add_argument("--kills", type=int, default=3, help="how often the leader is killed")
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    parser.add_argument("--directory", help="where the nodes keep their data")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    options.quiet_s, options.settings = QUIET_S, {}
    if options.quick:
        options.leases, options.rounds, options.seconds, options.kills = [50, 500], 1, 0.4, 1
        options.quiet_s, options.settings = 0.0, {"raft": {"snapshot_entries": 300}}
    return options


if __name__ == "__main__":
    run_bench(parse(), run, report)
