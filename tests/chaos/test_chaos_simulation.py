"""Whole clusters from a few seeds break no rule, and a seed is a run. The slice of 20 simulated hours is
``make slice``.
"""

import asyncio
import os
import subprocess
import sys

import pytest

from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import run_seed
from tenure_chaos.sim.stage import Stage, play

FIVE_NODES = {
    "nodes": "5",
    "safety_s": "40",
    "fault_gap_s": "2",
    "faults": "kill leader,ring of majorities,bit rot",
}

HASH_PROGRAM = """
import sys
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import run_seed
for argument in sys.argv[1:]:
    seed, _, nodes = argument.partition(":")
    options = Options.for_seed(int(seed), {"nodes": nodes, "safety_s": "40", "fault_gap_s": "2"})
    print(seed, nodes, run_seed(int(seed), options).trace_hash)
"""


def test_a_few_seeds_break_no_rule_and_end_at_rest() -> None:
    for seed in range(1, 5):
        report = run_seed(seed, Options.for_seed(seed, {"safety_s": "60"}))
        assert report.violations == [], f"tenure-chaos reproduce {seed} --option safety_s=60"
        assert report.history.complete
        assert report.counts["call acquire ok"] > 0
        assert report.counts["leader elected"] > 0


def test_five_nodes_break_no_rule() -> None:
    report = run_seed(1, Options.for_seed(1, FIVE_NODES))
    assert report.violations == []
    assert report.counts["fault ring of majorities"] > 0


def test_one_seed_run_twice_is_one_run() -> None:
    options = Options.for_seed(3, {"safety_s": "40"})
    first, second = run_seed(3, options), run_seed(3, options)
    assert first.trace_hash == second.trace_hash
    assert first.trace == second.trace
    assert first.counts == second.counts


def test_another_seed_is_another_run() -> None:
    options = Options(safety_s=20.0)
    assert run_seed(1, options).trace_hash != run_seed(2, options).trace_hash


def test_what_a_fault_makes_a_node_do_ends_with_its_process() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.actor("A").acquire("job", ttl_ms=5_000)
        node = await stage.leader()
        before = node.disk.names()
        node.snapshot_soon()
        stage.kill(node)
        await asyncio.sleep(1.0)
        assert node.disk.names() == before
        stage.restart(node)

    play(story)


@pytest.mark.slow
def test_one_seed_is_one_run_whatever_the_hash_seed() -> None:
    seeds = ["5:3", "6:3", "7:5", "8:5"]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", HASH_PROGRAM, *seeds],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    said = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert len(said[0].splitlines()) == len(seeds)
    assert said[0] == said[1]
