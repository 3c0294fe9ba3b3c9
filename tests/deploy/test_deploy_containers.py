"""The Containerfile and the compose file."""

from pathlib import Path

import yaml
from deploy_kit import DEPLOY, ROOT, passes, run, tool

from tenure_cluster.config import load

COMPOSE = DEPLOY / "compose/compose.yaml"


def test_hadolint_finds_nothing() -> None:
    assert passes(tool("hadolint"), DEPLOY / "Containerfile") == ""


def test_a_mistake_in_the_containerfile_would_be_noticed(tmp_path: Path) -> None:
    worse = tmp_path / "Containerfile"
    worse.write_text((DEPLOY / "Containerfile").read_text(encoding="utf-8") + "RUN cd /tmp\n")
    assert "DL3003" in run(tool("hadolint"), worse).stdout


def test_what_the_image_is_built_from_is_not_left_out() -> None:
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
    copied = {
        source
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    let_in = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    assert copied == let_in
    assert all((ROOT / source).exists() for source in copied)


def test_the_image_runs_as_an_ordinary_user() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert "\nUSER 10001:10001\n" in text


def test_the_compose_file_is_one_by_its_specification() -> None:
    passes(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_a_mistake_in_the_compose_file_would_be_noticed(tmp_path: Path) -> None:
    worse = tmp_path / "compose.yaml"
    worse.write_text(COMPOSE.read_text(encoding="utf-8").replace("read_only: true", "readonly: true"))
    checked = run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", worse)
    assert checked.returncode != 0
    assert "readonly" in checked.stdout


def test_the_nodes_of_the_compose_file_are_confined_and_keep_their_data() -> None:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    nodes = {name: service for name, service in services.items() if "profiles" not in service}
    assert sorted(nodes) == ["n1", "n2", "n3"]
    for name, node in nodes.items():
        assert node["read_only"] is True
        assert node["cap_drop"] == ["ALL"]
        assert node["security_opt"] == ["no-new-privileges:true"]
        assert node["volumes"] == [f"{name}:/var/lib/tenure"]
        assert all(port.startswith("127.0.0.1:") for port in node["ports"])


def test_the_server_takes_the_compose_files_settings_and_all_nodes_agree() -> None:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    configs = [load(None, services[name]["environment"]) for name in ("n1", "n2", "n3")]
    assert {config.node_id for config in configs} == {"n1", "n2", "n3"}
    assert configs[0].members == configs[1].members == configs[2].members
    assert sorted(configs[0].members) == ["n1", "n2", "n3"]
    for config in configs:
        [published] = services[config.node_id]["ports"]
        assert config.http.advertise == f"http://{published.removesuffix(':7601')}"


def test_the_example_configuration_is_one() -> None:
    config = load(DEPLOY / "systemd/n1.toml", {"TENURE_DATA_DIR": "/var/lib/tenure/n1"})
    assert config.node_id == "n1"
    assert sorted(config.members) == ["n1", "n2", "n3"]
