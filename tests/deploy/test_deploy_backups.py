"""Backups by the clock: the systemd timer and the chart's CronJob, by their checkers and as they are run."""

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy_kit import BIN, DEPLOY, passes, run, tool

CHART = DEPLOY / "helm/tenure"
UNITS = DEPLOY / "systemd"
KUBERNETES = ("1.27.0", "1.33.0")
EXPOSURE_MAX = 2.0


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The two units side by side, with the program where it is here."""
    service = (UNITS / "tenure-backup.service").read_text(encoding="utf-8")
    assert "/opt/tenure/bin/tenure " in service
    here = service.replace("/opt/tenure/bin/tenure", str(BIN / "tenure"))
    (tmp_path / "tenure-backup.service").write_text(here, encoding="utf-8")
    timer = (UNITS / "tenure-backup.timer").read_text(encoding="utf-8")
    (tmp_path / "tenure-backup.timer").write_text(timer, encoding="utf-8")
    return tmp_path


def test_systemd_finds_nothing_to_say_about_the_timer_and_its_service(units: Path) -> None:
    checked = run(tool("systemd-analyze"), "verify", units / "tenure-backup.timer")
    assert checked.stderr == ""
    assert checked.returncode == 0


def test_a_mistake_in_the_timer_would_be_noticed(units: Path) -> None:
    timer = units / "tenure-backup.timer"
    timer.write_text(timer.read_text().replace("OnCalendar=hourly", "OnCalendar=hourlyish"), encoding="utf-8")
    assert "hourlyish" in run(tool("systemd-analyze"), "verify", timer).stderr


def test_the_backup_is_confined(units: Path) -> None:
    told = passes(
        tool("systemd-analyze"), "security", "--offline=true", "--no-pager", units / "tenure-backup.service"
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert found is not None, told
    assert float(found[1]) <= EXPOSURE_MAX


def recorder(directory: Path) -> Path:
    """A `tenure` that only writes the file that it is asked for."""
    program = directory / "tenure"
    program.write_text('#!/bin/sh\n[ "$1 $2" = "backup save" ] && echo saved > "$3"\n', encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_what_the_service_runs_makes_a_file_of_the_present_and_drops_the_old_ones(tmp_path: Path) -> None:
    """Its commands, as systemd would unfold them."""
    state = tmp_path / "state"
    state.mkdir()
    (state / ".20200102T000000Z.backup.7.part").write_text("of one that is under way")
    for name in ("20200101T000000Z.backup", "notes.txt", ".20200101T000000Z.backup.7.part"):
        (state / name).write_text("")
        os.utime(state / name, (0, 0))
    text = (UNITS / "tenure-backup.service").read_text(encoding="utf-8")
    for line in ("ExecStartPre", "ExecStart", "ExecStartPost"):
        [command] = re.findall(rf"^{line}=-?/bin/sh -c '(.*)'$", text, re.MULTILINE)
        unfolded = command.replace("%%", "%").replace("$$", "$").replace("$STATE_DIRECTORY", str(state))
        unfolded = unfolded.replace("/opt/tenure/bin/tenure", str(recorder(tmp_path)))
        passes("/bin/sh", "-c", unfolded)
    [unfinished, made, notes] = sorted(path.name for path in state.iterdir())
    assert unfinished == ".20200102T000000Z.backup.7.part"
    assert re.fullmatch(r"\d{8}T\d{6}Z\.backup", made)
    assert notes == "notes.txt"


def manifests(*values: str) -> list[dict[str, Any]]:
    sets = [part for value in ("backup.enabled=true", *values) for part in ("--set", value)]
    rendered = passes(
        tool("helm"),
        "template",
        "prod",
        CHART,
        "--namespace",
        "leases",
        "--kube-version",
        KUBERNETES[-1],
        *sets,
    )
    return [item for item in yaml.safe_load_all(rendered) if item]


def one(kind: str, *values: str, name: str = "") -> dict[str, Any]:
    [found] = [
        item for item in manifests(*values) if item["kind"] == kind and name in item["metadata"]["name"]
    ]
    return found


def job_pod(*values: str) -> dict[str, Any]:
    pod = one("CronJob", *values)["spec"]["jobTemplate"]["spec"]["template"]
    assert isinstance(pod, dict)
    return pod


@pytest.mark.parametrize("values", [(), ("tls.secretName=certificates", "backup.credentialSecret=admin")])
def test_the_manifests_with_backups_are_valid(tmp_path: Path, values: tuple[str, ...]) -> None:
    path = tmp_path / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(manifests(*values)), encoding="utf-8")
    for version in KUBERNETES:
        passes(tool("kubernetes-validate"), "--strict", "-k", version, path)


def test_there_are_none_unless_they_are_asked_for() -> None:
    rendered = passes(tool("helm"), "template", "prod", CHART, "--kube-version", KUBERNETES[-1])
    assert "CronJob" not in rendered


def test_a_backup_s_pod_is_none_of_the_nodes_and_may_call_them() -> None:
    made = job_pod()
    labels = made["metadata"]["labels"]
    for item in manifests():
        selector = item.get("spec", {}).get("selector")
        if item["kind"] == "Service":
            assert not selector.items() <= labels.items()
    policy = one("NetworkPolicy", "networkPolicy.clients=null")
    admitted = [
        source["podSelector"]["matchLabels"]
        for rule in policy["spec"]["ingress"]
        for source in rule["from"] or []
        if {"protocol": "TCP", "port": "http"} in rule["ports"]
    ]
    assert any(selector.items() <= labels.items() for selector in admitted)


def test_a_backup_s_pod_is_confined_and_asks_every_node() -> None:
    spec = job_pod("tls.secretName=certificates", "backup.credentialSecret=admin")["spec"]
    [container] = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    given = {item["name"]: item for item in container["env"]}
    assert given["TENURE_ENDPOINTS"]["value"].count("https://") == 3
    assert given["TENURE_CREDENTIAL"]["valueFrom"]["secretKeyRef"] == {"name": "admin", "key": "credential"}
    assert given["TENURE_CA_FILE"]["value"] == "/etc/tenure/tls/ca.crt"
    [tls] = [volume for volume in spec["volumes"] if volume["name"] == "tls"]
    assert [item["key"] for item in tls["secret"]["items"]] == ["ca.crt"], "no node's key goes there"


def test_what_the_job_runs_keeps_so_many_and_drops_the_oldest(tmp_path: Path) -> None:
    [container] = job_pod("backup.keep=2")["spec"]["containers"]
    [shell, flags, script] = container["command"]
    backups = tmp_path / "backups"
    backups.mkdir()
    for year in ("2020", "2021", "2022"):
        (backups / f"{year}0101T000000Z.backup").write_text("")
    (backups / ".20200101T000000Z.backup.7.part").write_text("")
    os.utime(backups / ".20200101T000000Z.backup.7.part", (0, 0))
    recorder(tmp_path)
    here = script.replace("/backups", str(backups)).replace("tenure backup", f"{tmp_path}/tenure backup")
    passes(shell, flags, here)
    left = sorted(path.name for path in backups.iterdir())
    assert len(left) == 2
    assert left[0] == "20220101T000000Z.backup"
    failing = here.replace(f"{tmp_path}/tenure backup", "false backup")
    assert run(shell, flags, failing).returncode != 0
    assert sorted(path.name for path in backups.iterdir()) == left, "what there is stays"


@pytest.mark.parametrize("value", ["backup.keep=0", "backup.schedule=hourly", "backup.every=1h"])
def test_values_that_make_no_backups_are_refused(value: str) -> None:
    ended = run(tool("helm"), "template", "prod", CHART, "--kube-version", KUBERNETES[-1], "--set", value)
    assert ended.returncode != 0
    assert "backup" in ended.stderr
