"""Fixtures for pytest: ``pytest_plugins = ["tenure.testing.pytest_plugin"]`` in a conftest brings them.

def test_the_nightly_job_runs_once(tenure_cluster):
    with tenure_cluster.connect_sync() as client:
        ...
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.testing.cluster import FakeCluster


@pytest.fixture
def tenure_cluster() -> Iterator[FakeCluster]:
    """A cluster in memory for one test. Its machine's invariants are verified at the end."""
    cluster = FakeCluster()
    yield cluster
    cluster.check()
