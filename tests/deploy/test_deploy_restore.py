"""What the runbook types to restore a backup fills the directory on which the node will start. A unit and a
pod tell it to the node by a variable, which whoever restores by hand does not have."""

import re
import shlex
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from deploy_kit import DEPLOY, passes, tool

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))

from backup_files import write_backup

from tenure_cluster.cli import cli
from tenure_cluster.config import load

RUNBOOK = (DEPLOY / "RUNBOOK.md").read_text(encoding="utf-8")
EXAMPLE = DEPLOY / "systemd/n1.toml"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return write_backup(tmp_path / "orders.backup", made_wall_ms=time.time_ns() // 1_000_000)


def units_directory(node: str) -> str:
    unit = (DEPLOY / "systemd/tenured@.service").read_text(encoding="utf-8")
    [found] = re.findall(r"TENURE_DATA_DIR=(\S+)", unit)
    [state] = re.findall(r"^StateDirectory=(\S+)$", unit, re.MULTILINE)
    assert found == f"/var/lib/{state}"
    return found.replace("%i", node)


def test_the_example_has_the_directory_that_the_unit_gives() -> None:
    config = load(EXAMPLE, {})
    assert str(config.data_dir) == units_directory(config.node_id)


def test_the_command_for_the_unit_fills_the_units_directory(tmp_path: Path, backup: Path) -> None:
    [typed] = re.findall(
        r"^ {4}runuser -u tenure -- /opt/tenure/bin/tenured (restore .*)$", RUNBOOK, re.MULTILINE
    )
    # An example of before, which said nothing of the directory: the command says it by itself.
    example = re.sub(r"(?m)^data_dir = .*\n", "", EXAMPLE.read_text(encoding="utf-8"))
    (tmp_path / "n1.toml").write_text(example, encoding="utf-8")
    here = tmp_path / "n1"
    for old, new in (
        ("orders.backup", backup),
        ("/etc/tenure/n1.toml", tmp_path / "n1.toml"),
        (units_directory("n1"), here),
    ):
        assert old in typed
        typed = typed.replace(old, str(new))
    here.mkdir()
    done = CliRunner().invoke(cli, [*shlex.split(typed), "--from-cluster", "orders"])
    assert done.exit_code == 0, done.output
    assert any("snapshot" in path.name for path in here.iterdir())


def test_the_commands_for_the_chart_fill_the_pods_directory(tmp_path: Path, backup: Path) -> None:
    typed = re.findall(r"kubectl -n tenure exec tenure-\$i -- (mv|tenured) (.*?); done", RUNBOOK)
    assert [program for program, _ in typed] == ["mv", "tenured"]
    made = passes(
        *(tool("helm"), "template", "tenure", DEPLOY / "helm/tenure", "--namespace", "tenure"),
        *("--set", "maintenance=true"),
    )
    [pod] = [
        item["spec"]["template"]["spec"]
        for item in yaml.safe_load_all(made)
        if item and item["kind"] == "StatefulSet"
    ]
    [container] = pod["containers"]
    settings = {item["name"]: item.get("value", "tenure-0") for item in container["env"]}
    directory = settings["TENURE_DATA_DIR"]
    assert typed[0][1].split() == [directory, f"{directory}.old"]
    assert any(directory.startswith(mount["mountPath"] + "/") for mount in container["volumeMounts"])

    settings["TENURE_DATA_DIR"] = str(tmp_path / "data")
    arguments = typed[1][1].replace("/var/lib/tenure/restore.backup", str(backup)).split()
    done = CliRunner(env=settings).invoke(cli, [*arguments, "--from-cluster", "orders"])
    assert done.exit_code == 0, done.output
    assert list((tmp_path / "data").iterdir())


def test_in_maintenance_a_pod_runs_no_node_and_is_left_alone() -> None:
    made = passes(tool("helm"), "template", "tenure", DEPLOY / "helm/tenure", "--set", "maintenance=true")
    [pod] = [
        item["spec"]["template"]["spec"]
        for item in yaml.safe_load_all(made)
        if item and item["kind"] == "StatefulSet"
    ]
    [container] = pod["containers"]
    assert "tenured" not in str(container["command"])
    assert "args" not in container
    assert "livenessProbe" not in container, "it would be started anew again and again"
    assert "startupProbe" not in container
    assert "readinessProbe" in container, "or calls would be sent to it"
