"""The systemd unit, by systemd's own checkers."""

import re
from pathlib import Path

import pytest
from deploy_kit import BIN, DEPLOY, passes, run, tool

INSTALLED = "/opt/tenure/bin/tenured"
EXPOSURE_MAX = 2.0
"""Of systemd's scale, on which 10 is a unit that is not confined at all."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit as an instance, with the program where it is here."""
    template = (DEPLOY / "systemd/tenured@.service").read_text(encoding="utf-8")
    assert INSTALLED in template
    here = template.replace(INSTALLED, str(BIN / "tenured"))
    (tmp_path / "tenured@.service").write_text(here, encoding="utf-8")
    instance = tmp_path / "tenured@n1.service"
    instance.symlink_to("tenured@.service")
    return instance


def test_systemd_finds_nothing_to_say_about_the_unit(unit: Path) -> None:
    checked = run(tool("systemd-analyze"), "verify", unit)
    assert checked.stderr == ""
    assert checked.returncode == 0


def test_a_mistake_in_the_unit_would_be_noticed(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    unit.write_text(text.replace("WatchdogSec=30", "WatchdogSecs=30"), encoding="utf-8")
    assert "WatchdogSecs" in run(tool("systemd-analyze"), "verify", unit).stderr


def test_the_unit_is_confined(unit: Path) -> None:
    told = passes(tool("systemd-analyze"), "security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert found is not None, told
    assert float(found[1]) <= EXPOSURE_MAX


def test_what_can_not_be_mended_by_a_restart_is_not_restarted() -> None:
    from tenure_cluster import node

    text = (DEPLOY / "systemd/tenured@.service").read_text(encoding="utf-8")
    [codes] = re.findall(r"^RestartPreventExitStatus=(.*)$", text, re.MULTILINE)
    hopeless = {node.EXIT_CONFIG, node.EXIT_DAMAGED, node.EXIT_REMOVED}
    assert {int(code) for code in codes.split()} == hopeless


def test_the_clock_is_set_before_a_node_compares_it_with_the_others() -> None:
    """It would end with the code for what is tried again, and be left down after the fifth time."""
    text = (DEPLOY / "systemd/tenured@.service").read_text(encoding="utf-8")
    [after] = re.findall(r"^After=(.*)$", text, re.MULTILINE)
    assert "time-sync.target" in after.split()


def test_what_the_runbook_types_is_found_where_the_page_puts_it() -> None:
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    [linked] = re.findall(r"^ {4}ln -s (.*) /usr/local/bin/$", page, re.MULTILINE)
    runbook = (DEPLOY / "RUNBOOK.md").read_text(encoding="utf-8")
    typed = set(re.findall(r"(?m)^ {4}(tenured?) |`(tenured?) ", runbook))
    programs = {name for pair in typed for name in pair if name}
    assert programs
    assert {f"/opt/tenure/bin/{name}" for name in programs} <= set(linked.split())
