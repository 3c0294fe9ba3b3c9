"""The bench notices broken promises: every mutant is caught, and the program as it is is not accused.

Runs are short and under the options that each mutant names, and each hunt begins with a seed that was known
to catch when this was written. Other seeds do after any change of the simulation, so a hunt may take more of
them, up to a bound that is far above what it ever took.
"""

import inspect
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tenure_chaos.mutants.catalogue import BY_NAME, LISTED, MUTANTS
from tenure_chaos.mutants.edits import Edit, EditDoesNotFit, find, made
from tenure_chaos.mutants.hunt import OWN_CHECKS_OFF, Catch, hunt, rules_of
from tenure_chaos.mutants.mitigations import ALL
from tenure_chaos.mutants.report import MarksMissing, mitigations_table, summary, table, write_between
from tenure_chaos.mutants.survey import Sums, Survey
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import run_seed
from tenure_cluster.lease.machine import _HANDLERS
from tenure_cluster.lease.sessions import release
from tenure_cluster.raft import mitigations

SEEDS_MAX = 60

LONG = {
    "log compacted before the snapshot is durable": "60",
    "stale read without a barrier": "40",
    "change of members before an entry of the own term": "40",
}
"""Safety phases in seconds, where a short one is too short."""

FIRST_SEEDS: dict[str, int] = {
    "stale read without a barrier": 2300,
    "change of members before an entry of the own term": 90,
    "unknown outcome called not executed": 61,
}
"""Where a hunt begins, if not with the first seed."""

UNNOTICED = (
    "entry of an earlier term committed by counting",
    "doubt forgotten by the service",
    "doubt forgotten by the client",
)
"""No rule of the bench speaks of these yet."""


def options_of(name: str) -> dict[str, str]:
    return {**BY_NAME[name].profile, "safety_s": LONG.get(name, "20")}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in UNNOTICED])
def test_a_mutant_is_caught_where_the_program_as_it_is_breaks_no_rule(name: str) -> None:
    caught = hunt(name, FIRST_SEEDS.get(name, 1), SEEDS_MAX, options_of(name))
    assert caught.caught, f"not within {SEEDS_MAX} seeds; the harness failed on {caught.failed[:1]}"
    assert any(caught.entered.get(find(edit.where).__qualname__) for edit in BY_NAME[name].edits)
    assert run_seed(caught.seed, Options.for_seed(caught.seed, options_of(name))).violations == []


@pytest.mark.parametrize("what", [*MUTANTS, *ALL], ids=lambda what: what.name)
def test_edits_fit_the_program_and_leave_it_as_it_was(what: object) -> None:
    edits = (*what.edits, *OWN_CHECKS_OFF)  # type: ignore[attr-defined]
    before = {edit.where: find(edit.where).__code__ for edit in edits}
    with made(edits):
        assert all(find(where).__code__ is not code for where, code in before.items())
    assert {edit.where: find(edit.where).__code__ for edit in edits} == before


def test_what_was_to_be_caught_from_the_beginning_is_in_the_catalogue() -> None:
    assert len(LISTED) == 14
    assert len(BY_NAME) == len(MUTANTS) >= 14
    assert MUTANTS[: len(LISTED)] == LISTED


def test_every_mitigation_of_the_engine_is_left_out_in_turn() -> None:
    assert {name for off in ALL for name in off.left_out} == mitigations.ALL
    assert all(bool(off.left_out) != bool(off.edits) for off in ALL)


# -- edits


RELEASE = "tenure_cluster.lease.sessions:release"


def test_an_edit_whose_piece_is_gone_does_not_fit() -> None:
    with pytest.raises(EditDoesNotFit, match="0 times"), made([Edit(RELEASE, "not there", "pass")]):
        pytest.fail("it was made")


def test_an_edit_whose_piece_stands_there_twice_does_not_fit() -> None:
    with pytest.raises(EditDoesNotFit, match="times"), made([Edit(RELEASE, "lease", "pass")]):
        pytest.fail("it was made")


