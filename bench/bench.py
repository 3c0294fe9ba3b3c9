"""Measure what the server does for its clients and what that costs: servers and load in one run on this
machine.

    make bench                          the figures: one warm-up and five rounds of every work, medians
    make bench ARGS='--quick'           a few seconds, to see that it runs
    make bench ARGS='--etcd'            the same works against a local etcd between the rounds, for ratios
    make bench ARGS='--json FILE'       the figures as JSON as well
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from load import Crowd, Measured, percentile
from targets import EtcdTarget, TenureTarget, install_uvloop

Target = TenureTarget | EtcdTarget


class Round(msgspec.Struct):
    """What one round of one work gave."""

    rate: float
    p50_ms: float
    p99_ms: float
    first_p50_ms: float
    first_p99_ms: float
    leader_us: float
    followers_us: list[float]
    generator_share: float


def figures_of(measured: Measured, cpu_s: Sequence[float]) -> Round:
    per_unit = 1e6 / max(1, measured.units)
    return Round(
        rate=measured.units / measured.seconds,
        p50_ms=percentile(measured.unit_s, 50) * 1e3,
        p99_ms=percentile(measured.unit_s, 99) * 1e3,
        first_p50_ms=percentile(measured.first_s, 50) * 1e3,
        first_p99_ms=percentile(measured.first_s, 99) * 1e3,
        leader_us=cpu_s[0] * per_unit,
        followers_us=[value * per_unit for value in cpu_s[1:]],
        generator_share=measured.generator_cpu_s / measured.seconds,
    )


class Series:
    """One work of one target with so many clients, over all rounds."""

    def __init__(self, target: Target, work: str, clients: int) -> None:
        self.target = target
        self.work = work
        self.clients = clients
        self.rounds: list[Round] = []
        self._crowd: Crowd | None = None

    async def run(self, seconds: float, *, counts: bool) -> None:
        """One round; the first also connects the clients."""
        if self._crowd is None:
            make = self.target.works[self.work]
            self._crowd = Crowd([make(index) for index in range(self.clients)])
            await self._crowd.connect(self.target.host, self.target.port)
        before = self.target.cpu_s()
        measured = await self._crowd.round(seconds)
        cpu_s = [after - start for after, start in zip(self.target.cpu_s(), before, strict=True)]
        if counts:
            self.rounds.append(figures_of(measured, cpu_s))

    def close(self) -> None:
        if self._crowd is not None:
            self._crowd.close()

    def summary(self) -> dict[str, Any]:
        """Medians over the rounds, and the spread of the rate."""

        def median(name: str) -> float:
            return float(statistics.median(getattr(each, name) for each in self.rounds))

        followers = [
            statistics.median(column) for column in zip(*(r.followers_us for r in self.rounds), strict=True)
        ]
        return {
            "target": self.target.name,
            "work": self.work,
            "clients": self.clients,
            "rate_per_s": round(median("rate"), 1),
            "rate_min_per_s": round(min(each.rate for each in self.rounds), 1),
            "rate_max_per_s": round(max(each.rate for each in self.rounds), 1),
            "p50_ms": round(median("p50_ms"), 3),
            "p99_ms": round(median("p99_ms"), 3),
            "first_p50_ms": round(median("first_p50_ms"), 3),
            "first_p99_ms": round(median("first_p99_ms"), 3),
            "leader_cpu_us": round(median("leader_us"), 1),
            "follower_cpu_us": [round(value, 1) for value in followers],
            "servers_cpu_us": round(median("leader_us") + sum(followers), 1),
            "generator_cpu_share": round(median("generator_share"), 3),
        }


COLUMNS = (
    ("target", "target", 7),
    ("work", "work", 32),
    ("clients", "clients", 7),
    ("rate_per_s", "rate/s", 9),
    ("first_p50_ms", "acq p50", 8),
    ("first_p99_ms", "acq p99", 8),
    ("p50_ms", "p50 ms", 8),
    ("p99_ms", "p99 ms", 8),
    ("leader_cpu_us", "leader us", 9),
    ("follower_cpu_us", "followers us", 17),
    ("generator_cpu_share", "gen cpu", 7),
)


def table(summaries: Sequence[dict[str, Any]]) -> str:
    lines = ["  ".join(title.rjust(width) for _, title, width in COLUMNS)]
    for summary in summaries:
        cells = []
        for name, _, width in COLUMNS:
            value = summary[name]
            text = " / ".join(str(part) for part in value) if isinstance(value, list) else str(value)
            cells.append(text.rjust(width))
        lines.append("  ".join(cells))
    return "\n".join(lines)


def ratios(summaries: Sequence[dict[str, Any]]) -> list[str]:
    """Where both targets did comparable work: how many times as fast, and for what share of the CPU."""
    lines = []
    ours = {(s["work"], s["clients"]): s for s in summaries if s["target"] == "tenure"}
    for theirs in summaries:
        if theirs["target"] == "tenure":
            continue
        own = ours[theirs["work"].split(",")[0], theirs["clients"]]
        lines.append(
            f"{theirs['work']}, {theirs['clients']} clients: "
            f"{own['rate_per_s'] / theirs['rate_per_s']:.2f} x the rate of "
            f"{theirs['target']}, {own['p50_ms'] / theirs['p50_ms']:.2f} x its p50, "
            f"{own['p99_ms'] / theirs['p99_ms']:.2f} x its p99, "
            f"{own['servers_cpu_us'] / max(0.1, theirs['servers_cpu_us']):.2f} x its CPU"
        )
    return lines


async def measure(
    targets: Sequence[Target], clients: Sequence[int], rounds: int, seconds: float
) -> list[Series]:
    """Every series once as a warm-up, then `rounds` times, the series and targets taking turns."""
    series = [Series(target, work, count) for count in clients for target in targets for work in target.works]
    try:
        for turn in range(rounds + 1):
            for each in series:
                await each.run(seconds if turn else min(seconds, 1.0), counts=turn > 0)
            print(f"round {turn} of {rounds} done" if turn else "warm-up done", file=sys.stderr)
        for target in targets:
            if not await target.leader_stays():
                raise SystemExit(f"{target.name} changed its leader during the run: the figures mean nothing")
    finally:
        for each in series:
            each.close()
    return series


async def run(options: argparse.Namespace, loop_name: str) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix="tenure-bench-", dir=options.directory))
    targets: list[Target] = [TenureTarget(directory, options.durability)]
    if options.etcd:
        binary = shutil.which("etcd")
        if binary is None:
            print("etcd is not on PATH: measured without it", file=sys.stderr)
        else:
            targets.append(EtcdTarget(directory, binary))
    try:
        for target in targets:
            await target.start()
        series = await measure(targets, options.clients, options.rounds, options.seconds)
    finally:
        for target in targets:
            target.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "durability": options.durability,
        "rounds": options.rounds,
        "seconds_per_round": options.seconds,
        "generator_loop": loop_name,
        "results": [each.summary() for each in series],
    }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round with 1 and 16 clients")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    parser.add_argument("--etcd", action="store_true", help="measure a local three-node etcd in the same run")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--directory", type=Path, default=None, help="where the servers keep their data")
    options = parser.parse_args(arguments)
    if options.quick:
        options.clients, options.rounds, options.seconds = [1, 16], 1, 0.4
    return options


def main() -> None:
    options = parse(sys.argv[1:])
    loop_name = install_uvloop()
    result = asyncio.run(run(options, loop_name))
    print(f"durability {result['durability']}, {options.rounds} rounds of {options.seconds} s, medians.")
    print(
        "A unit is a pair or a renewal; acq is the first request of it alone; CPU is microseconds per unit;"
    )
    print("gen cpu is the generator's own share of a core.")
    print(table(result["results"]))
    for line in ratios(result["results"]):
        print(line)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
