"""The audit's chain as anybody can verify it, from records alone."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tenure.audit import AuditBroken, End, hash_of, verify, verify_lines
from tenure.cli import main


def chain(count: int, prev: str = "0" * 64, first: int = 1) -> list[dict[str, Any]]:
    records = []
    for seq in range(first, first + count):
        record: dict[str, Any] = {"seq": seq, "at": f"at {seq}", "key": f"k/{seq}", "count": 1, "prev": prev}
        record["hash"] = prev = hash_of(record)
        records.append(record)
    return records


RECORDS = chain(6)


def test_a_chain_is_verified_and_its_end_told() -> None:
    assert verify(RECORDS) == End(6, RECORDS[-1]["hash"])
    assert verify([]) == End(0, "")
    assert verify([], End(3, "x")) == End(3, "x")


def test_a_part_is_a_chain_and_continues_what_was_verified() -> None:
    end = verify(RECORDS[:3])
    assert verify(RECORDS[3:], end) == verify(RECORDS)
    assert verify(RECORDS[2:5]).seq == 5


def test_the_hash_is_what_it_always_was() -> None:
    """Exports that lie somewhere must be verifiable for ever."""
    record = {"seq": 1, "at": "x", "key": 'é\u2028"\\\x01', "token": 7, "prev": "0" * 64, "hash": "y"}
    assert hash_of(record) == "756b3d9f25b8c96947eab183a71264398411cc3bf67ffd22fc692e054bf3bf3b"


@pytest.mark.parametrize(
    ("what", "seq"),
    [("changed", 3), ("left out", 4), ("swapped", 4), ("added", 3), ("doubled", 3), ("no number", 3)],
)
def test_whatever_is_done_to_it_is_found(what: str, seq: int) -> None:
    records = copy.deepcopy(RECORDS)
    if what == "changed":
        records[2]["key"] = "another"
    elif what == "left out":
        del records[2]
    elif what == "swapped":
        records[2], records[3] = records[3], records[2]
    elif what == "added":
        records.insert(2, {**records[2], "key": "another"})
    elif what == "doubled":
        records.insert(3, records[2])
    else:
        del records[2]["seq"]
    with pytest.raises(AuditBroken) as raised:
        verify(records)
    assert raised.value.seq == seq


def test_a_record_with_a_right_hash_of_its_own_does_not_fit_another_chain() -> None:
    other = chain(3, prev="1" * 64, first=4)
    assert verify(other).seq == 6
    with pytest.raises(AuditBroken, match="does not continue"):
        verify([*RECORDS[:3], *other])
    with pytest.raises(AuditBroken, match="does not continue"):
        verify(other, verify(RECORDS[:3]))


def test_when_it_was_for_people_is_no_part_of_the_hash() -> None:
    records = copy.deepcopy(RECORDS)
    records[2]["at"] = "another way to write the same time"
    assert verify(records).seq == 6


def exported(records: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(record, separators=(",", ":")) + "\n" for record in records]


def test_an_export_is_verified_line_by_line() -> None:
    assert verify_lines(exported(RECORDS)) == verify(RECORDS)
    assert verify_lines(exported(RECORDS[3:]), verify(RECORDS[:3])) == verify(RECORDS)
    assert verify_lines([]) == End(0, "")


@pytest.mark.parametrize("line", ["{", "[]", "", "7", "\xff"])
def test_a_line_that_is_no_record_is_named(line: str) -> None:
    lines = [*exported(RECORDS[:2]), line + "\n", *exported(RECORDS[3:])]
    with pytest.raises(AuditBroken, match="line 3 is no record"):
        verify_lines(lines)


def command(file: Path, lines: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and standard error of `tenure audit --file`."""
    file.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["audit", "--file", str(file)])
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().err


def test_the_line_that_was_changed_is_named_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, lines = tmp_path / "audit.jsonl", exported(RECORDS)
    assert command(file, lines, capsys) == (0, f"verified up to 6:{RECORDS[-1]['hash']}\n")
    code, said = command(file, [*lines[:3], lines[3].replace("k/4", "k/9"), *lines[4:]], capsys)
    assert code == 1
    assert "line 4: record 4 is not what was recorded" in said
    code, said = command(file, [*lines[:4], *lines[5:]], capsys)
    assert code == 1
    assert "line 5: record 6 comes behind 4: what was between is missing" in said
