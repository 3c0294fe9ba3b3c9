"""Measure what being seen costs: two clusters in one run, one with metrics and logs, one without.

    python bench/metrics_cost.py                      ten rounds of each, taking turns
    python bench/metrics_cost.py --requests all       with a line in the log for every request
    python bench/metrics_cost.py --quick              to see that it runs; figures mean nothing

The seen cluster writes JSON logs, and every node of it is scraped once a second throughout.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import Series
from targets import TenureTarget, fetch, install_uvloop

SCRAPE_PERIOD_S = 1.0

UNSEEN = {"metrics": {"enabled": False}, "log": {"level": "error", "requests": "none"}}


class Seen(TenureTarget):
    """Three nodes that are watched as in production."""

    name = "seen"

    def __init__(self, directory: Path, durability: str, requests: str) -> None:
        super().__init__(directory / "seen", durability)
        self.cluster.settings = {
            "metrics": {"enabled": True},
            "log": {"format": "json", "requests": requests},
        }

    async def scrape_for_ever(self) -> None:
        while True:
            for node in self.cluster.nodes.values():
                answer = await fetch(node.url, "GET", "/metrics")
                assert answer.status == 200
            await asyncio.sleep(SCRAPE_PERIOD_S)


class Unseen(TenureTarget):
    """The same without."""

    name = "unseen"

    def __init__(self, directory: Path, durability: str) -> None:
        super().__init__(directory / "unseen", durability)
        self.cluster.settings = UNSEEN


async def run(options: argparse.Namespace) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
    seen, unseen = (
        Seen(directory, options.durability, options.requests),
        Unseen(directory, options.durability),
    )
    scraping: asyncio.Task[None] | None = None
    try:
        for target in (seen, unseen):
            await target.start()
        scraping = asyncio.get_running_loop().create_task(seen.scrape_for_ever())
        works = ("acquire+release", "renew")
        pairs = {work: [Series(target, work, options.clients) for target in (seen, unseen)] for work in works}
        for turn in range(options.rounds + 1):
            for pair in pairs.values():
                # Who goes first takes turns too.
                for series in pair if turn % 2 else reversed(pair):
                    await series.run(options.seconds, counts=turn > 0)
        for target in (seen, unseen):
            if not await target.leader_stays():
                raise SystemExit(f"{target.name} changed its leader during the run: the figures mean nothing")
        if scraping.done():
            scraping.result()
        return {work: compare(*pair) for work, pair in pairs.items()}
    finally:
        if scraping is not None:
            scraping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await scraping
        for target in (seen, unseen):
            target.stop()
        shutil.rmtree(directory, ignore_errors=True)


def compare(seen: Series, unseen: Series) -> dict[str, float]:
    """Medians of the rounds' ratios, for a machine is not equally fast all the time."""
    rounds = list(zip(seen.rounds, unseen.rounds, strict=True))
    cpu = [one.leader_us / other.leader_us for one, other in rounds]
    seen.close()
    unseen.close()
    return {
        "rate_seen_per_s": round(statistics.median(one.rate for one, _ in rounds), 1),
        "rate_unseen_per_s": round(statistics.median(other.rate for _, other in rounds), 1),
        "rate_ratio": round(statistics.median(one.rate / other.rate for one, other in rounds), 3),
        "leader_cpu_ratio": round(statistics.median(cpu), 3),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each cluster and work")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    parser.add_argument("--requests", choices=("failed", "all"), default="failed", help="log.requests")
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
