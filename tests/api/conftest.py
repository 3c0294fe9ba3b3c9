"""Fixtures: real nodes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from api_guarded import Guarded
from api_node import CONNECTIONS_MAX, IDLE_TIMEOUT_MS, READ_TIMEOUT_MS, WRITE_TIMEOUT_MS, RunningNode

from tenure_cluster.api.limits import HttpLimits


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One node for a module's tests."""
    running = RunningNode(tmp_path_factory.mktemp("node"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One node that asks for credentials, for a module's tests."""
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    yield made
    made.node.stop()


@pytest.fixture(scope="module")
def small(node: RunningNode) -> int:
    """Port of a front of the node that has small limits."""
    limits = HttpLimits(
        connections_max=CONNECTIONS_MAX,
        read_timeout_ms=READ_TIMEOUT_MS,
        idle_timeout_ms=IDLE_TIMEOUT_MS,
        write_timeout_ms=WRITE_TIMEOUT_MS,
    )
    return node.serve_also(limits)


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[Callable[..., RunningNode]]:
    """Starts nodes with settings of their own for ``[http]`` and ``[watch]``."""
    running: list[RunningNode] = []

    def start(watch: dict[str, int] | None = None, **http: int) -> RunningNode:
        running.append(RunningNode(tmp_path / f"node{len(running)}", watch, **http))
        return running[-1]

    yield start
    for started in running:
        started.stop()
