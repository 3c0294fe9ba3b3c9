"""Measure an expiry storm: very many leases that end in the same second, while others go on renewing.

    python bench/expiry_storm.py                100,000 leases, 1,000 others that renew ten times a second
    python bench/expiry_storm.py --quick        a few seconds, to see that it runs; figures mean nothing
    python bench/expiry_storm.py --json FILE    the figures as JSON as well

Three real nodes, everything synced. The leases are acquired over streams, in batches, each with the TTL that
is left until one common moment. The others hold a lease each and renew it over streams, each connection all
of its own in one frame; a renewal counts from when it was to be sent, not from when the generator came to
sending it. A connection that waits for as many frames as it sends in a second skips one; where one was
skipped or refused as overloaded, the machine is too slow for the rate, and the figures are no measurement.

Of the leader's event loop two things are told: how long it came to nothing else, and how much of that it
really ran. On a machine with other work the first is the machine's doing, too.
"""

import argparse
import asyncio
import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from load import percentile
from program import run_bench
from streams import Answers, Holds, Stream, acquire_many, metrics_of, streams_to
from targets import LiveNode, TenureTarget, fetch, until

QUIET_S = 17.0
"""Before the storm, so that the gauge of the loop has forgotten what was before, with a second to spare."""

BASE_S = 8.0
"""For so long before the storm renewals are measured to compare with."""

AFTER_S = 3.0
"""Renewals of so long after the last lease has gone still count as of the storm."""

RENEWAL_TTL_MS = 10_000

HELD = 'tenure_leases_held{tenant="default"}'
EXPIRED = 'tenure_leases_ended_total{reason="expired",tenant="default"}'


class Renewers:
    """Sessions that renew with a fixed rate, whatever the answers do."""

    def __init__(self, streams: Sequence[Stream], sessions: int, rate_per_s: float) -> None:
        self._streams = streams
        self._sessions = sessions
        self._period_s = 1 / rate_per_s
        self._leases: list[list[str]] = [[] for _ in streams]
        self._tokens: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.under_way: dict[asyncio.Future[Answers], None] = {}
        self.renewals: list[tuple[float, float]] = []
        """When each was to be sent, and how long after that it was answered."""
        self.lost: Counter[str] = Counter()
        self.overloaded = self.skipped = 0
        self.late_s = 0.0
        """By how much the generator itself came late to sending, at most."""

    async def begin(self) -> None:
        """Acquire, and begin to renew."""
        for place, stream in enumerate(self._streams):
            mine = range(place, self._sessions, len(self._streams))
            answers = await stream.send(
                [
                    ("acquire", {"key": f"renewed/{number}", "owner": "renewer", "ttl_ms": RENEWAL_TTL_MS})
                    for number in mine
                ]
            )
            for body in answers.checked():
                self._leases[place].append(body["lease"]["lease_id"])
                self._tokens[body["lease"]["lease_id"]] = body["lease"]["token"]
        first_s = time.perf_counter()
        loop = asyncio.get_running_loop()
        for place, stream in enumerate(self._streams):
            at_s = first_s + self._period_s * place / len(self._streams)
            self._tasks.append(loop.create_task(self._renew(stream, self._leases[place], at_s)))

    async def _renew(self, stream: Stream, leases: Sequence[str], due_s: float) -> None:
        frame = [("renew", {"lease_id": lease_id}) for lease_id in leases]
        while True:
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            self.late_s = max(self.late_s, time.perf_counter() - due_s)
            if stream.under_way * self._period_s >= len(frame):
                self.skipped += len(frame)
                due_s += self._period_s
                continue
            sent = stream.send(frame)
            self.under_way[sent] = None
            sent.add_done_callback(lambda sent, due_s=due_s: self._answered(sent, due_s))
            due_s += self._period_s

    def _answered(self, sent: "asyncio.Future[Answers]", due_s: float) -> None:
        self.under_way.pop(sent, None)
        if sent.cancelled():
            return
        if (error := sent.exception()) is not None:
            self.lost[repr(error)] += 1
            return
        answers = sent.result()
        for status, body, at_s in zip(answers.statuses, answers.bodies, answers.at_s, strict=True):
            if status == 429:
                self.overloaded += 1
            elif status != 200:
                self.lost[f"{status} {body.get('code')}"] += 1
            elif body["lease"]["token"] != self._tokens[body["lease"]["lease_id"]]:
                self.lost["another token"] += 1
            self.renewals.append((due_s, at_s - due_s))

    async def end(self, timeout_s: float = 30.0) -> int:
        """Renew no more; how many frames are never answered."""
        for task in self._tasks:
            task.cancel()
        if self.under_way:
            await asyncio.wait(list(self.under_way), timeout=timeout_s)
        return len(self.under_way)

    def between(self, from_s: float, to_s: float) -> dict[str, float]:
        took = [latency_s for due_s, latency_s in self.renewals if from_s <= due_s < to_s]
        return {
            "renewals": len(took),
            "p50_ms": round(percentile(took, 50) * 1e3, 2),
            "p99_ms": round(percentile(took, 99) * 1e3, 2),
            "max_ms": round(max(took, default=0.0) * 1e3, 2),
        }


