"""Measure for how long single entries of the log hold the event loop of a node that holds very many leases.

    python bench/entries.py                       1,000, 100,000 and 1,000,000 leases, a storm of 100,000
    python bench/entries.py --leases 1000 50000   other numbers, from the smallest to the largest
    python bench/entries.py --storm 20000         a smaller storm
    python bench/entries.py --quick               to see that it runs; figures mean nothing

One replica as a node has it, metrics and the log of events included, without network and disk: an entry is
applied in one piece, so the longest one is what holds the loop on every node. All times are processor time of
this thread, which other work on the machine changes little. In turn it is measured

- what an acquire costs at each number of leases, alone in its entry;
- the walks of the garbage collector while so many are granted;
- an entry of 600 renewals before and after as many leases as the storm has fell due, and the one after that;
- the batches in which these end, and how a snapshot begins then;
- an entry of 600 renewals when nothing has happened for as long as ended leases are remembered.
"""

import argparse
import gc
import random
import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any

from load import percentile

from tenure_cluster.collector import Collector
from tenure_cluster.lease import commands, limits
from tenure_cluster.observe.lease_counts import LeaseCounts
from tenure_cluster.service.reaper import BESIDE_OTHERS_MAX
from tenure_cluster.service.replica import Replica
from tenure_cluster.service.watch_log import EventLog

TENANT = "default"
START_MS = 1_000_000
WALL_MS = 1_800_000_000_000
RENEWED = 600
"""Renewals of an entry: about what comes together while the one before is on its way."""

FILL = 200
"""Acquires of an entry while it is filled."""


class Held:
    """A replica and the time in its log."""

    def __init__(self) -> None:
        self.replica = Replica()
        counts = LeaseCounts(10, lambda: True)
        events = EventLog(50_000)
        self.replica.on_applied, self.replica.on_events = counts.on_applied, events.extend
        self.now_ms = START_MS
        self.ids: list[str] = []

    def entry_ms(self, asked: list[commands.Command]) -> float:
        """Apply one entry; the processor time that it took."""
        encoded = [(self.now_ms, commands.encode(command)) for command in asked]
        began = time.thread_time()
        self.replica.apply(self.replica.applied_index + 1, encoded)
        return (time.thread_time() - began) * 1e3

    def acquire(self, key: str, ttl_ms: int) -> commands.Acquire:
        self.ids.append(secrets.token_urlsafe(18))
        request_id = secrets.token_urlsafe(18)
        what: tuple[Any, ...] = (request_id, True, False, "exclusive", 0, 0, "return", {}, WALL_MS)
        return commands.Acquire(TENANT, [key], [self.ids[-1]], "worker", None, ttl_ms, *what)

    def fill(self, prefix: str, count: int, ttl_ms: int, *, end_together: bool = False) -> float:
        """Grant so many, 50 in each millisecond; the longest entry."""
        longest, end_ms = 0.0, self.now_ms + ttl_ms
        for first in range(0, count, FILL):
            left_ms = end_ms - self.now_ms if end_together else ttl_ms
            keys = range(first, min(first + FILL, count))
            asked: list[commands.Command] = [self.acquire(f"{prefix}/{key}", left_ms) for key in keys]
            longest = max(longest, self.entry_ms(asked))
            self.now_ms += FILL // 50
        return longest

    def renew(self, ids: list[str]) -> float:
        return self.entry_ms([commands.Renew(TENANT, lease_id, None, None, WALL_MS) for lease_id in ids])


def watched(work: Callable[[], float]) -> tuple[float, float]:
    """What `work` gives, and the longest walk of the garbage collector meanwhile, in milliseconds."""
    began, longest = 0.0, 0.0

    def walk(phase: str, info: dict[str, int]) -> None:
        nonlocal began, longest
        if phase == "start":
            began = time.thread_time()
        else:
            longest = max(longest, (time.thread_time() - began) * 1e3)

    gc.callbacks.append(walk)
    try:
        return work(), longest
    finally:
        gc.callbacks.remove(walk)


def acquires(sizes: list[int], rounds: int) -> None:
    """Time acquires at each number of leases in turn, so that whatever the machine does meets all."""
    filled: list[Held] = []
    for size in sizes:
        held = Held()
        collecting = Collector(lambda held=held: held.replica.table)
        collecting.begin()
        longest, walk = watched(lambda held=held, size=size: held.fill("held", size, 6 * 3_600_000))
        collecting.end()
        print(f"{size:>9,} leases: filled, longest entry {longest:.1f} ms, longest walk {walk:.1f} ms")
        filled.append(held)
        for _ in range(6_000):  # a minute passes, in which each deadline has come up once
            held.now_ms += 10
            held.entry_ms([commands.Tick(WALL_MS)])
    gc.collect()
    gc.freeze()
    took: list[list[list[float]]] = [[] for _ in filled]
    for _ in range(rounds):
        for held, of_size in zip(filled, took, strict=True):
            of_round = []
            for _ in range(500):
                held.now_ms += 1
                of_round.append(held.entry_ms([held.acquire(f"pair/{random.randrange(8)}", 30_000)]))
                held.entry_ms([commands.Release(TENANT, held.ids.pop(), WALL_MS)])
            of_size.append(of_round)
    p99s = [statistics.median(percentile(each, 99) for each in of_size) for of_size in took]
    for size, of_size, p99 in zip(sizes, took, p99s, strict=True):
        p50 = statistics.median(percentile(each, 50) for each in of_size)
        print(
            f"{size:>9,} leases: acquire p50 {p50 * 1e3:.1f} us, p99 {p99 * 1e3:.1f} us, "
            f"{p99 / p99s[0]:.2f} x the smallest's"
        )


def storm(leases: int) -> None:
    held = Held()
    collecting = Collector(lambda: held.replica.table)
    collecting.begin()
    held.fill("renewed", RENEWED, 3_600_000)
    renewed = list(held.ids)
    end_ms = held.now_ms + leases // 50 + 60_000
    held.fill("storm", leases, end_ms - held.now_ms, end_together=True)
    before = held.renew(renewed)
    held.now_ms = end_ms + 500
    print(
        f"{RENEWED} renewals in an entry: {before:.1f} ms, after {leases:,} leases fell due "
        f"{held.renew(renewed):.1f} ms, the next {held.renew(renewed):.1f} ms"
    )
    for most in (BESIDE_OTHERS_MAX, limits.EXPIRE_BATCH_MAX):
        batches: list[float] = []
        ended = 0
        while ended < leases // 2 and (due := held.replica.table.due(held.now_ms, most)):
            batches.append(held.entry_ms([commands.Expire(due, WALL_MS)]))
            ended += len(due)
            held.now_ms += 1
        print(f"expiry by {most}: median {statistics.median(batches):.1f} ms, longest {max(batches):.1f} ms")
    began = time.thread_time()
    chunks = held.replica.snapshot()
    begun_ms = (time.thread_time() - began) * 1e3
    longest = 0.0
    while True:
        began = time.thread_time()
        chunk = next(chunks, None)
        longest = max(longest, (time.thread_time() - began) * 1e3)
        if chunk is None:
            break
    print(f"a snapshot begins in {begun_ms:.1f} ms, longest chunk {longest:.1f} ms")
    held.now_ms += limits.REQUEST_MEMORY_MS
    print(f"{RENEWED} renewals after a minute of silence: {held.renew(renewed):.1f} ms")
    collecting.end()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--leases", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--storm", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.leases, options.storm, options.rounds = [100, 1_000], 2_000, 2
    storm(options.storm)
    acquires(options.leases, options.rounds)


if __name__ == "__main__":
    main()
