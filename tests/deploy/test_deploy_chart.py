"""The Helm chart: linted, rendered in each of its forms, and every manifest checked strictly."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy_kit import DEPLOY, passes, run, tool

from tenure_cluster.config import load

CHART = DEPLOY / "helm/tenure"
KUBERNETES = ("1.27.0", "1.33.0")
"""The oldest for which the manifests are checked, and a present one."""

FORMS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "one node": ("replicas=1",),
    "five nodes": ("replicas=5",),
    "tls": ("tls.secretName=certificates",),
    "credentials": (
        "tls.secretName=certificates",
        "insecure=false",
        "settings.TENURE_AUTH_REQUIRED=true",
        "settings.TENURE_METRICS_OPEN=true",
    ),
    "loose": ("antiAffinity=none", "networkPolicy.enabled=false", "persistence.storageClass=fast"),
    "maintenance": ("maintenance=true",),
    "soft": ("antiAffinity=soft", "nodeSelector.disk=ssd", "settings.TENURE_LOG_LEVEL=debug"),
}


def rendered(*values: str, version: str = KUBERNETES[-1], name: str = "prod") -> str:
    sets = [
        part
        for value in values
        for part in ("--set-string" if value.startswith("settings.") else "--set", value)
    ]
    return passes(
        tool("helm"), "template", name, CHART, "--namespace", "leases", "--kube-version", version, *sets
    )


def manifests(*values: str, name: str = "prod") -> dict[str, Any]:
    """By kind and name."""
    found = [item for item in yaml.safe_load_all(rendered(*values, name=name)) if item]
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in found}


def pod(made: dict[str, Any]) -> dict[str, Any]:
    [found] = [item for key, item in made.items() if key.startswith("StatefulSet/")]
    spec = found["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def test_helm_finds_nothing_to_complain_about() -> None:
    told = passes(tool("helm"), "lint", "--strict", CHART)
    assert "WARNING" not in told
    assert "ERROR" not in told


@pytest.mark.parametrize("form", FORMS)
def test_every_manifest_of_every_form_is_valid(form: str, tmp_path: Path) -> None:
    for version in KUBERNETES:
        path = tmp_path / "manifests.yaml"
        path.write_text(rendered(*FORMS[form], version=version), encoding="utf-8")
        told = passes(tool("kubernetes-validate"), "--strict", "-k", version, path)
        assert told.count("passed") == path.read_text(encoding="utf-8").count("\nkind: ")


def test_a_mistake_in_a_manifest_would_be_noticed(tmp_path: Path) -> None:
    path = tmp_path / "manifests.yaml"
    path.write_text(rendered().replace("readOnlyRootFilesystem", "readOnlyRootFileSystem"), encoding="utf-8")
    checked = run(tool("kubernetes-validate"), "--strict", "-k", KUBERNETES[-1], path)
    assert checked.returncode != 0
    assert "readOnlyRootFileSystem" in checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("replicas=2", "replicas"),
        ("antiAffinity=maybe", "antiAffinity"),
        ("settings.PATH=x", "PATH"),
        ("replica=3", "replica"),
        ("preStopSeconds=60", "terminationGracePeriodSeconds"),
    ],
)
def test_values_that_make_no_cluster_are_refused(value: str, named: str) -> None:
    ended = run(tool("helm"), "template", "prod", CHART, "--kube-version", KUBERNETES[-1], "--set", value)
    assert ended.returncode != 0
    assert re.search(rf"\b{named}\b", ended.stderr), ended.stderr


@pytest.mark.parametrize(
    "form", ["default", "one node", "five nodes", "soft", "tls", "credentials", "maintenance"]
)
def test_the_server_takes_each_pods_settings_and_all_pods_agree(form: str) -> None:
    made = manifests(*FORMS[form])
    [stateful_set] = [item for key, item in made.items() if key.startswith("StatefulSet/")]
    [container] = pod(made)["containers"]
    name, replicas = stateful_set["metadata"]["name"], stateful_set["spec"]["replicas"]
    members = []
    for number in range(replicas):
        node_id = f"{name}-{number}"
        given = {
            item["name"]: item.get("value", node_id).replace("$(TENURE_NODE_ID)", node_id)
            for item in container["env"]
        }
        config = load(None, given)
        assert config.node_id == node_id
        domain = f"{node_id}.{stateful_set['spec']['serviceName']}.leases.svc"
        assert config.peer.advertise == f"{domain}:7701"
        members.append(config.members)
    assert all(sorted(one) == sorted(f"{name}-{n}" for n in range(replicas)) for one in members)
    assert all(one == members[0] for one in members)


def test_with_certificates_every_pod_shows_its_own_and_is_asked_by_https() -> None:
    spec = pod(manifests(*FORMS["tls"]))
    [container] = spec["containers"]
    given = {item["name"]: item.get("value") for item in container["env"]}
    assert given["TENURE_TLS_CERT"] == "/etc/tenure/tls/$(TENURE_NODE_ID).crt"
    assert "@https://" in given["TENURE_MEMBERS"]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    names = [item["name"] for item in container["env"]]
    assert names.index("TENURE_NODE_ID") < names.index("TENURE_TLS_CERT"), "or it would not be put in"


def test_nodes_are_found_before_they_are_ready_and_start_together() -> None:
    made = manifests()
    stateful_set = made["StatefulSet/prod-tenure"]
    peers = made[f"Service/{stateful_set['spec']['serviceName']}"]
    assert peers["spec"]["clusterIP"] == "None"
    assert peers["spec"]["publishNotReadyAddresses"] is True
    assert stateful_set["spec"]["podManagementPolicy"] == "Parallel"
    assert not made["Service/prod-tenure"]["spec"].get("publishNotReadyAddresses")


def test_being_alive_and_serving_are_asked_apart() -> None:
    [container] = pod(manifests())["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["startupProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_a_pod_has_time_to_leave_in_good_order() -> None:
    spec = pod(manifests())
    [container] = spec["containers"]
    [_, seconds] = container["lifecycle"]["preStop"]["exec"]["command"]
    assert spec["terminationGracePeriodSeconds"] >= int(seconds) + 30


def test_drains_leave_a_quorum_and_a_single_node_can_be_drained() -> None:
    assert manifests()["PodDisruptionBudget/prod-tenure"]["spec"]["maxUnavailable"] == 1
    assert not [key for key in manifests("replicas=1") if key.startswith("PodDisruptionBudget/")]


def test_a_pod_is_confined() -> None:
    spec = pod(manifests())
    [container] = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_where_nobody_is_named_as_a_client_nobody_is_let_in() -> None:
    """A rule of a policy whose `from` is empty lets everybody in."""
    for values in ((), ("backup.enabled=true",)):
        policy = manifests("networkPolicy.clients=null", *values)["NetworkPolicy/prod-tenure"]
        assert all(rule["from"] for rule in policy["spec"]["ingress"])


def test_the_first_administrators_file_is_where_the_pages_say() -> None:
    [directory] = [
        each["value"]
        for each in pod(manifests())["containers"][0]["env"]
        if each["name"] == "TENURE_DATA_DIR"
    ]
    for page, times in ((DEPLOY / "README.md", 2), (CHART / "templates/NOTES.txt", 1)):
        text = page.read_text(encoding="utf-8")
        told = re.findall(r"kubectl[^`]*?cat\s+(\S+)/administrator\.credential", text)
        assert told == times * [directory], page


def test_with_certificates_a_pod_says_that_it_is_scraped_by_https() -> None:
    def told(*values: str) -> Any:
        made = manifests(*values)["StatefulSet/prod-tenure"]
        return made["spec"]["template"]["metadata"]["annotations"].get("prometheus.io/scheme")

    assert told() is None
    assert told("tls.secretName=certificates") == "https"
    assert told("tls.secretName=certificates", "podAnnotations.prometheus\\.io/scheme=own") == "own"


def test_a_service_of_our_name_puts_no_variables_into_the_pods() -> None:
    """Kubernetes would set TENURE_PORT for it, which the server refuses as a setting that does not exist."""
    made = manifests(name="tenure")
    assert "Service/tenure" in made
    assert pod(made)["enableServiceLinks"] is False


def _paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Every setting in a tree of values; what users fill themselves counts as one."""
    if isinstance(value, dict) and value and prefix not in FREE:
        for name, inner in value.items():
            yield from _paths(inner, f"{prefix}.{name}" if prefix else name)
    else:
        yield prefix


def _known(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    if "properties" in schema:
        for name, inner in schema["properties"].items():
            yield from _known(inner, f"{prefix}.{name}" if prefix else name)
    else:
        yield prefix


FREE = ("resources", "nodeSelector", "podAnnotations", "podLabels", "settings", "global")


def test_every_value_has_a_default_and_a_rule() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert sorted(_paths(values)) == sorted(name for name in _known(schema) if name != "global")
