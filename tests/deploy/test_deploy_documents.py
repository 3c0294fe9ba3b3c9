"""The pages of deploy/, held against the sources: a metric, an alert or an error at start that is not there
fails."""

import re

from deploy_kit import DEPLOY, ROOT, alerts
from deploy_metrics_page import page

from tenure_cluster.observe.catalogue import METRICS

RUNBOOK = (DEPLOY / "RUNBOOK.md").read_text(encoding="utf-8")

START_ERRORS = {
    "unknown setting": "config.py",
    "unknown variable": "config.py",
    "is missing (setting ": "config.py",
    "is not TOML": "config.py",
    "is below": "settings.py",
    "is not loopback": "settings.py",
    "is not among the members": "settings.py",
    "is not what members": "settings.py",
    "two members have the peer address": "settings.py",
    "members can't be changed yet": "raft/members_file.py",
    "http.listen": "node.py",
    "peer.listen": "node.py",
    "can't be used: ": "node.py",
    "is in use by ": "pid_file.py",
    "private parts of pysyncobj": "raft/engine.py",
    "journal damaged": "raft/segment.py",
    "snapshot damaged": "raft/snapshot_format.py",
}
"""What the line of each error has, and the module that says it."""


def test_every_metric_is_documented() -> None:
    assert (DEPLOY / "METRICS.md").read_text(encoding="utf-8") == page()


def test_every_metric_says_what_it_is() -> None:
    for metric in METRICS.values():
        assert metric.name.startswith("tenure_")
        assert metric.help.endswith("."), metric.name
        assert not metric.name.endswith("_total"), metric.name


def test_every_alert_has_its_chapter_and_there_is_none_too_many() -> None:
    chapters = re.findall(r"^### (Tenure\w+)$", RUNBOOK, re.MULTILINE)
    assert sorted(chapters) == sorted(alerts())
    assert len(chapters) == len(set(chapters))


def test_every_error_at_start_is_in_the_runbook_as_it_is_said() -> None:
    for words, module in START_ERRORS.items():
        source = (ROOT / "cluster/tenure_cluster" / module).read_text(encoding="utf-8")
        assert words in source, f"{module} does not say {words!r} any more"
        assert words.strip() in RUNBOOK, words


def test_every_exit_code_has_its_chapter() -> None:
    from tenure_cluster import node

    codes = {node.EXIT_CONFIG, node.EXIT_START, node.EXIT_DAMAGED, node.EXIT_FATAL}
    assert {int(code) for code in re.findall(r"^### (\d+): ", RUNBOOK, re.MULTILINE)} == codes


def test_links_lead_somewhere() -> None:
    for name in ("README.md", "RUNBOOK.md", "METRICS.md", "DRILL.md"):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            there = DEPLOY / path if path else DEPLOY / name
            assert there.exists(), f"{name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in anchors, f"{name}: {target}"
