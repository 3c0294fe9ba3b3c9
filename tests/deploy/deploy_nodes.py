"""Real `tenured` processes, configured by variables alone, as a container is."""

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy_kit import free_port

PATIENCE_S = 60.0

Samples = dict[str, float]
"""By the sample as it is told: name and labels."""


class NodeProcess:
    """One node; `environment` is laid over what a node needs."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TENURE_")},
            "TENURE_DATA_DIR": str(directory / "data"),
            **environment,
        }
        self.port = int(environment["TENURE_HTTP_LISTEN"].rpartition(":")[2])
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tenure_cluster.cli", "run"], env=self._environment, stderr=log
            )

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text(encoding="utf-8")

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One request on a connection of its own. Raises OSError."""
        authority = self._environment.get("TENURE_TLS_CA")
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            if authority is None
            else http.client.HTTPSConnection(
                "127.0.0.1",
                self.port,
                timeout=PATIENCE_S,
                context=ssl.create_default_context(cafile=authority),
            )
        )
        try:
            sent = None if body is None else json.dumps(body)
            kind = {} if sent is None else {"Content-Type": "application/json"}
            connection.request(method, path, sent, {**kind, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def head(self, path: str, headers: Mapping[str, str]) -> str:
        """The X-Request-Id of an answer over plain HTTP."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("HEAD", path, headers=dict(headers))
            return connection.getresponse().headers["X-Request-Id"] or ""
        finally:
            connection.close()

    def call(self, operation: str, **fields: object) -> tuple[int, Any]:
        status, body = self.ask("POST", f"/v1/{operation}", fields)
        return status, json.loads(body)

    @property
    def ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def samples(self) -> Samples:
        """What /metrics tells."""
        status, text = self.ask("GET", "/metrics")
        assert status == 200
        told = {}
        for line in text.decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                told[name] = float(value)
        return told


def await_that(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.05)


@contextmanager
def nodes(
    directory: Path, count: int, *, own: Mapping[str, Mapping[str, str]] | None = None, **settings: str
) -> Iterator[list[NodeProcess]]:
    """A cluster that serves; `own` are further settings of single nodes. Its logs are printed when the block
    fails."""
    ports = [(free_port(), free_port()) for _ in range(count)]
    scheme = "https" if "TENURE_TLS_CERT" in settings else "http"
    members = ",".join(
        f"n{number}=127.0.0.1:{peer}@{scheme}://127.0.0.1:{port}"
        for number, (port, peer) in enumerate(ports, 1)
    )
    made = [
        NodeProcess(
            directory / f"n{number}",
            {
                "TENURE_CLUSTER_ID": "deploy",
                "TENURE_NODE_ID": f"n{number}",
                "TENURE_MEMBERS": members,
                "TENURE_HTTP_LISTEN": f"127.0.0.1:{port}",
                "TENURE_PEER_LISTEN": f"127.0.0.1:{peer}",
                **settings,
                **(own or {}).get(f"n{number}", {}),
            },
        )
        for number, (port, peer) in enumerate(ports, 1)
    ]
    try:
        for node in made:
            node.start()
        await_that(lambda: all(node.ready for node in made), "the cluster to serve")
        yield made
    except BaseException:
        for node in made:
            print(re.sub(r"^", "    ", node.log, flags=re.MULTILINE))  # noqa: T201 -- shown with a failure
        raise
    finally:
        for node in made:
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()
