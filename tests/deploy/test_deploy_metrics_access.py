"""Who gets /metrics where nodes ask for credentials, as METRICS.md and the pages around it say."""

from pathlib import Path

import pytest
from deploy_nodes import NodeProcess, await_that, nodes
from deploy_prometheus import prometheus


def administrator(node: NodeProcess, directory: Path) -> Path:
    """The file of the first administrator's credential, when it is there."""
    file = directory / "n1/data/administrator.credential"
    await_that(lambda: file.exists() and bool(file.read_text(encoding="utf-8").strip()), str(file))
    secret = file.read_text(encoding="utf-8").strip()

    def known() -> bool:
        return node.ask("GET", "/v1/cluster", headers={"Authorization": f"Bearer {secret}"})[0] == 200

    await_that(known, "the credential to be valid")
    return file


@pytest.mark.process
def test_prometheus_shows_an_administrators_credential(tmp_path: Path) -> None:
    with nodes(tmp_path, 1, TENURE_AUTH_REQUIRED="true") as [node]:
        file = administrator(node, tmp_path)
        assert node.ask("GET", "/metrics")[0] == 401
        assert node.ask("GET", "/readyz")[0] == 200
        with prometheus(tmp_path / "prometheus", [node], credentials_file=file) as watching:
            assert watching.ready


@pytest.mark.process
def test_or_the_nodes_show_their_metrics_to_everybody(tmp_path: Path) -> None:
    with nodes(tmp_path, 1, TENURE_AUTH_REQUIRED="true", TENURE_METRICS_OPEN="true") as [node]:
        assert node.samples()["tenure_ready"] == 1
        assert node.ask("GET", "/v1/leases")[0] == 401
