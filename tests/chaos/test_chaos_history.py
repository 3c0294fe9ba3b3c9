"""A history survives its file, and ``tenure-chaos check`` says of a file what there is to say."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from chaos_story import Story
from click.testing import CliRunner, Result

from tenure_chaos.checkers import keys
from tenure_chaos.cli import main
from tenure_chaos.history import (
    AppliedEntry,
    Belief,
    Elected,
    Fault,
    History,
    NodeState,
    RaftState,
    RegisterWrite,
    Watch,
    Watched,
)
from tenure_chaos.history_file import RECORDS, Unreadable


def a_history() -> History:
    """With a record of every kind."""
    story = Story()
    grant = story.acquire("a", "k")
    story.commit(grant, "a/1 ü")
    story.release(grant)
    history = story.history
    history.faults.append(Fault("kill", "n1", 1.0))
    history.beliefs.append(Belief("a", "k", 1, 1.02, 1.2, "released"))
    history.writes.append(RegisterWrite("r", "a", 1, 1.1, True, True, 0, 0, 7))
    history.watches.append(Watch("w", 0.5, prefix="k", from_revision=1, ended_at=9.0))
    history.watched.append(Watched("w", 1.05, 1, "granted", "k", 1))
    history.elected.append(Elected("n1", 1, 0.1))
    history.raft.append(RaftState("n1", 1, 0.2, 1, "n1", 0, 0))
    history.applied.append(AppliedEntry("n1", 1, 1, "x"))
    history.digests.append(("n1", 3, "d"))
    history.final.append(NodeState("n1", 3, "d", records=(("k", 1, "a/1 ü"),), floors=(("k", 1),)))
    history.quotas = {"default": {"leases": 5}}
    history.healed_at = 1.3
    return history


def test_every_kind_of_record_survives_its_file(tmp_path: Path) -> None:
    history = a_history()
    assert all(getattr(history, name) for name, _ in RECORDS.values())
    history.save(tmp_path / "h.jsonl")
    assert History.load(tmp_path / "h.jsonl") == history
    assert [path.name for path in tmp_path.iterdir()] == ["h.jsonl"]


def test_every_field_of_a_history_is_in_its_file() -> None:
    lists = {name for name, _ in RECORDS.values()}
    of_a_list = {field.name for field in dataclasses.fields(History) if str(field.type).startswith("list[")}
    assert lists == of_a_list


def test_a_line_is_a_record_of_plain_json(tmp_path: Path) -> None:
    a_history().save(tmp_path / "h.jsonl")
    header, *records = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert header["format"] == "tenure-chaos history"
    assert header["version"] == 1
    assert {record["record"] for record in records} == set(RECORDS)


def test_a_file_without_fields_that_came_later_is_read_with_their_defaults(tmp_path: Path) -> None:
    file = tmp_path / "h.jsonl"
    a_history().save(file)
    lines = file.read_text().splitlines()
    assert '"tenant"' not in next(line for line in lines if '"record":"call"' in line).replace(
        '"asked":{"tenant"', ""
    )
    assert History.load(file).calls[0].tenant == "default"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"record":', "not JSON"),
        ('{"record": "dance"}', "no record of a known kind: 'dance'"),
        ("[]", "no record of a known kind"),
        ('{"record": "call", "number": 1}', "missing required field"),
        ('{"record": "fault", "name": "kill", "target": "n1", "began_at": "soon"}', "Expected `float`"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "h.jsonl"
    a_history().save(file)
    lines = file.read_text().splitlines()
    lines.insert(4, line)
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(Unreadable, match=why) as caught:
        History.load(file)
    assert str(caught.value).startswith(f"{file}:5: ")


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ('{"format": "something else"}', "not a tenure-chaos history"),
        ('{"format": "tenure-chaos history", "version": 2}', "reads version 1"),
        ("", "not JSON"),
        ("7", "not a tenure-chaos history"),
    ],
)
def test_another_file_is_no_history(tmp_path: Path, header: str, why: str) -> None:
    (tmp_path / "h.jsonl").write_text(header + "\n")
    with pytest.raises(Unreadable, match=why) as caught:
        History.load(tmp_path / "h.jsonl")
    assert str(caught.value).startswith(f"{tmp_path / 'h.jsonl'}:1: ")


def check(history: History, folder: Path, *options: str) -> Result:
    history.save(folder / "h.jsonl")
    return CliRunner().invoke(main, ["check", str(folder / "h.jsonl"), *options])


def test_check_says_of_every_property_how_much_was_looked_at(tmp_path: Path) -> None:
    story = Story()
    story.acquire("a", "k")
    result = check(story.history, tmp_path)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len(lines) == 20
    assert " 4  one holder at a time: holds, 1 looked at" in lines
    assert "18  Raft: unchecked: nothing of the kind" in lines


def test_check_names_what_is_broken_and_fails(tmp_path: Path) -> None:
    story = Story()
    story.acquire("a", "k", token=9)
    story.acquire("b", "other", token=5)
    result = check(story.history, tmp_path)
    assert result.exit_code == 1
    assert " 3  tokens rise: BROKEN 1 times, 4 looked at" in result.output
    assert "effect 1 grants token 5 of other after token 9" in result.output


def test_check_reports_what_the_search_could_not_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "STEPS_MAX", 1)
    story = Story()
    story.release(story.acquire("a", "k"))
    result = check(story.history, tmp_path)
    assert result.exit_code == 0
    assert " 1  linearizable per key: unchecked, 1 undecided" in result.output
    assert "undecided: k: 2 calls, given up after 2 steps" in result.output


def test_check_prints_json(tmp_path: Path) -> None:
    verdicts: list[dict[str, Any]] = json.loads(check(a_history(), tmp_path, "-o", "json").output)
    assert {verdict["property"] for verdict in verdicts} == set(range(1, 21))
    assert all(isinstance(verdict["looked_at"], int) for verdict in verdicts)


def test_check_of_what_is_no_history_is_an_error_of_its_own(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["check", str(tmp_path / "none.jsonl")])
    assert result.exit_code == 2
    assert "none.jsonl: No such file or directory" in result.stderr


def test_check_of_records_without_what_they_should_hold_is_an_error_too(tmp_path: Path) -> None:
    story = Story()
    story.acquire("a", "k")
    del story.effects[0].fields["session_id"]
    result = check(story.history, tmp_path)
    assert result.exit_code == 2
    assert "h.jsonl: nothing happens after the answer: KeyError: 'session_id'" in result.stderr
