"""Whole runs: every fault singly, on real processes through the real Toxiproxy; a short one through the
stand-in; and broken promises that the bench must notice."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenure_chaos.cli import main
from tenure_chaos.commands.live_mutants import VISIBLE, broken
from tenure_chaos.history_file import load
from tenure_chaos.live import folder
from tenure_chaos.live.bench import Bench
from tenure_chaos.live.cluster import NodeUnreachable
from tenure_chaos.live.faults import KINDS
from tenure_chaos.live.faults.kind import Fault
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.run import LiveReport, Strikes, run
from tenure_chaos.live.scenarios import Strike, strike_at
from tenure_chaos.mutants.catalogue import BY_NAME

pytestmark = [pytest.mark.process, pytest.mark.slow]

PATIENT = LiveOptions(leader_bound_s=60.0)
"""The machine may have much else to do."""
ON_S = 1.0
PATIENCE_S = 40.0
LONGEST_S = 400.0

CANNOT_BE_HAD = {"ring of majorities"}
"""By three nodes."""

LOOKED_AT = {
    "tokens_are_unique",
    "one_holder_at_a_time",
    "no_early_takeover",
    "one_believer_at_a_time",
    "no_update_is_lost",
    "linearizable_per_key",
    "a_renewal_never_shortens",
    "acknowledged_grants_are_in_the_log",
    "healed_nodes_have_everything",
    "linearizable_reads_are_new",
    "watchers_miss_nothing",
    "digests_are_equal",
    "committed_entries_are_final",
    "a_leader_comes_after_healing",
}
"""Checks that would prove nothing if they had found nothing to look at."""


def perform(directory: Path, options: LiveOptions, strikes: Strikes) -> LiveReport:
    said: list[str] = []
    report = asyncio.run(run(options, directory, strikes, title="a test", say=said.append))
    folder.write(report)
    print(*said, *report.violations, sep="\n")  # noqa: T201
    return report


async def strike_singly(bench: Bench) -> bool:
    """Every fault that can be had, one after the other."""
    for kind in KINDS:
        if kind.available(bench):
            fault = await begun(bench, kind)
            await asyncio.sleep(ON_S)
            await bench.end(fault)
            await somebody_leads(bench)
    return True


async def begun(bench: Bench, kind: type[Fault]) -> Fault:
    """The fault, once there is somebody to be struck."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                fault = await bench.begin(kind)
            except NodeUnreachable:  # it is still starting after the fault before
                fault = None
            if fault is not None:
                return fault
            await asyncio.sleep(0.1)


async def somebody_leads(bench: Bench) -> None:
    deadline = bench.now() + PATIENCE_S
    while await bench.leader() is None:
        assert bench.now() < deadline, "nobody leads after a fault was healed"
        await asyncio.sleep(0.05)


@pytest.mark.timeout(900)
def test_every_fault_strikes_and_heals_and_breaks_nothing(tmp_path: Path) -> None:
    options = replace(PATIENT, clients=2, programs=4, ttl_ms=(3_000,), seconds=LONGEST_S, proxies="real")
    report = perform(tmp_path, options, strike_singly)
    assert report.violations == []
    assert report.real_proxies
    history = report.history
    assert {fault.name for fault in history.faults} == {kind.name for kind in KINDS} - CANNOT_BE_HAD
    assert all(fault.ended_at < history.healed_at for fault in history.faults)
    assert history.complete
    looked_at = {verdict.name: verdict.looked_at for verdict in report.verdicts}
    assert {name for name in LOOKED_AT if not looked_at[name]} == set()
    assert len(history.elected) > 3
    killed = [code for _, _, code in report.endings if code == -9]
    assert len(killed) >= 1 + 1 + 2 + 3
    assert 70 in [code for _, _, code in report.endings]
    assert len(load(tmp_path / "history.jsonl").calls) == len(history.calls)
    page = (tmp_path / folder.PAGE).read_text(encoding="utf-8")
    assert "No violation." in page
    assert all((tmp_path / node / "log").stat().st_size for node in report.nodes)


def test_the_stand_in_serves_where_there_is_no_toxiproxy(tmp_path: Path) -> None:
    async def isolate(bench: Bench) -> bool:
        await strike_at(bench, Strike("isolate leader", 1.0, 4.0))
        await strike_at(bench, Strike("lost replies", 1.0, 2.0))
        return True

    options = replace(PATIENT, clients=1, programs=4, ttl_ms=(3_000,), seconds=60.0, proxies="standin")
    report = perform(tmp_path, options, isolate)
    assert report.violations == []
    assert not report.real_proxies
    assert "stand-in" in (tmp_path / folder.PAGE).read_text(encoding="utf-8")
    assert [fault.name for fault in report.history.faults] == ["isolate leader", "lost replies"]


@pytest.mark.parametrize("mutant", ["grant while held"])
def test_a_broken_promise_is_noticed(mutant: str, tmp_path: Path) -> None:
    async def nothing(bench: Bench) -> None:
        """The promise is broken without a fault."""

    options = replace(PATIENT, clients=2, programs=5, keys=2, ttl_ms=(3_000,), seconds=8.0, mutant=mutant)
    report = perform(tmp_path, options, nothing)
    assert broken(report) is not None


def test_a_mutant_that_is_none_is_refused_with_words() -> None:
    result = CliRunner().invoke(main, ["live-mutants", "--only", "three-headed"])
    assert result.exit_code == 2
    assert "no mutant 'three-headed'" in result.output
    assert set(VISIBLE) <= set(BY_NAME)
