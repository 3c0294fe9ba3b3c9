"""Runs clusters without one mitigation, and the same seeds with it, and counts what differs."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenure_chaos.mutants.edits import made
from tenure_chaos.mutants.hunt import OWN_CHECKS_OFF, be_quiet, rules_of
from tenure_chaos.mutants.mitigations import BY_NAME, Off
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import Report, run_seed
from tenure_chaos.time_limit import Hangs, no_longer_than
from tenure_cluster.raft import mitigations

SEED_WALL_S = 300
CHUNK_SEEDS = 50
UNANSWERED = ("unavailable", "unknown")


@dataclass
class Sums:
    """What some seeds came to, with the mitigation or without."""

    seeds: int = 0
    simulated_s: float = 0.0
    elections: int = 0
    calls: int = 0
    unanswered: int = 0
    broken: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """Seeds that broke something, each with the rules."""
    failed: list[str] = field(default_factory=list)
    """Seeds on which the harness itself failed or hung."""

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.simulated_s += report.simulated_s
        self.elections += report.counts["leader elected"]
        for name, number in report.counts.items():
            words = name.split()
            if words[0] == "call":
                self.calls += number
                self.unanswered += number * any(word in UNANSWERED for word in words[2:3])
        if report.violations:
            self.broken.append((report.seed, rules_of(report.violations)))

    def include(self, other: "Sums") -> None:
        self.seeds += other.seeds
        self.simulated_s += other.simulated_s
        self.elections += other.elections
        self.calls += other.calls
        self.unanswered += other.unanswered
        self.broken += other.broken
        self.failed += other.failed

    @property
    def seeds_broken(self) -> list[int]:
        return [seed for seed, _ in self.broken]

    @property
    def rules(self) -> Counter[str]:
        """How many seeds broke each."""
        return Counter(rule for _, rules in self.broken for rule in rules)

    @property
    def elections_an_hour(self) -> float:
        return self.elections / self.simulated_s * 3600 if self.simulated_s else 0.0

    @property
    def unanswered_share(self) -> float:
        return self.unanswered / self.calls if self.calls else 0.0


@dataclass
class Survey:
    """One mitigation."""

    name: str
    first_seed: int
    without: Sums = field(default_factory=Sums)
    with_it: Sums = field(default_factory=Sums)
    """The same seeds: all of them if it keeps the peace, else only those that broke something without it."""

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Survey":
        """Inverse of dataclasses.asdict(), after JSON."""
        sums = []
        for which in (plain["without"], plain["with_it"]):
            broken = [(seed, tuple(rules)) for seed, rules in which["broken"]]
            sums.append(Sums(**{**which, "broken": broken}))
        return cls(plain["name"], plain["first_seed"], *sums)

    @property
    def broken(self) -> list[int]:
        """Seeds that broke something without it, and nothing with it."""
        also = set(self.with_it.seeds_broken)
        return [seed for seed in self.without.seeds_broken if seed not in also]


class _Chunk(NamedTuple):
    name: str
    first_seed: int
    seeds: int


def survey(name: str, first_seed: int, seeds: int, *, broken_max: int, jobs: int) -> Survey:
    """Run seeds without the mitigation until so many of them broke a rule."""
    found = Survey(name, first_seed)
    chunks = [
        _Chunk(name, first, min(CHUNK_SEEDS, first_seed + seeds - first))
        for first in range(first_seed, first_seed + seeds, CHUNK_SEEDS)
    ]
    with multiprocessing.get_context("spawn").Pool(jobs, be_quiet, maxtasksperchild=1) as pool:
        for without, with_it in pool.imap(_run_chunk, chunks):
            found.without.include(without)
            found.with_it.include(with_it)
            if len(found.broken) >= broken_max:
                break
    return found


def _run_chunk(chunk: _Chunk) -> tuple[Sums, Sums]:
    off = BY_NAME[chunk.name]
    seeds = range(chunk.first_seed, chunk.first_seed + chunk.seeds)
    with made((*off.edits, *OWN_CHECKS_OFF)):
        without = _run(off, iter(seeds), mitigations.ALL - off.left_out)
    with_it = _run(off, iter(seeds if off.disturbs else without.seeds_broken), mitigations.ALL)
    return without, with_it


def _run(off: Off, seeds: Iterator[int], on: frozenset[str]) -> Sums:
    sums = Sums()
    for seed in seeds:
        try:
            with no_longer_than(SEED_WALL_S):
                sums.add(run_seed(seed, Options.for_seed(seed, off.profile), on))
        except (Exception, Hangs) as error:
            sums.seeds += 1
            sums.failed.append(f"seed {seed}: {type(error).__name__}: {error}")
    return sums
