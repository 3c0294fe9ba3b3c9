"""Habits that a reader relies on, checked so that they stay true."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for folder in ("cluster/tenure_cluster", "client/tenure", "chaos/tenure_chaos", "bench", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.read_text(encoding="utf-8").lstrip().startswith('"""')
    ]
    assert silent == []


def test_no_source_file_outgrows_one_subject() -> None:
    giants = {
        str(path.relative_to(ROOT)): lines
        for folder in ("cluster", "client", "chaos", "tests", "bench", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 700
    }
    assert giants == {}


def test_the_engine_is_pinned_exactly_and_everything_else_by_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    stated = [*project["dependencies"], *(item for extra in extras.values() for item in extra)]
    outside = [item for item in stated if not item.startswith("tenure[")]
    assert "pysyncobj==0.3.17" in outside
    loose = [item for item in outside if item != "pysyncobj==0.3.17" and not re.search(r">=[\d.]+,<\d", item)]
    assert loose == []


def test_readme_links_lead_somewhere() -> None:
    dangling = [
        f"{page}: {target}"
        for page in ("README.md", "CONTRIBUTING.md", "cluster/ARCHITECTURE.md", "cluster/GUARANTEES.md")
        for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text(encoding="utf-8"))
        if "://" not in target and not ((ROOT / page).parent / target).exists()
    ]
    assert dangling == []
