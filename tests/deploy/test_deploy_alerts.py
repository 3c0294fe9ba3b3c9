"""Rules and dashboard: checked by Prometheus' own tools, and held against what a node really tells."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
from deploy_kit import DEPLOY, RULES, alerts, passes, rules, run, tool

from tenure_cluster.observe.catalogue import METRICS

TESTS = DEPLOY / "prometheus/tenure.tests.yml"
OF_OTHERS = {"up", "process_start_time_seconds", "process_open_fds", "process_max_fds"} | {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
}
"""Prometheus' own and its client library's."""


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((DEPLOY / "grafana/tenure.json").read_text(encoding="utf-8"))
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """Every query of the dashboard, with the variables that Grafana puts in."""
    dashboard = json.loads((DEPLOY / "grafana/tenure.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    found += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    return [query.replace("$__rate_interval", "1m").replace("$job", "tenure") for query in found]


def names_in(query: str) -> Iterator[str]:
    """The metrics that a query asks for."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b(?:by|on|without|ignoring)\s*\([^)]*\)", "", query)
    for name in re.findall(r"\b[a-z_][a-z0-9_]*\b(?!\s*\()", bare):
        if "_" in name or name == "up":
            yield name


def told_names() -> set[str]:
    names = set(OF_OTHERS)
    for metric in METRICS.values():
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {metric.told_as + part for part in parts}
    return names


def test_promtool_finds_nothing_in_the_rules() -> None:
    passes(tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", RULES)


def test_each_rule_fires_when_it_should_and_only_then() -> None:
    told = passes(tool("promtool"), "test", "rules", TESTS)
    assert "SUCCESS" in told


def test_a_rule_that_never_fires_would_be_noticed(tmp_path: Any) -> None:
    text = RULES.read_text(encoding="utf-8")
    broken = text.replace("expr: tenure_ready == 0", "expr: tenure_ready == 7")
    assert broken != text
    (tmp_path / RULES.name).write_text(broken, encoding="utf-8")
    (tmp_path / TESTS.name).write_text(TESTS.read_text(encoding="utf-8"), encoding="utf-8")
    assert run(tool("promtool"), "test", "rules", tmp_path / TESTS.name).returncode != 0


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    tests = TESTS.read_text(encoding="utf-8")
    assert len(alerts()) > 20
    assert [alert for alert in alerts() if f'{{alertname="{alert}"}}' not in tests] == []


def test_every_alert_says_how_bad_it_is_and_where_to_read_on() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, rule["alert"]
        assert rule["annotations"]["runbook_url"] == f"RUNBOOK.md#{rule['alert'].lower()}"


def test_the_scrape_configuration_is_valid() -> None:
    passes(tool("promtool"), "check", "config", DEPLOY / "prometheus/prometheus.yml")


@pytest.mark.parametrize("query", queries())
def test_the_dashboards_queries_are_promql(query: str) -> None:
    promql_parser.parse(query)


def test_a_query_that_is_no_promql_would_be_noticed() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        promql_parser.parse("sum by tenant (rate(tenure_renewals_total[5m])")


def test_rules_and_dashboard_ask_only_for_what_is_told() -> None:
    asked = {name for rule in rules() for name in names_in(rule["expr"])}
    asked |= {name for query in queries() for name in names_in(query)}
    assert len(asked) > 30
    assert sorted(asked - told_names()) == []


def test_every_metric_is_used_by_a_rule_or_the_dashboard() -> None:
    asked = {name for rule in rules() for name in names_in(rule["expr"])}
    asked |= {name for query in queries() for name in names_in(query)}
    used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    of_no_use = {metric.told_as for metric in METRICS.values()} - used
    # Numbers for looking closely at one node.
    assert of_no_use == {
        "tenure_operations_pending_max",
        "tenure_raft_has_leader",
        "tenure_raft_last_index",
        "tenure_raft_snapshots_installed_total",
        "tenure_raft_snapshots_made_total",
    }


def test_every_panel_says_what_it_shows_and_stands_on_no_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["title"]
    assert len({panel["id"] for panel in panels()}) == len(panels())
