"""The pages of deploy/, held against the sources: a metric, an alert or an error at start that is not there
fails."""

import re
from collections.abc import Iterator

import click
import deploy_metrics_page
import deploy_settings_page
import pytest
from deploy_kit import DEPLOY, ROOT, alerts

from tenure._cli.group import cli as client
from tenure_cluster.cli import cli
from tenure_cluster.config import SECTIONS, Config, Member
from tenure_cluster.observe.catalogue import METRICS

RUNBOOK = (DEPLOY / "RUNBOOK.md").read_text(encoding="utf-8")
ERRORS = (DEPLOY / "ERRORS.md").read_text(encoding="utf-8")

START_ERRORS = {
    "unknown setting": "config.py",
    "unknown variable": "config.py",
    "is missing (setting ": "config.py",
    "is not TOML": "config.py",
    "is below": "settings_checks.py",
    "is above": "settings_checks.py",
    "jwt.": "node.py",
    "is not loopback": "settings_checks.py",
    "is not among the members": "settings_checks.py",
    "is not what members": "settings_checks.py",
    "two members have the peer address": "settings_checks.py",
    "members are changed by ": "raft/members_file.py",
    "removed from the cluster": "raft/members_file.py",
    "http.listen": "node.py",
    "peer.listen": "node.py",
    "can't be used: ": "node.py",
    "is in use by ": "pid_file.py",
    "can't be used by ": "directory_owner.py",
    " belongs to ": "directory_owner.py",
    "are nodes of another cluster": "start_checks.py",
    "another process runs as node ": "start_checks.py",
    "the clock of this machine is ": "start_checks.py",
    "it belongs to ": "raft/recovery.py",
    "private parts of pysyncobj": "raft/engine.py",
    "journal damaged": "raft/segment.py",
    "snapshot damaged": "raft/snapshot_format.py",
}
"""What the line of each error has, and the module that says it."""


def test_every_metric_is_documented() -> None:
    written = (DEPLOY / "METRICS.md").read_text(encoding="utf-8")
    assert written == deploy_metrics_page.page(), "run: python tests/deploy/deploy_settings_page.py"


def test_every_setting_is_documented() -> None:
    for shape in (Config, Member, *SECTIONS.values()):
        silent = [
            name for name in shape.__struct_fields__ if not deploy_settings_page.documented(shape)[name]
        ]
        # The sections are documented where they are declared.
        assert [name for name in silent if name not in SECTIONS] == []
    written = (DEPLOY / "SETTINGS.md").read_text(encoding="utf-8")
    assert written == deploy_settings_page.page(), "run: python tests/deploy/deploy_settings_page.py"


@pytest.mark.parametrize("program", [cli, client], ids=["tenured", "tenure"])
def test_every_flag_and_command_says_what_it_does(program: click.Command) -> None:
    commands = list(_commands(program))
    assert len(commands) > 3
    silent = [
        f"{command.name} {parameter.name}"
        for command in commands
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help
    ]
    assert silent == []
    assert [command.name for command in commands if not command.help] == []


def test_every_command_is_on_a_page() -> None:
    pages = "".join(
        (ROOT / page).read_text(encoding="utf-8")
        for page in (
            "README.md",
            "cluster/BACKUP.md",
            "cluster/CREDENTIALS.md",
            "cluster/TLS.md",
            "deploy/RUNBOOK.md",
        )
    )
    for program in (cli, client):
        for command in _commands(program):
            if not isinstance(command, click.Group):
                assert re.search(rf"(`|tenured? (\w+ )?){command.name}\b", pages), command.name


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from _commands(inner)


def test_every_metric_says_what_it_is() -> None:
    for metric in METRICS.values():
        assert metric.name.startswith("tenure_")
        assert metric.help.endswith("."), metric.name
        assert not metric.name.endswith("_total"), metric.name


def test_every_alert_has_its_chapter_and_there_is_none_too_many() -> None:
    chapters = re.findall(r"^### (Tenure\w+)$", RUNBOOK, re.MULTILINE)
    assert sorted(chapters) == sorted(alerts())
    assert len(chapters) == len(set(chapters))


def test_every_error_at_start_is_written_down_as_it_is_said() -> None:
    for words, module in START_ERRORS.items():
        source = (ROOT / "cluster/tenure_cluster" / module).read_text(encoding="utf-8")
        assert words in source, f"{module} does not say {words!r} any more"
        assert words.strip() in ERRORS, words


def test_every_exit_code_has_its_chapter() -> None:
    from tenure_cluster import node

    codes = {node.EXIT_CONFIG, node.EXIT_START, node.EXIT_DAMAGED, node.EXIT_REMOVED, node.EXIT_FATAL}
    assert {int(code) for code in re.findall(r"^### (\d+): ", RUNBOOK, re.MULTILINE)} == codes


def test_links_lead_somewhere() -> None:
    for name in sorted(page.name for page in DEPLOY.glob("*.md")):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            there = DEPLOY / path if path else DEPLOY / name
            assert there.exists(), f"{name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in anchors, f"{name}: {target}"
