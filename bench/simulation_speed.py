"""Measure how fast the simulation runs: simulated seconds of a whole cluster per second of one core.

    python bench/simulation_speed.py                 medians of seven seeds for each kind of cluster
    python bench/simulation_speed.py --quick         a few seconds, to see that it runs
    python bench/simulation_speed.py --json FILE     the figures as JSON as well

A run is one seed from its beginning to its verdict: building the cluster, the simulation, and checking the
history. What counts is the time that the process had on its core (user and system), so that others disturb it
little.
"""

import argparse
import gc
import json
import logging
import platform
import statistics
import sys
import time
from pathlib import Path

import msgspec

from tenure_chaos.sim.options import FAULTS, Options
from tenure_chaos.sim.run import run_seed

KINDS: dict[str, tuple[str, ...]] = {"none": (), "all kinds": FAULTS}
IDLE_S = 1e9


class Run(msgspec.Struct):
    """One seed."""

    seed: int
    simulated_s: float
    core_s: float
    calls: int

    @property
    def speed(self) -> float:
        return self.simulated_s / self.core_s


class Row(msgspec.Struct):
    """One kind of cluster."""

    nodes: int
    faults: str
    clients: str
    runs: list[Run]

    @property
    def speed(self) -> float:
        return statistics.median(run.speed for run in self.runs)


def run(seed: int, options: Options) -> Run:
    gc.collect()
    began_s = time.process_time()
    report = run_seed(seed, options)
    core_s = time.process_time() - began_s
    if report.violations:
        raise SystemExit(f"seed {seed} broke a rule: {report.violations[0]}")
    calls = sum(number for what, number in report.counts.items() if what.startswith("call "))
    return Run(seed, report.simulated_s, core_s, calls)


def rows(seeds: range, seconds: float) -> list[Row]:
    run(0, Options(safety_s=5.0, faults=FAULTS))  # what is loaded and compiled at first use
    made = []
    for clients, think_s in (("busy", 0.5), ("idle", IDLE_S)):
        for nodes in (3, 5):
            for name, faults in KINDS.items():
                options = Options(nodes=nodes, faults=faults, safety_s=seconds, think_s=think_s)
                made.append(Row(nodes, name, clients, [run(seed, options) for seed in seeds]))
                print_row(made[-1])
    return made


def print_head(seconds: float, seeds: range) -> None:
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}")
    print(
        f"{seconds:.0f} s under faults, then healing and rest; {len(seeds)} seeds: median, slowest, fastest"
    )
    print(f"{'clients':>8} {'nodes':>6} {'faults':>10} {'calls/s':>8} {'simulated s per core second':>32}")


def print_row(row: Row) -> None:
    speeds = sorted(run.speed for run in row.runs)
    calls = sum(run.calls for run in row.runs) / sum(run.simulated_s for run in row.runs)
    print(
        f"{row.clients:>8} {row.nodes:>6} {row.faults:>10} {calls:>8.1f}"
        f" {row.speed:>13.0f} x ({speeds[0]:.0f} to {speeds[-1]:.0f})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7, help="seeds for each kind of cluster")
    parser.add_argument("--seconds", type=float, default=120.0, help="simulated time under faults")
    parser.add_argument("--quick", action="store_true", help="one seed of ten seconds; figures mean nothing")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    arguments = parser.parse_args()
    if sys.flags.optimize:
        parser.error("assertions are part of what is measured; run without -O")
    logging.disable(logging.CRITICAL)
    seeds = range(1, 2 if arguments.quick else arguments.runs + 1)
    seconds = 10.0 if arguments.quick else arguments.seconds
    print_head(seconds, seeds)
    made = rows(seeds, seconds)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(msgspec.to_builtins(made), indent=1))


if __name__ == "__main__":
    main()
