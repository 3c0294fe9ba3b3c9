"""The site of all pages: it is built without a warning, and a link that leads nowhere would be noticed."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("bench", "chaos", "client", "cluster", "deploy", "docs", "examples", "tests")


def build(directory: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's pages and what they link to, for spoiling."""
    directory = tmp_path_factory.mktemp("repository")
    for name in COPIED:
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for page in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(page, directory)
    return directory


def test_the_site_is_built_without_a_warning_and_has_every_page(tmp_path: Path) -> None:
    built = build(ROOT, tmp_path / "site")
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    tracked = [
        path.relative_to(ROOT)
        for folder in (".", *COPIED)
        for path in ((ROOT / folder).rglob("*.md") if folder != "." else ROOT.glob("*.md"))
    ]
    assert len(tracked) > 25
    for page in tracked:
        there = page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")
        assert (tmp_path / "site" / there).exists(), page


@pytest.mark.parametrize(
    ("page", "line", "complaint"),
    [
        ("deploy/RUNBOOK.md", "[x](#no-such-chapter)", "no-such-chapter"),
        ("deploy/RUNBOOK.md", "[x](../cluster/TLS.md#no-such-chapter)", "no-such-chapter"),
        ("README.md", "[x](deploy/NOTHING.md)", "deploy/NOTHING.md"),
        ("README.md", "[x](no-such-directory/)", "no-such-directory/"),
    ],
)
def test_a_link_that_leads_nowhere_fails_it(
    copied: Path, tmp_path: Path, page: str, line: str, complaint: str
) -> None:
    before = (copied / page).read_text(encoding="utf-8")
    try:
        (copied / page).write_text(f"{before}\n{line}\n", encoding="utf-8")
        built = build(copied, tmp_path / "site")
    finally:
        (copied / page).write_text(before, encoding="utf-8")
    assert built.returncode != 0
    assert [line for line in built.stderr.splitlines() if "WARNING" in line and complaint in line]


def test_a_page_that_nothing_leads_to_fails_it(copied: Path, tmp_path: Path) -> None:
    lost = copied / "deploy/LOST.md"
    lost.write_text("# Lost\n", encoding="utf-8")
    try:
        built = build(copied, tmp_path / "site")
    finally:
        lost.unlink()
    assert built.returncode != 0
    assert "deploy/LOST.md" in built.stderr


def test_every_kind_of_bad_link_is_a_warning() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["strict"] is True
    assert set(settings["validation"]["links"].values()) == {"warn"}
    assert set(settings["validation"]["links"]) == {
        "not_found",
        "anchors",
        "absolute_links",
        "unrecognized_links",
    }
    assert set(settings["validation"]["nav"].values()) == {"warn"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(item.startswith("mkdocs>=") for item in project["optional-dependencies"]["dev"])
