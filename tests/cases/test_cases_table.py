"""The table of cases says what is shown where; the docstrings of the tests say the same."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]
RINGS = {"lease": "machine", "cases": "simulation", "client": "client", "integration": "processes"}


class Row(NamedTuple):
    number: int
    rings: list[str]
    files: list[str]
    open: str


def rows() -> Iterator[Row]:
    for line in (TESTS / "cases" / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[0].isdigit():
            yield Row(int(cells[0]), words(cells[3]), [word.strip("`") for word in words(cells[4])], cells[5])


def words(cell: str) -> list[str]:
    return [word.strip() for word in cell.split(",") if word.strip()]


def numbers_of(path: Path) -> set[int]:
    """The T-numbers in the docstrings of a test file, its classes and functions."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            found.update(int(number) for number in re.findall(r"\bT(\d+)\b", docstring))
    return found


def carried() -> dict[int, set[str]]:
    """By T-number: the test files that carry it."""
    by_number: dict[int, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for number in numbers_of(path):
            by_number.setdefault(number, set()).add(path.stem)
    return by_number


def test_every_case_is_shown_where_the_table_says_or_open() -> None:
    tests = carried()
    told = {
        f"T{row.number}": [file for file in row.files if file not in tests.get(row.number, set())]
        for row in rows()
    }
    assert {case: files for case, files in told.items() if files} == {}
    assert [row.number for row in rows() if not row.files and not row.open] == []


def test_no_test_tells_of_a_case_that_is_open_or_not_in_the_table() -> None:
    shown = {row.number for row in rows() if row.files}
    assert {f"T{number}": sorted(files) for number, files in carried().items() if number not in shown} == {}


def test_rings_are_those_of_the_tests_that_are_named() -> None:
    for row in rows():
        named = {RINGS[file.split("_")[1]] for file in row.files}
        assert set(row.rings) == named, f"T{row.number}"


def test_the_table_is_whole() -> None:
    numbers = [row.number for row in rows()]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 50


def test_every_story_of_this_folder_is_in_the_table() -> None:
    named = {(row.number, file) for row in rows() for file in row.files}
    for path in sorted((TESTS / "cases").glob("test_cases_*.py")):
        if path.stem != Path(__file__).stem:
            numbers = numbers_of(path)
            assert numbers, path.stem
            assert [number for number in sorted(numbers) if (number, path.stem) not in named] == []
