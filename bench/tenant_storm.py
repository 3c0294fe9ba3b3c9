"""Measure what one tenant's storm does to another: renewals of B while A asks for ten times its quota.

    python bench/tenant_storm.py                half a minute of quiet, half a minute of storm
    python bench/tenant_storm.py --times 0      a storm as fast as it is answered
    python bench/tenant_storm.py --quick        a few seconds, to see that it runs; figures mean nothing
    python bench/tenant_storm.py --json FILE    the figures as JSON as well

Three real nodes that ask for credentials, everything synced. B renews leases of its own at a fixed rate, by
HTTP and by streams; a renewal counts from when it was to be sent. A (storming.py, a process of its own) sends
acquires by both ways, tries to watch ten times as much as it may and keeps idle connections, all at the
leader, where it hurts. Told are B's latencies before and during the storm, what A was granted and what it was
refused, and that nobody's renewal or release was.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from expiry_storm import Renewers
from guarded_cluster import GuardedCluster
from load import percentile
from program import run_bench
from streams import streams_to
from targets import HttpConnection, LiveNode

BURST_S = 2.0
"""What a tenant may do at once, in seconds of its rate: see service/quotas.py."""

TTL_MS = 30_000


class HttpRenewers:
    """Leases that are renewed by HTTP with a fixed rate, each on a connection of its own."""

    def __init__(self, node: LiveNode, credential: str, leases: int, rate_per_s: float) -> None:
        self._url = node.url
        self._head = (
            f"Host: tenure\r\nAuthorization: Bearer {credential}\r\nContent-Type: application/json\r\n"
        )
        self._leases = leases
        self._period_s = 1 / rate_per_s
        self._tasks: list[asyncio.Task[None]] = []
        self._connections: list[HttpConnection] = []
        self.renewals: list[tuple[float, float]] = []
        self.lost: Counter[str] = Counter()
        self.skipped = 0

    def _request(self, path: str, body: dict[str, Any]) -> bytes:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(content)}\r\n\r\n"
        return head.encode() + content

    async def begin(self) -> None:
        first_s = time.perf_counter()
        for number in range(self._leases):
            connection = await HttpConnection.open(self._url, 30)
            self._connections.append(connection)
            asked = {"key": f"http/{number}", "owner": "renewer", "ttl_ms": TTL_MS}
            answer = await connection.send(self._request("/v1/acquire", asked))
            lease_id = json.loads(answer.body)["lease"]["lease_id"]
            request = self._request("/v1/renew", {"lease_id": lease_id})
            due_s = first_s + 1.0 + self._period_s * number / self._leases
            self._tasks.append(asyncio.create_task(self._renew(connection, request, due_s)))

    async def _renew(self, connection: HttpConnection, request: bytes, due_s: float) -> None:
        while True:
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            try:
                answer = await connection.send(request)
            except Exception as error:
                self.lost[repr(error)] += 1
                return
            now_s = time.perf_counter()
            if answer.status != 200:
                self.lost[f"{answer.status} {answer.body[:80]!r}"] += 1
            self.renewals.append((due_s, now_s - due_s))
            due_s += self._period_s
            while due_s + self._period_s < now_s:
                self.skipped += 1
                due_s += self._period_s

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections:
            connection.close()


def latencies(renewals: list[tuple[float, float]], from_s: float, to_s: float) -> dict[str, float]:
    took = [latency_s for due_s, latency_s in renewals if from_s <= due_s < to_s]
    return {
        "renewals": len(took),
        "p50_ms": round(percentile(took, 50) * 1e3, 2),
        "p99_ms": round(percentile(took, 99) * 1e3, 2),
        "max_ms": round(max(took, default=0.0) * 1e3, 2),
    }


class Admin:
    """What an administrator asks of the leader."""

    def __init__(self, cluster: GuardedCluster, node: LiveNode) -> None:
        self._url = node.url
        self._headers = {"Authorization": f"Bearer {cluster.root}"}

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        async with (
            aiohttp.ClientSession(headers=self._headers) as session,
            session.request(method, self._url + path, json=body) as answer,
        ):
            found = await answer.json(content_type=None)
            if answer.status != 200:
                raise SystemExit(f"{method} {path}: {answer.status} {found}")
            return found

    async def credential(self, tenant: str) -> str:
        asked = {"name": tenant, "tenant": tenant, "rights": ["acquire", "observe"]}
        return str((await self.call("POST", "/v1/credentials", asked))["bearer"])


async def storming(plan: dict[str, Any]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).with_name("storming.py")), json.dumps(plan)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise SystemExit("the storm failed")
    found: dict[str, Any] = json.loads(out)
    return found


async def measure(options: argparse.Namespace, cluster: GuardedCluster) -> dict[str, Any]:
    leader = await cluster.leader()
    admin = Admin(cluster, leader)
    quota = {"operations_per_s": options.quota, "leases_max": options.leases_max, "watches_max": 20}
    await admin.call("POST", "/v1/quotas", {"tenant": "a", **quota})
    a, b = await admin.credential("a"), await admin.credential("b")
    async with AsyncExitStack() as stack:
        streams = await stack.enter_async_context(
            streams_to("127.0.0.1", leader.http_port, options.streams, b)
        )
        by_stream = Renewers(streams, options.renewers, options.renewals)
        by_http = HttpRenewers(leader, b, options.renewers, options.renewals)
        await by_stream.begin()
        await by_http.begin()
        await asyncio.sleep(2.0)
        quiet_s, at_first = time.perf_counter(), core_s(leader)
        await asyncio.sleep(options.seconds)
        began_s, at_storm = time.perf_counter(), core_s(leader)
        plan = {
            "port": leader.http_port,
            "credential": a,
            "seconds": options.seconds,
            "rate": options.quota * options.times,
            "connections": options.connections,
            "streams": options.streams,
            "frame": options.frame,
            "idle": options.idle,
            "watches": 200,
            "held": 10,
        }
        most = [0]
        looking = asyncio.create_task(watch_held(admin, most))
        storm = await storming(plan)
        ended_s = time.perf_counter()
        at_end = core_s(leader)
        looking.cancel()
        unanswered = await by_stream.end()
        await by_http.end()
    now_s, now = time.perf_counter(), time.time()
    from_s, to_s = now_s - (now - storm["began_s"]), now_s - (now - storm["ended_s"])
    took_s = storm["ended_s"] - storm["began_s"]
    return {
        "quota": options.quota,
        "times": options.times,
        "before": {
            "http": latencies(by_http.renewals, quiet_s, began_s),
            "stream": latencies(by_stream.renewals, quiet_s, began_s),
        },
        "during": {
            "http": latencies(by_http.renewals, from_s, to_s),
            "stream": latencies(by_stream.renewals, from_s, to_s),
        },
        "p99_ms_by_second": [
            latencies(by_http.renewals + by_stream.renewals, from_s + second, from_s + second + 1)["p99_ms"]
            for second in range(int(took_s))
        ],
        "lost": dict(by_http.lost + by_stream.lost),
        "overloaded": by_stream.overloaded,
        "unanswered_frames": unanswered,
        "skipped": by_stream.skipped + by_http.skipped,
        "generator_late_ms": round(by_stream.late_s * 1e3, 1),
        "storm": storm,
        "storm_seconds": round(took_s, 2),
        "granted_max": int(options.quota * (took_s + BURST_S)) + 1,
        "leases_max": options.leases_max,
        "leases_seen_max": most[0],
        "leader_core": {
            "before": shares(at_first, at_storm, began_s - quiet_s),
            "during": shares(at_storm, at_end, ended_s - began_s),
        },
        "leader_stayed": await cluster.leader() is leader,
    }


def core_s(node: LiveNode) -> tuple[float, float]:
    """For how long the node has run so far, and for how long it could have but others had the cores."""
    ran_ns, waited_ns = Path(f"/proc/{node.pid}/schedstat").read_text(encoding="ascii").split()[:2]
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9


def shares(first: tuple[float, float], last: tuple[float, float], seconds: float) -> dict[str, float]:
    ran_s, waited_s = last[0] - first[0], last[1] - first[1]
    return {"ran": round(ran_s / seconds, 2), "waited": round(waited_s / seconds, 2)}


async def watch_held(admin: Admin, most: list[int]) -> None:
    """The most leases that A is seen to have."""
    while True:
        for tenant in (await admin.call("GET", "/v1/tenants"))["tenants"]:
            if tenant["tenant"] == "a":
                most[0] = max(most[0], tenant["leases"])
        await asyncio.sleep(0.25)


def report(figures: dict[str, Any]) -> str:
    storm = figures["storm"]
    lines = []
    for way in ("http", "stream"):
        for phase in ("before", "during"):
            took = figures[phase][way]
            lines.append(
                f"B's renewals by {way:6} {phase}: {took['renewals']:,}, p50 {took['p50_ms']:.1f} ms, "
                f"p99 {took['p99_ms']:.1f} ms, max {took['max_ms']:.1f} ms"
                f"{' (goal: p99 100)' if phase == 'during' else ''}"
            )
    lines.append(f"p99 by second of the storm: {figures['p99_ms_by_second']}")
    lost = sum(figures["lost"].values()) + figures["unanswered_frames"] + figures["overloaded"]
    lines.append(f"B's renewals refused or lost: {lost} (goal: 0) {figures['lost'] or ''}")
    lines.append(
        f"A, {figures['times'] or 'any number of'} times its quota for {figures['storm_seconds']:.0f} s: "
        f"{storm['granted']:,} granted of {figures['granted_max']:,} that its quota allows, refused "
        f"{sum(storm['exceeded'].values()):,} {storm['exceeded']}; not sent {storm['skipped']:,}"
    )
    lines.append(f"A's answers: {storm['answers']}")
    lines.append(f"A's leases: at most {figures['leases_seen_max']} of {figures['leases_max']}")
    for phase, core in figures["leader_core"].items():
        lines.append(
            f"the leader {phase}: ran {core['ran']:.2f} of a core, waited for one {core['waited']:.2f} of "
            "the time"
        )
    lines.append(f"the generator was late by {figures['generator_late_ms']:.1f} ms at most")
    if not figures["leader_stayed"]:
        lines.append("the leader changed meanwhile: the figures mean nothing")
    return "\n".join(lines)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        async with GuardedCluster(Path(directory)) as cluster:
            figures = await measure(options, cluster)
    return {"cores": os.cpu_count(), **figures}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--quota", type=int, default=100, help="A's operations a second")
    parser.add_argument("--times", type=float, default=10.0, help="of its quota; 0: as fast as it goes")
    parser.add_argument("--leases-max", type=int, default=500, help="A's leases")
    parser.add_argument("--connections", type=int, default=100, help="on which A asks by HTTP")
    parser.add_argument("--streams", type=int, default=4, help="of each of the two")
    parser.add_argument("--frame", type=int, default=25, help="acquires a frame of A")
    parser.add_argument("--idle", type=int, default=200, help="idle connections of A")
    parser.add_argument("--renewers", type=int, default=20, help="leases of B for each way")
    parser.add_argument("--renewals", type=float, default=5.0, help="of each of them a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of quiet, and of storm")
    parser.add_argument("--directory", help="where the nodes keep their data")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.connections, options.idle, options.quota = 4.0, 20, 20, 50
    return options


if __name__ == "__main__":
    run_bench(parse(), run, report)
