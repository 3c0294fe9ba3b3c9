"""Measure what holding leases costs a program: heartbeats on the wire, CPU and memory of its process.

    python bench/client_leases.py                  10,000 leases held by one process for a minute
    python bench/client_leases.py --quick          a few seconds, to see that it runs
    python bench/client_leases.py --json FILE      the figures as JSON as well

Three real nodes, and one process with the client library that acquires the leases and then only holds them.
It reaches the nodes through relays in this process, which count the calls and the bytes that really go over
its connections. Leases of one owner and TTL share a session, and a session is renewed by one heartbeat; so
the same number of leases is measured as one owner's, as a hundred owners', and, fewer of them, each with a
session of its own.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import targets  # noqa: F401 -- makes the harness of the tests importable
from live_cluster import LiveCluster

import tenure

TTL_S = 30.0
AT_ONCE = 64
"""Acquires under way at a time."""
REQUEST = re.compile(rb"(?:GET|POST|DELETE) (/v1/[a-z]+)\S* HTTP/1\.1\r\n")
PATIENCE_S = 600.0


class Work(NamedTuple):
    name: str
    leases: int
    owners: int
    ttl_s: float
    own_session: bool = False


class Counted:
    """What went through the relays."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.bytes = 0

    def copy(self) -> "Counted":
        copied = Counted()
        copied.calls, copied.bytes = Counter(self.calls), self.bytes
        return copied


class CountingRelay:
    """Passes everything on to one node, and counts it."""

    def __init__(self, port: int, counted: Counted) -> None:
        self._port = port
        self._counted = counted
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        for source, sink, is_asking in ((reader, back, True), (there, writer, False)):
            task = asyncio.create_task(self._pass(source, sink, is_asking))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_asking: bool) -> None:
        seen = b""
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                self._counted.bytes += len(data)
                if is_asking:
                    seen += data
                    end = 0
                    for found in REQUEST.finditer(seen):
                        self._counted.calls[found[1].decode()] += 1
                        end = found.end()
                    # What is cut off here may go on in the next piece.
                    seen = seen[max(end, len(seen) - 200) :]
                # Without the hint, or the client would go around the relay.
                sink.write(data.replace(b"X-Tenure-Leader", b"X-Nobody-Leader"))
                await sink.drain()
        sink.close()


# -- the process that holds


def usage() -> dict[str, float]:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "at_s": time.monotonic(),
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_kib": float(re.findall(r"VmRSS:\s+(\d+)", status)[0]),
        "threads": float(re.findall(r"Threads:\s+(\d+)", status)[0]),
    }


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def hold(endpoints: str, work: Work) -> None:
    """Acquire, and then do nothing but answer how it is, as often as a line comes."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with tenure.connect(endpoints, timeout=60, stream=False) as client:
        async with client.lease("client-bench/first", ttl=work.ttl_s):
            pass  # what is loaded and opened at first use
        say(**usage())
        held: list[tenure.Held] = []
        numbers = iter(range(work.leases))

        async def acquire() -> None:
            for number in numbers:
                owner = f"owner-{number % work.owners}"
                key = f"client-bench/{work.name}/{number}"
                lease = client.lease(key, ttl=work.ttl_s, owner=owner, own_session=work.own_session)
                held.append(await lease.acquire())

        await asyncio.gather(*(acquire() for _ in range(AT_ONCE)))
        say(**usage())
        while await lines.readline():
            states = Counter(one.state.value for one in held)
            say(**usage(), states=states, sessions=len({one.session_id for one in held}))
            if states["held"] != work.leases:
                break
        # Not released: what is measured is holding. They end with their sessions.
        os._exit(0)


# -- the measurement


async def measure(urls: list[str], counted: Counted, work: Work, seconds: float) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--hold", ",".join(urls), json.dumps(work)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    async def said() -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            line = await process.stdout.readline()
        if not line:
            raise SystemExit(f"the process that holds has ended with {await process.wait()}")
        fields: dict[str, Any] = json.loads(line)
        return fields

    try:
        empty, full = await said(), await said()
        # A TTL, so that what acquiring has left to do is done.
        await asyncio.sleep(min(work.ttl_s, seconds))
        process.stdin.write(b"\n")
        before, calls_before = await said(), counted.copy()
        await asyncio.sleep(seconds)
        process.stdin.write(b"\n")
        after, calls_after = await said(), counted.copy()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    lost = work.leases - after["states"].get("held", 0)
    if lost:
        raise SystemExit(f"{lost} of {work.leases} leases were not held any more: {after['states']}")
    lasted_s = after["at_s"] - before["at_s"]
    calls = calls_after.calls - calls_before.calls
    return {
        **work._asdict(),
        "sessions": after["sessions"],
        "acquired_in_s": full["at_s"] - empty["at_s"],
        "acquire_cpu_s": full["cpu_s"] - empty["cpu_s"],
        "seconds": lasted_s,
        "heartbeats_per_s": calls["/v1/renew"] / lasted_s,
        "other_calls_per_s": (calls.total() - calls["/v1/renew"]) / lasted_s,
        "bytes_per_s": (calls_after.bytes - calls_before.bytes) / lasted_s,
        "cpu_share": (after["cpu_s"] - before["cpu_s"]) / lasted_s,
        "rss_mib": after["rss_kib"] / 1024,
        "rss_per_lease_kib": (after["rss_kib"] - empty["rss_kib"]) / work.leases,
        "threads": int(after["threads"]),
    }


def print_row(row: dict[str, Any]) -> None:
    print(
        f"{row['name']:>12} {row['leases']:>7} {row['sessions']:>8} {row['heartbeats_per_s']:>12.2f}"
        f" {row['other_calls_per_s']:>7.2f} {row['bytes_per_s']:>9.0f} {row['cpu_share'] * 100:>8.2f} %"
        f" {row['rss_mib']:>8.0f} {row['rss_per_lease_kib']:>10.1f} {row['threads']:>8}"
        f" {row['acquired_in_s']:>10.1f} {row['acquire_cpu_s']:>7.1f}",
        flush=True,
    )


async def run(works: list[Work], seconds: float) -> list[dict[str, Any]]:
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()},"
        f" TTL {works[0].ttl_s:.0f} s, held for {seconds:.0f} s; the client's process only"
    )
    print(
        f"{'':>12} {'leases':>7} {'sessions':>8} {'heartbeats/s':>12} {'other/s':>7} {'bytes/s':>9}"
        f" {'of a core':>10} {'RSS MiB':>8} {'KiB/lease':>10} {'threads':>8} {'acquired s':>10} {'CPU s':>7}"
    )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        async with LiveCluster(Path(directory)) as cluster:
            counted = Counted()
            relays = [CountingRelay(node.http_port, counted) for node in cluster.nodes.values()]
            urls = [await relay.start() for relay in relays]
            try:
                for work in works:
                    rows.append(await measure(urls, counted, work, seconds))
                    print_row(rows[-1])
            finally:
                for relay in relays:
                    await relay.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--leases", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long they are held")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter; figures mean nothing")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--hold", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.hold is not None:
        asyncio.run(hold(asked.hold[0], Work(*json.loads(asked.hold[1]))))
        return
    leases, seconds, ttl_s = (300, 3.0, 6.0) if asked.quick else (asked.leases, asked.seconds, TTL_S)
    works = [
        Work("one owner", leases, 1, ttl_s),
        Work("many owners", leases, min(100, leases), ttl_s),
        Work("own session", max(1, leases // 10), 1, ttl_s, own_session=True),
    ]
    rows = asyncio.run(run(works, seconds))
    if asked.json is not None:
        asked.json.write_text(json.dumps({"results": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