@pytest.mark.parametrize("where", ["tenure_cluster.lease.sessions:gone", "tenure_cluster.gone:release"])
def test_an_edit_of_a_function_that_is_gone_does_not_fit(where: str) -> None:
    with pytest.raises(EditDoesNotFit, match="is not there"), made([Edit(where, "a", "b")]):
        pytest.fail("it was made")


def test_an_edit_of_what_is_no_function_does_not_fit() -> None:
    with pytest.raises(EditDoesNotFit, match="no function"):
        find("tenure_cluster.lease.machine:_HANDLERS")


def test_none_of_several_edits_is_made_if_one_does_not_fit() -> None:
    before = release.__code__
    good = Edit(RELEASE, 'end_lease(step, lease, "released")', "pass")
    with pytest.raises(EditDoesNotFit), made([good, Edit(RELEASE, "not there", "pass")]):
        pytest.fail("they were made")
    assert release.__code__ is before


def test_whoever_refers_to_a_function_gets_the_edited_one_and_its_entries_are_counted() -> None:
    body = inspect.getsource(release).partition('"""')[2].partition('"""\n')[2]
    first = body.splitlines()[0].strip()
    with made([Edit(RELEASE, first, f"return 'edited'\n    {first}")]) as entered:
        assert all(handler is not None for handler in _HANDLERS.values())
        [handler] = [handler for handler in _HANDLERS.values() if handler.__name__ == "release"]
        assert handler(None, None) == "edited"  # type: ignore[arg-type]
    assert entered == {"release": 1}


# -- reports


def catch(name: str, first_seed: int, seeds: int, *rules: str) -> Catch:
    return Catch(name, first_seed, seeds, rules, f"{rules[0]}: so" if rules else "")


def test_the_table_says_how_often_a_mutant_was_caught_and_by_what() -> None:
    name = LISTED[0].name
    catches = [
        catch(name, 1, 3, "tokens rise", "x"),
        catch(name, 101, 5, "tokens rise"),
        catch(name, 201, 500),
    ]
    [row] = [line for line in table(catches).splitlines() if line.startswith(f"| {name}")]
    assert [cell.strip() for cell in row.split("|")[3:6]] == ["2 of 3", "5 (500)", "tokens rise"]
    assert summary(catches).startswith("Caught 0 of 1 mutants, of the 1 that were listed beforehand 0")
    assert summary(catches[:2]).startswith("Caught 1 of 1 mutants, of the 1 that were listed beforehand 1")


RULES = ("durable on a quorum",)


def test_the_table_of_mitigations_says_what_breaks_without_each() -> None:
    found = Survey("sync", 1, without=Sums(seeds=9, broken=[(4, RULES), (9, RULES), (12, RULES)]))
    found.with_it = Sums(seeds=3, broken=[(12, ("another",))])
    row = mitigations_table([found]).splitlines()[-1]
    assert "| sync | D1 D2 |" in row
    assert "| 9 | 2 | 4 | durable on a quorum |" in row


def test_results_survive_being_written_down() -> None:
    caught = catch(LISTED[0].name, 1, 3, "tokens rise")
    caught.entered["release"] = 7
    assert Catch.from_plain(json.loads(json.dumps(asdict(caught)))) == caught
    found = Survey("sync", 1, without=Sums(seeds=9, broken=[(4, RULES)]))
    assert Survey.from_plain(json.loads(json.dumps(asdict(found)))) == found


def test_rules_are_named_once_in_the_order_in_which_they_were_broken() -> None:
    assert rules_of(["b: 1", "a: 2", "b: 3"]) == ("b", "a")


def test_a_table_is_written_between_its_marks_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- t:begin -->\nold\n<!-- t:end -->\nafter\n")
    write_between(page, "t", "new")
    assert page.read_text() == "before\n<!-- t:begin -->\nnew\n<!-- t:end -->\nafter\n"
    with pytest.raises(MarksMissing):
        write_between(page, "u", "new")
