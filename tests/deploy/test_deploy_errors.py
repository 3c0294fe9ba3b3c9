"""ERRORS.md holds every refusal and every error at start, and none that there isn't.

The errors at start are found in the sources: every message of the exceptions that end a start, with `…` for
what is put in. The page names each by words that stand in it.
"""

import ast
import re
from collections.abc import Iterator

import pytest
from deploy_kit import DEPLOY, ROOT

from tenure import _problems
from tenure_cluster import node
from tenure_cluster.service.errors import CODES

PAGE = (DEPLOY / "ERRORS.md").read_text(encoding="utf-8")
SOURCES = ROOT / "cluster/tenure_cluster"

EXCEPTIONS = {
    2: ("ConfigError", "TlsError", "MembersDiffer"),
    3: ("DirectoryInUse", "NodeRuns", "PackageNotAudited"),
}
"""By the exit code that they come to; see node.py and cli.py. DevError is of `tenured dev`, and the damages
of code 4 are documented as one."""

SAID_BY_OTHERS = {
    "No such file or directory",
    "Permission denied",
    "Address already in use",
    "Cannot assign requested address",
    "No space left on device",
    "Read-only file system",
    "expected",
}
"""Words of the system and of the library that reads settings."""

NO_WORDS_OF_OUR_OWN = {"…: …", "…=…: …", "…", "…: ……", "… = …: …", "data_dir = …: …"}
"""Messages that only pass on what somebody else says."""

SAID_IN_PARTS = {
    "another process runs as node …, and was there before",
    "… are nodes of another cluster: they refuse this node",
    "the clock of this machine is …: set it",
    "data_dir = … can't be used by …: … belongs to …",
}
"""Put together in start_checks.py and directory_owner.py; test_deploy_documents.py holds their words against
these."""

WITHIN_ANOTHER = "every caller has all rights: set auth.required…; or set …"
"""A part of the message that has `is not loopback`."""


def chapter(title: str) -> str:
    """A chapter of the page without its sub-chapters' titles."""
    found = re.search(rf"^(#+) {re.escape(title)}$\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[2]


def rows(text: str) -> list[list[str]]:
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    assert found
    return found


def words_of(title: str) -> set[str]:
    """What a chapter names its errors by."""
    return {
        word
        for cells in rows(chapter(title))
        for word in re.findall(r"`([^`]+)`", cells[0])
        if re.search(r"[a-z]{2} |[a-z]+ =|: $| [a-z]|^names$|^expected$|damaged", word)
    }


def as_written(node: ast.expr) -> str:
    """A message with … for what is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(as_written(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return as_written(node.left) + as_written(node.right)
    return "…"


def messages(*exceptions: str) -> Iterator[str]:
    """What the sources say in them."""
    for path in sorted(SOURCES.rglob("*.py")):
        if ("dev" in path.relative_to(SOURCES).parts) != ("DevError" in exceptions):
            continue  # `tenured dev` says in its own words what is wrong with a configuration
        for part in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(part, ast.Call) and part.args:
                name = (
                    part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
                )
                if name in exceptions:
                    yield as_written(part.args[-1] if name == "PackageNotAudited" else part.args[0])


def start_errors(code: int) -> Iterator[str]:
    """Those that node.py itself forms."""
    for part in ast.walk(ast.parse((SOURCES / "node.py").read_text(encoding="utf-8"))):
        if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "StartError":
            exit_code = getattr(part.args[1], "id", "")
            if exit_code and getattr(node, exit_code) == code:
                yield as_written(part.args[0])


def setting_faults() -> Iterator[str]:
    """What is found wrong with settings: every text of the checks."""
    trees = [
        ast.parse((SOURCES / of).read_text(encoding="utf-8")) for of in ("addresses.py", "settings_checks.py")
    ]
    for function in (part for tree in trees for part in ast.walk(tree)):
        if isinstance(function, ast.FunctionDef) and function.name == "split_address":
            yield from (
                as_written(part.args[0])
                for part in ast.walk(function)
                if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "ValueError"
            )
        if isinstance(function, ast.FunctionDef) and function.name.endswith("_faults"):
            for part in ast.walk(function):
                if isinstance(part, ast.JoinedStr) and " " in (text := as_written(part)):
                    yield text


def said_at_start(code: int) -> set[str]:
    said = {*messages(*EXCEPTIONS[code]), *start_errors(code)}
    if code == 2:
        said |= set(setting_faults()) - {WITHIN_ANOTHER}
    if code == 3:
        said.add("data directory … is in use by …")  # formed in NodeRuns itself
        said |= SAID_IN_PARTS
    return said - NO_WORDS_OF_OUR_OWN


def test_every_code_has_its_row_and_there_is_none_too_many() -> None:
    [*_, table] = re.split(r"^\| code \|", chapter("Answers"), flags=re.MULTILINE)
    found = [cells for cells in rows(table) if cells[0].startswith("`")]
    assert {cells[0].strip("`"): int(cells[1]) for cells in found} == {
        code: status for code, (status, _) in CODES.items()
    }
    assert len(found) == len(CODES)
    for code, _, again, happened, do in found:
        assert happened.endswith("."), code
        assert len(do) > 3, code
        assert again in ("no", "later", "yes", "look"), code
    again = {cells[0].strip("`"): cells[2] for cells in found}
    # As the client has it.
    assert {code for code in again if again[code] == "yes"} == _problems.NOT_EXECUTED
    assert {code for code in again if again[code] == "look"} == _problems.UNKNOWN
    assert {code for code in again if again[code] == "later"} == {"quota"}


@pytest.mark.parametrize(
    ("code", "title"),
    [(2, "Exit code 2: the configuration"), (3, "Exit code 3: it could not start")],
)
def test_every_error_at_start_has_its_row_and_there_is_none_too_many(code: int, title: str) -> None:
    words, said = words_of(title), said_at_start(code)
    assert len(said) > (20 if code == 2 else 3)
    assert [message for message in sorted(said) if not any(word in message for word in words)] == []
    ours = words - SAID_BY_OTHERS
    assert len(ours) > 3
    # A member's name, and the like, stand where the sources have `…`.
    assert [word for word in sorted(ours) if not any(word in message for message in said)] == []


def test_every_error_of_tenured_dev_has_its_row_and_there_is_none_too_many() -> None:
    words = words_of("tenured dev")
    said = {text for text in messages("DevError") if re.search("[a-z]{3}", text)}
    layout = (SOURCES / "dev/layout.py").read_text(encoding="utf-8")
    assert [message for message in sorted(said) if not any(word in message for word in words)] == []
    assert [
        word for word in sorted(words) if word not in layout and not any(word in text for text in said)
    ] == []


def test_the_page_has_a_chapter_for_each_exit_code_of_a_start() -> None:
    codes = {int(code) for code in re.findall(r"^### Exit code (\d+): ", PAGE, re.MULTILINE)}
    assert codes == {node.EXIT_CONFIG, node.EXIT_START, node.EXIT_DAMAGED, node.EXIT_REMOVED}


def test_a_message_that_the_page_does_not_have_would_be_noticed() -> None:
    words = words_of("Exit code 2: the configuration")
    assert not any(word in "colour = … is not one that a node may have" for word in words)
