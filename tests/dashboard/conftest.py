"""Fixtures: one node and one browser for a module, a page for each test."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "api"))

from api_node import RunningNode
from dashboard_browser import PATIENCE_MS, Complaints, running_browser


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"))
    yield running
    running.stop()


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[Callable[[], RunningNode]]:
    """Starts nodes that a test may stop."""
    running: list[RunningNode] = []

    def start() -> RunningNode:
        running.append(RunningNode(tmp_path / f"node{len(running)}"))
        return running[-1]

    yield start
    for started in running:
        started.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    """What pages complained of; a test ends with none that it did not expect."""
    complaints = Complaints()
    yield complaints
    assert complaints.heard == []


@pytest.fixture
def page(browser: Browser, node: RunningNode, complaints: Complaints) -> Iterator[Page]:
    """A page of its own context, so that nothing is remembered from test to test."""
    context = browser.new_context(base_url=node.url, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints.listen(page)
    yield page
    context.close()
