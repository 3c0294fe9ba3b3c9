"""Measure the lease table alone: what a held lease costs in memory, and how long single commands, snapshots,
pages and reads of a snapshot take while very many leases are held. No consensus, no network, one core.

    python bench/lease_table.py [LEASES …]      1,000, 100,000 and 1,000,000 by default (a minute, 1.5 GB)

The longest command of each kind is what holds the event loop. The collector of garbage is off, as in a node
that is told to collect seldom.
"""

import gc
import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tenure_cluster.lease import commands, limits, snapshot
from tenure_cluster.lease.machine import LeaseMachine

TENANT = "default"
WALL_MS = 1_800_000_000_000
MANY = 10_000


def memory_bytes() -> int:
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


class Bench:
    """One table that fills up."""

    def __init__(self) -> None:
        self.machine = LeaseMachine()
        self.now_ms = 1_000
        self.longest_ms = 0.0

    def apply(self, command: commands.Command) -> None:
        encoded = commands.encode(command)
        began = time.perf_counter()
        self.machine.apply(self.now_ms, commands.decode(encoded))
        self.longest_ms = max(self.longest_ms, (time.perf_counter() - began) * 1e3)

    def acquire(
        self, key: str, *, session: str | None = None, wait: bool = False, mode: str = "exclusive"
    ) -> str:
        lease_id = secrets.token_urlsafe(16)
        self.apply(
            commands.Acquire(
                TENANT,
                [key],
                [lease_id],
                f"agent-{len(key)}",
                session,
                None if session else 30_000,
                secrets.token_urlsafe(16),
                True,
                wait,
                mode,  # type: ignore[arg-type]
                0,
                0,
                "return",
                {},
                WALL_MS + self.now_ms,
            )
        )
        return lease_id

    def timed(self, what: str, work: Callable[[], None], times: int) -> None:
        self.longest_ms = 0.0
        began = time.perf_counter()
        work()
        mean_us = (time.perf_counter() - began) / times * 1e6
        print(f"  {what:<44} {mean_us:9.1f} us each, longest {self.longest_ms:6.2f} ms")

    def fill(self, count: int) -> list[str]:
        before = memory_bytes()
        began = time.perf_counter()
        ids = []
        for number in range(count):
            self.now_ms = 1_000 + number // 100
            ids.append(self.acquire(f"payment/security/{number:08d}"))
        taken = time.perf_counter() - began
        each = (memory_bytes() - before) / count - sys.getsizeof(ids[0]) - 8
        print(f"{count:,} leases: {each:.0f} bytes each, {taken / count * 1e6:.1f} us to acquire one")
        return ids

    def reap(self) -> None:
        while due := self.machine.table.due(self.now_ms, limits.EXPIRE_BATCH_MAX):
            self.apply(commands.Expire(due, WALL_MS))


def snapshot_times(bench: Bench) -> None:
    began = time.perf_counter()
    chunks = snapshot.dump(bench.machine.table)
    begun_ms = (time.perf_counter() - began) * 1e3
    longest_ms, whole, kept = 0.0, time.perf_counter(), []
    while True:
        began = time.perf_counter()
        chunk = next(chunks, None)
        longest_ms = max(longest_ms, (time.perf_counter() - began) * 1e3)
        if chunk is None:
            break
        kept.append(chunk)
    dumped_s = time.perf_counter() - whole
    began = time.perf_counter()
    snapshot.load(kept)
    loaded_s = time.perf_counter() - began
    print(f"  snapshot: begun in {begun_ms:.2f} ms, longest chunk {longest_ms:.1f} ms,", end=" ")
    print(f"drawn in {dumped_s:.2f} s, loaded in {loaded_s:.2f} s")


def measure(count: int) -> None:
    bench = Bench()
    ids = bench.fill(count)
    some = ids[:: max(1, count // 2_000)]

    def renew() -> None:
        for lease_id in some:
            bench.apply(commands.Renew(TENANT, lease_id, None, None, WALL_MS))

    bench.timed("acquire and release", lambda: pairs(bench, 2_000), 4_000)
    bench.timed("renew", renew, len(some))
    snapshot_times(bench)
    bench.longest_ms = 0.0
    began = time.perf_counter()
    bench.machine.table.list_leases(TENANT, "payment/", f"payment/security/{count // 2:08d}", None, 100)
    print(f"  {'a page of 100 leases':<44} {(time.perf_counter() - began) * 1e6:9.1f} us")


def pairs(bench: Bench, count: int) -> None:
    for number in range(count):
        lease_id = bench.acquire(f"pair/{number}")
        bench.apply(commands.Release(TENANT, lease_id, WALL_MS))


def crowds() -> None:
    """Entries that meet very much at once."""
    print(f"{MANY:,} at once")
    bench = Bench()
    held = bench.acquire("k")
    for _ in range(limits.WAITERS_PER_KEY_MAX):
        bench.acquire("k", wait=True)
    bench.now_ms += limits.WAITER_SILENCE_MS
    bench.timed("a key whose waiters are all dead: its release", lambda: released(bench, held), 1)
    bench.timed("and what the reaper does then", bench.reap, 1)
    bench = Bench()
    bench.apply(commands.OpenSession(TENANT, "s", "agent", 600_000, {}, WALL_MS))
    for number in range(MANY):
        bench.acquire(f"k{number}", session="s")
    close = commands.CloseSession(TENANT, "s", WALL_MS)
    bench.timed("the close of a session with all of them", lambda: bench.apply(close), 1)
    bench.timed("and what the reaper does then", bench.reap, 1)
    bench = Bench()
    writer = bench.acquire("k")
    for _ in range(limits.HOLDERS_PER_KEY_MAX):
        bench.acquire("k", wait=True, mode="shared")
    bench.timed("a writer's release to 1,000 readers", lambda: released(bench, writer), 1)
    broken = commands.Break(TENANT, "k", "bench", "bench", WALL_MS)
    bench.timed("a break of 1,000 readers", lambda: bench.apply(broken), 1)
    bench = Bench()
    bench.fill(100_000)
    bench.now_ms += 40_000
    bench.timed("the expiry of 100,000 leases in one second", bench.reap, 100_000)


def released(bench: Bench, lease_id: str) -> None:
    bench.apply(commands.Release(TENANT, lease_id, WALL_MS))


def main() -> None:
    gc.disable()
    for count in [int(word) for word in sys.argv[1:]] or [1_000, 100_000, 1_000_000]:
        measure(count)
    crowds()


if __name__ == "__main__":
    main()
