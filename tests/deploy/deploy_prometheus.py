"""A real Prometheus over real nodes, with the rules as they are shipped."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from deploy_kit import RULES, free_port, tool
from deploy_nodes import NodeProcess, await_that

SCRAPE_S = 0.5


def hurried_rules() -> dict[str, Any]:
    """The shipped rules, which fire at once: `for:` is shortened, and nothing else is touched."""
    loaded: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in loaded["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "1s"
    return loaded


class Prometheus:
    """Scrapes the nodes twice a second, and evaluates the rules as often."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"
        self.seen: set[str] = set()
        """Alerts that were firing whenever that was asked."""

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=30) as answer:
            told = json.load(answer)
        assert told["status"] == "success"
        return told["data"]

    @property
    def ready(self) -> bool:
        try:
            targets = self._get("targets?state=active")["activeTargets"]
        except OSError:
            return False
        return bool(targets) and all(target["health"] == "up" for target in targets)

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """The labels of what fires, by alert."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in self._get("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        self.seen |= set(found)
        return found

    def await_alert(self, name: str) -> list[dict[str, str]]:
        await_that(lambda: name in self.firing(), f"{name}, and not only {sorted(self.firing())}")
        return self.firing().get(name, [])

    def await_silence(self, name: str) -> None:
        await_that(lambda: name not in self.firing(), f"{name} to end")

    def faults_of_rules(self) -> list[str]:
        """What went wrong as rules were evaluated."""
        return [
            f"{rule['name']}: {rule['lastError']}"
            for group in self._get("rules")["groups"]
            for rule in group["rules"]
            if rule["health"] == "err"
        ]

    def evaluated(self) -> set[str]:
        return {
            rule["name"]
            for group in self._get("rules")["groups"]
            for rule in group["rules"]
            if rule["health"] == "ok"
        }


@contextmanager
def prometheus(
    directory: Path, cluster: list[NodeProcess], credentials_file: Path | None = None
) -> Iterator[Prometheus]:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tenure.rules.yml").write_text(yaml.safe_dump(hurried_rules()), encoding="utf-8")
    interval = f"{int(SCRAPE_S * 1000)}ms"
    settings = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": ["tenure.rules.yml"],
        "scrape_configs": [
            {
                "job_name": "tenure",
                **(
                    {}
                    if credentials_file is None
                    else {"authorization": {"credentials_file": str(credentials_file)}}
                ),
                "static_configs": [{"targets": [f"127.0.0.1:{node.port}" for node in cluster]}],
            }
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    port = free_port()
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        running = Prometheus(port)
        await_that(lambda: running.ready, "Prometheus to see all nodes")
        yield running
    finally:
        process.terminate()
        process.wait(60)