async def rate_of(streams: Sequence[Stream], batch: int) -> float:
    """About how many leases a second can be acquired, from a few that are released again."""
    ids: list[str] = []

    def taken(_: int, answers: Answers) -> None:
        ids.extend(body["lease"]["lease_id"] for body in answers.bodies)

    count, began_s = 4 * batch * len(streams), time.perf_counter()
    body = {"owner": "trial", "ttl_ms": 60_000}
    await acquire_many(streams, count, batch, lambda number: {"key": f"trial/{number}", **body}, taken)
    took_s = time.perf_counter() - began_s
    for first in range(0, count, batch):
        frame = [("release", {"lease_id": lease_id}) for lease_id in ids[first : first + batch]]
        (await streams[0].send(frame)).checked()
    return count / took_s


async def fill(streams: Sequence[Stream], leases: int, batch: int, end_s: float) -> tuple[float, float]:
    """Acquire them all with the TTL that is left until `end_s`; between which moments they really end."""
    ends: list[float] = []

    def body_of(number: int) -> dict[str, Any]:
        ttl_ms = math.ceil((end_s - time.perf_counter()) * 1e3)
        return {"key": f"storm/{number}", "owner": "worker", "ttl_ms": ttl_ms}

    def taken(_: int, answers: Answers) -> None:
        for body, at_s in zip(answers.bodies, answers.at_s, strict=True):
            ends.append(at_s + body["lease"]["expires_in_ms"] / 1e3)

    await acquire_many(streams, leases, batch, body_of, taken)
    return min(ends), max(ends)


async def storm(
    options: argparse.Namespace, target: TenureTarget, leader: LiveNode, stack: AsyncExitStack
) -> dict[str, Any]:
    fillers = await stack.enter_async_context(streams_to(target.host, target.port, options.fillers))
    rate = await rate_of(fillers, options.batch)
    lead_s = 1.5 * options.leases / rate + options.quiet_s + options.base_s + 3
    print(f"about {rate:,.0f} leases/s: they will end in {lead_s:.0f} s", flush=True)
    before = await metrics_of(leader)
    first_s, last_s = await fill(fillers, options.leases, options.batch, time.perf_counter() + lead_s)
    left_s = first_s - time.perf_counter()
    print(f"acquired; they end within {(last_s - first_s) * 1e3:.0f} ms, in {left_s:.1f} s", flush=True)
    if left_s < options.quiet_s:
        raise SystemExit("filling took too long for a measurement: the machine is too busy")
    # Not before: a stream that says nothing for long is closed, and filling may take long.
    own = await stack.enter_async_context(streams_to(target.host, target.port, options.streams))
    renewers = Renewers(own, options.sessions, options.rate)
    await renewers.begin()
    await asyncio.sleep(first_s - 1.0 - time.perf_counter())
    held_at: list[tuple[float, float]] = []
    holds = Holds(leader, 0.5, lambda at_s, told: held_at.append((at_s, told.get(HELD, 0.0))))

    async def all_gone() -> bool:
        return bool(held_at) and held_at[-1][1] <= options.sessions

    await until(all_gone, options.timeout, "all leases to have ended", 0.05)
    gone_s = held_at[-1][0]
    await asyncio.sleep(AFTER_S)
    await holds.stop()
    unanswered = await renewers.end()
    after = await metrics_of(leader)
    return {
        "leases": options.leases,
        "sessions": options.sessions,
        "renewals_per_s": options.sessions * options.rate,
        "end_within_ms": round((last_s - first_s) * 1e3, 1),
        "all_ended_after_s": round(gone_s - first_s, 2),
        "expired": int(after.get(EXPIRED, 0) - before.get(EXPIRED, 0)),
        "left_on_nodes": await left_on_nodes(target, leader, options.sessions),
        "loop": holds.figures(),
        "before": renewers.between(first_s - options.base_s, first_s - 0.5),
        "during": renewers.between(first_s - 0.5, gone_s + AFTER_S),
        "lost": renewers.lost.total(),
        "lost_because": dict(renewers.lost),
        "overloaded": renewers.overloaded,
        "skipped": renewers.skipped,
        "unanswered_frames": unanswered,
        "generator_late_ms": round(renewers.late_s * 1e3, 1),
        "leader_stayed": await target.leader_stays(),
    }


