"""Many seeds, several at a time, each in a worker process; what is left of each is small.

A worker keeps what is needed to look into a seed that broke a rule, in a folder of its own, before it
answers.
"""

import itertools
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import Report, run_seed
from tenure_chaos.time_limit import Hangs, no_longer_than

SEED_WALL_S = 900
"""A seed that takes longer hangs."""

TRACE_TAIL_LINES = 40


@dataclass
class Verdict:
    """What one seed came to, without its history."""

    seed: int
    options: dict[str, Any]
    violations: list[str]
    counts: Counter[str] = field(default_factory=Counter)
    simulated_s: float = 0.0
    safety_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    trace_hash: str = ""
    trace_tail: list[str] = field(default_factory=list)
    kept: str = ""
    """The folder with its trace and history, if it broke a rule."""


def run_one(seed: int, overrides: Mapping[str, str], keep: Path | None) -> Verdict:
    """Run a seed. Whatever goes wrong in the harness itself is a violation too."""
    cpu_began = time.process_time()
    options = Options.for_seed(seed, overrides)
    report: Report | None = None
    try:
        with no_longer_than(SEED_WALL_S):
            report = run_seed(seed, options)
    except (Exception, Hangs):
        verdict = Verdict(seed, asdict(options), [f"the harness runs: {traceback.format_exc()}"])
    else:
        verdict = Verdict(
            seed=seed,
            options=asdict(options),
            violations=report.violations,
            counts=report.counts,
            simulated_s=report.simulated_s,
            safety_s=options.safety_s,
            wall_s=report.wall_s,
            trace_hash=report.trace_hash,
        )
    verdict.cpu_s = time.process_time() - cpu_began
    if verdict.violations and report is not None:
        verdict.trace_tail = report.trace[-TRACE_TAIL_LINES:]
    if verdict.violations and keep is not None:
        verdict.kept = str(_keep(verdict, report, keep / f"seed-{seed}"))
    return verdict


def run_batch(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    overrides: Mapping[str, str] | None = None,
    keep: Path | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Verdict]:
    """Verdicts in the order in which they come. When ``stopping`` turns true no further seed is begun, and
    those under way are finished: so what was run is the beginning of ``seeds``, without a gap.
    """
    overrides = overrides or {}
    if jobs <= 1:
        for seed in itertools.takewhile(lambda _: not stopping(), seeds):
            yield run_one(seed, overrides, keep)
        return
    with workers(jobs) as pool:
        yield from run_on(pool, seeds, jobs=jobs, overrides=overrides, keep=keep, stopping=stopping)


def workers(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_become_worker)


def run_on(
    pool: ProcessPoolExecutor,
    seeds: Iterable[int],
    *,
    jobs: int,
    overrides: Mapping[str, str],
    keep: Path | None,
    stopping: Callable[[], bool],
) -> Iterator[Verdict]:
    """The same on workers that are there."""
    left = iter(seeds)
    under_way: set[Future[Verdict]] = set()
    while True:
        while len(under_way) < jobs and not stopping() and (seed := next(left, None)) is not None:
            under_way.add(pool.submit(run_one, seed, overrides, keep))
        if not under_way:
            return
        done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _become_worker() -> None:
    """Who asked decides when to stop; and when that process has gone, so do its workers."""
    logging.disable(logging.CRITICAL)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _keep(verdict: Verdict, report: Report | None, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    said = {
        "seed": verdict.seed,
        "options": verdict.options,
        "violations": verdict.violations,
        "trace_hash": verdict.trace_hash,
    }
    (folder / "verdict.json").write_text(json.dumps(said, indent=1) + "\n")
    if report is not None:
        (folder / "trace.txt").write_text("\n".join(report.trace) + "\n")
        report.history.save(folder / "history.jsonl")
    return folder
