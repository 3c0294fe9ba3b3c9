"""What simulated clients do: every kind of work breaks no rule by itself, and the work is hard enough that a
register without a guard loses updates.
"""

from collections import Counter
from typing import Any

import pytest

from tenure_chaos.checkers import rules
from tenure_chaos.history import Belief, History
from tenure_chaos.sim.options import WORK, Options
from tenure_chaos.sim.register import Register
from tenure_chaos.sim.run import Report, run_seed
from tenure_chaos.sim.workload import KINDS

FAULTY = Options(
    faults=("pause client", "lost replies", "kill leader", "cut clients off"),
    safety_s=60.0,
    fault_gap_s=3.0,
    snapshot_entries=50,
    duplicate_request=0.05,
    crash_client_s=20.0,
    think_s=0.3,
    margin_s=0.002,
)

DONE: dict[str, tuple[str, ...]] = {
    "hold": ("call acquire ok", "call renew ok", "call release ok"),
    "wait": ("cancelled acquire", "granted after waiting"),
    "keep": ("renewed in the background", "held to the end of the work"),
    "guard": ("call commit ok", "call delete_record ok", "call validate ok"),
    "register": ("register write accepted",),
    "session": ("call open_session ok", "call renew_session ok", "call close_session ok"),
    "batch": ("batched acquire ok", "batched renew ok", "batched commit ok", "batched release ok"),
    "share": ("granted shared", "writer among readers granted", "readers granted together"),
    "pool": ("granted permit", "slot handed on"),
    "set": ("set granted at once", "set granted after waiting"),
    "pass": ("call handover ok", "handed over to a waiter", "slot handed over"),
    "rest": ("call park ok", "call unpark ok", "slot parked", "slot taken up again"),
    "progress": ("event progress", "lease ended without progress"),
    "program": ("block of a lease left", "handle released", "call renew_session ok"),
    "look": ("call get ok", "call queue ok", "call list ok"),
    "mishap": ("call break ok", "call commit_mismatched refused stale_token", "call commit_again ok"),
    "resize": (
        "call resize ok",
        "slot granted by a resize",
        "permits out beyond the slots of a resized pool",
    ),
}
"""What each kind of work comes to, whatever else happens."""

BESIDE = {"look": "hold", "mishap": "guard"}


def run_with(kind: str, seed: int, **options: str) -> Report:
    work = ",".join([kind, *([BESIDE[kind]] if kind in BESIDE else [])])
    return run_seed(seed, FAULTY.override({"work": work, **options}))


def findings(history: History, number: int) -> list[str]:
    return [
        wrong.what for verdict in rules.judge(history) if verdict.number == number for wrong in verdict.wrongs
    ]


def test_options_and_modules_name_the_same_work() -> None:
    assert tuple(KINDS) == WORK
    assert tuple(DONE) == WORK


@pytest.mark.parametrize("kind", WORK)
def test_every_kind_of_work_is_done_and_breaks_no_rule(kind: str) -> None:
    report = run_with(kind, 2_000 + WORK.index(kind))
    assert report.violations == []
    assert report.history.complete, "something that was acquired never ended"
    assert [mark for mark in DONE[kind] if not report.counts[mark]] == []


def test_all_work_at_once_breaks_no_rule() -> None:
    counts: Counter[str] = Counter()
    for seed in range(2_100, 2_103):
        report = run_seed(seed, FAULTY.override({"work": ",".join(WORK), "clients": "6"}))
        assert report.violations == []
        counts += report.counts
    assert [kind for kind in WORK if not counts[f"work {kind}"]] == []


def test_beliefs_end_by_the_clock_by_the_holder_by_the_cluster_and_by_death() -> None:
    ended: Counter[str] = Counter()
    for seed in range(2_200, 2_206):
        report = run_seed(seed, FAULTY.override({"work": "hold,keep,program,session,mishap", "keys": "2"}))
        assert report.violations == []
        ended.update(belief.why.partition(",")[0] for belief in report.history.beliefs)
        assert all(begun_in_time(belief) for belief in report.history.beliefs)
        assert findings(report.history, 6) == []
    assert {"its own clock passed V", "released", "its process died", "lost"} <= set(ended)


def begun_in_time(belief: Belief) -> bool:
    return belief.began_at <= belief.ended_at < float("inf")


def test_two_believers_would_be_found() -> None:
    """Checks of beliefs see what this workload writes down: one that lasts too long is found."""
    history = run_with("hold", 2_300, keys="1").history
    assert findings(history, 6) == []
    for belief in history.beliefs:
        belief.ended_at += 30.0
    assert findings(history, 6) != []


REGISTERS: dict[str, Any] = {"work": "register", "keys": "1", "register_delay_s": "0.5", "safety_s": "240"}


def test_the_guard_of_a_register_keeps_what_its_twin_loses() -> None:
    report = run_seed(2_400, FAULTY.override(REGISTERS))
    assert report.violations == []
    lost = {
        guarded: [
            w for w in report.history.writes if w.guarded is guarded and w.accepted and w.read != w.found
        ]
        for guarded in (True, False)
    }
    assert lost[True] == []
    assert lost[False] != []
    assert report.counts["lost update at the unguarded register"] == len(lost[False])
    assert report.counts["late register write refused"] > 0


def test_a_register_that_its_holders_do_not_arm_loses_updates_and_that_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def arm(register: Register, token: int) -> bool:
        return True

    monkeypatch.setattr(Register, "arm", arm)
    wrong: list[str] = []
    for seed in range(2_400, 2_410):
        wrong += findings(run_seed(seed, FAULTY.override(REGISTERS)).history, 7)
        if wrong:
            break
    assert wrong != []


def test_a_fault_of_the_workload_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(program: object) -> None:
        raise ZeroDivisionError("of the harness")

    monkeypatch.setitem(KINDS, "guard", broken)  # type: ignore[arg-type]
    report = run_seed(2_500, Options(safety_s=5.0, work=("guard",), clients=1))
    assert any("the workload runs" in violation for violation in report.violations)