async def left_on_nodes(target: TenureTarget, leader: LiveNode, sessions: int) -> dict[str, int]:
    """How many of the leases each node still has, when all have had time to learn it."""
    answer = await fetch(leader.url, "GET", "/v1/leases?prefix=storm/&limit=10", timeout_s=10)
    listed = json.loads(answer.body)["leases"]
    if listed:
        raise SystemExit(f"leases are listed that have ended: {listed}")
    left: dict[str, int] = {}
    for name, node in target.cluster.nodes.items():

        async def few(node: LiveNode = node) -> bool:
            return (await metrics_of(node)).get(HELD, 0.0) <= sessions

        await until(few, 30.0, f"{name} to have applied the ends", 0.2)
        left[name] = int((await metrics_of(node)).get(HELD, 0.0)) - sessions
    return left


def report(figures: dict[str, Any]) -> str:
    loop, lost = figures["loop"], figures["lost"] + figures["unanswered_frames"]
    lines = [
        f"{figures['expired']:,} of {figures['leases']:,} leases ended, due within "
        f"{figures['end_within_ms']:,.0f} ms: the last {figures['all_ended_after_s']:.1f} s after the first "
        f"was due; left on the nodes: {sum(figures['left_on_nodes'].values())}",
        f"leader's loop: held for {loop['held_ms']:.1f} ms at most, of which it ran "
        f"{loop['ran_ms']:.1f} ms (goal: 50)",
    ]
    for phase in ("before", "during"):
        took, goal = figures[phase], " (goal: p99 250)" if phase == "during" else ""
        lines.append(
            f"renewals {phase}: {took['renewals']:,}, p50 {took['p50_ms']:.1f} ms, "
            f"p99 {took['p99_ms']:.1f} ms, max {took['max_ms']:.1f} ms{goal}"
        )
    lines.append(f"renewals lost: {lost} (goal: 0) {figures['lost_because'] or ''}")
    lines.append(f"the generator was late by {figures['generator_late_ms']:.1f} ms at most")
    if figures["overloaded"] or figures["skipped"]:
        lines.append(
            f"{figures['overloaded']:,} renewals refused as overloaded and {figures['skipped']:,} not sent: "
            "the machine is too slow or too busy for the rate"
        )
    if not figures["leader_stayed"]:
        lines.append("the leader changed meanwhile: the figures mean nothing")
    return "\n".join(lines)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        target = TenureTarget(Path(directory), options.durability)
        try:
            await target.start()
            leader = await target.cluster.leader()
            async with AsyncExitStack() as stack:
                figures = await storm(options, target, leader, stack)
        finally:
            target.stop()
    return {"cores": os.cpu_count(), "durability": options.durability, **figures}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--leases", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=1_000, help="others that renew")
    parser.add_argument("--rate", type=float, default=10.0, help="renewals a second of each of them")
    parser.add_argument("--streams", type=int, default=50, help="connections that they share")
    parser.add_argument("--batch", type=int, default=200, help="acquires a frame")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds until all must have ended")
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    parser.add_argument("--directory", help="where the nodes keep their data")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    options.fillers, options.quiet_s, options.base_s = 4, QUIET_S, BASE_S
    if options.quick:
        options.leases, options.sessions, options.streams, options.batch = 1_500, 20, 4, 50
        options.quiet_s, options.base_s = 1.0, 1.0
    return options


if __name__ == "__main__":
    run_bench(parse(), run, report)
