"""One version number: pyproject.toml has it, and every other place follows."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

FOLLOWERS = {
    "cluster/tenure_cluster/__init__.py": r'^__version__ = "(.+)"$',
    "client/tenure/__init__.py": r'^__version__ = "(.+)"$',
    "deploy/helm/tenure/Chart.yaml": r'^(?:version: |appVersion: ")([\d.]+)"?$',
    "deploy/compose/compose.yaml": r"image: tenure:(\S+)",
    "deploy/Containerfile": r"-t tenure:(\S+)",
    "deploy/README.md": r"-t tenure:(\S+)",
}
"""Where the number stands too, and how."""


@pytest.mark.parametrize("path", FOLLOWERS)
def test_every_place_has_the_version_of_the_project(path: str) -> None:
    found = re.findall(FOLLOWERS[path], (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    assert set(found) == {VERSION}


def test_no_other_place_names_an_image_or_a_version_of_its_own() -> None:
    elsewhere = [
        str(path.relative_to(ROOT))
        for folder in ("cluster", "client", "chaos", "deploy", "docs")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".yaml", ".yml", ".tpl", ".service", ".md"}
        and str(path.relative_to(ROOT)) not in FOLLOWERS
        and re.search(r"__version__ = |\btenure:\d+\.\d+", path.read_text(encoding="utf-8"))
    ]
    assert elsewhere == []


def test_a_version_is_a_number_that_the_changelog_may_name() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    named = re.findall(r"^## (\d+\.\d+\.\d+), \d{4}-\d{2}-\d{2}$", changelog, re.MULTILINE)
    assert re.search(r"^## Unreleased$", changelog, re.MULTILINE)
    assert re.findall(r"^## (.+)$", changelog, re.MULTILINE)[0] == "Unreleased"
    assert len(named) == len(re.findall(r"^## ", changelog, re.MULTILINE)) - 1
    assert named in ([], sorted(named, key=lambda number: [*map(int, number.split("."))], reverse=True))
    assert not named or named[0] == VERSION
