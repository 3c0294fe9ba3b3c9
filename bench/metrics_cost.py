"""Measure what being seen costs: two clusters in one run, one with metrics and logs, one without.

    python bench/metrics_cost.py                      two hundred short rounds of each, taking turns
    python bench/metrics_cost.py --requests all       with a line in the log for every request
    python bench/metrics_cost.py --tracing            tracing that is there and off, against its code cut out
    python bench/metrics_cost.py --quick              to see that it runs; figures mean nothing

The seen cluster writes JSON logs, and every node of it is scraped every five seconds throughout.

A ratio is the median of the ratios of rounds that stand side by side, told with its quartiles and with the
interval that holds the true median with a probability of 95 %: on a machine that has other work to do one
round says little. The leader's CPU for an operation is less at the mercy of that than the rate is.
"""

import argparse
import asyncio
import contextlib
import json
import math
import shutil
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench import Series
from live_cluster import Settings
from targets import LiveCluster, LiveNode, TenureTarget, fetch, install_uvloop

SCRAPE_PERIOD_S = 5.0

UNSEEN = {"metrics": {"enabled": False}, "log": {"level": "error", "requests": "none"}}


WORKS = ("acquire+release", "renew")

QUANTILE_95: Final = 1.96
"""Of the normal distribution: 95 % lie no further from the middle, in standard deviations."""


class Side(TenureTarget):
    """One of the two clusters that are compared."""

    def __init__(self, name: str, directory: Path, durability: str, settings: Settings) -> None:
        super().__init__(directory / name, durability)
        self.name = name
        self.cluster.settings = settings

    async def scrape_for_ever(self) -> None:
        while True:
            for node in self.cluster.nodes.values():
                answer = await fetch(node.url, "GET", "/metrics")
                assert answer.status == 200
            await asyncio.sleep(SCRAPE_PERIOD_S)


class WithoutTracing(LiveCluster):
    """Nodes of without_tracing.py."""

    def start(self, node: LiveNode) -> None:
        arguments = ("run", "--config", str(node.config_path))
        node.spawn("without_tracing", arguments, {"PYTHONPATH": str(Path(__file__).parent)})


def seen_and_unseen(directory: Path, options: argparse.Namespace) -> tuple[Side, Side]:
    log = {"format": "json", "requests": options.requests}
    return (
        Side("seen", directory, options.durability, {"metrics": {"enabled": True}, "log": log}),
        Side("unseen", directory, options.durability, UNSEEN),
    )


def off_and_cut_out(directory: Path, options: argparse.Namespace) -> tuple[Side, Side]:
    off, cut_out = (Side(name, directory, options.durability, UNSEEN) for name in ("off", "cut out"))
    cut_out.cluster = WithoutTracing(directory / "without", durability=options.durability, settings=UNSEEN)
    return off, cut_out


@contextlib.asynccontextmanager
async def scraped(side: Side, *, wanted: bool) -> AsyncIterator[None]:
    """Its metrics are asked for meanwhile. Raises what that raised."""
    task = asyncio.get_running_loop().create_task(side.scrape_for_ever()) if wanted else None
    try:
        yield
        if task is not None and task.done():
            task.result()
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def run(options: argparse.Namespace) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
    sides = (off_and_cut_out if options.tracing else seen_and_unseen)(directory, options)
    try:
        for side in sides:
            await side.start()
        async with scraped(sides[0], wanted=not options.tracing):
            pairs = {work: [Series(side, work, options.clients) for side in sides] for work in options.works}
            for turn in range(options.rounds + 1):
                for pair in pairs.values():
                    # Who goes first takes turns too.
                    for series in pair if turn % 2 else reversed(pair):
                        await series.run(options.seconds, counts=turn > 0)
        for side in sides:
            if not await side.leader_stays():
                raise SystemExit(f"{side.name} changed its leader during the run: the figures mean nothing")
        return {work: compare(*pair) for work, pair in pairs.items()}
    finally:
        for side in sides:
            side.stop()
        shutil.rmtree(directory, ignore_errors=True)


def compare(one: Series, other: Series) -> dict[str, Any]:
    """What the first has of the second's rate, and takes of its CPU."""
    rounds = list(zip(one.rounds, other.rounds, strict=True))
    one.close()
    other.close()
    figures: dict[str, Any] = {}
    for name in ("rate", "leader_us"):
        unit = f"{name}_per_s" if name == "rate" else name
        for series in (one, other):
            median = statistics.median(getattr(each, name) for each in series.rounds)
            figures[f"{unit}, {series.target.name}"] = round(median, 1)
        ratios = [getattr(ours, name) / getattr(theirs, name) for ours, theirs in rounds]
        figures[f"{unit}, ratio"] = spread(ratios)
    return figures


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """The median, the quartiles, and where the median of ever more rounds would be found: between these order
    statistics, whatever the distribution."""
    ordered = sorted(ratios)
    low, _, high = statistics.quantiles(ordered, n=4, method="inclusive")
    count = len(ordered)
    reach = QUANTILE_95 * math.sqrt(count) / 2
    least = max(0, math.floor(count / 2 - reach))
    most = min(count - 1, math.ceil(count / 2 + reach) - 1)
    figures = {
        "median": statistics.median(ordered),
        "quartile_low": low,
        "quartile_high": high,
        "median_95_low": ordered[least],
        "median_95_high": ordered[most],
    }
    return {name: round(value, 3) for name, value in figures.items()}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200, help="rounds of each cluster and work")
    parser.add_argument("--seconds", type=float, default=0.25, help="length of a round")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    parser.add_argument("--requests", choices=("failed", "all"), default="failed", help="log.requests")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--tracing", action="store_true", help="what tracing costs where it is off")
    parser.add_argument("--quick", action="store_true", help="two short rounds; figures mean nothing")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds = 2, 0.3
    return options


if __name__ == "__main__":
    chosen = parse()
    install_uvloop()
    figures = asyncio.run(run(chosen))
    print(json.dumps(figures, indent=2))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
