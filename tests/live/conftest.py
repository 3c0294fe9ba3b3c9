"""Proxies for the tests of the live bench."""

from collections.abc import Iterator

import pytest

from tenure_chaos.live.proxies.serving import Serving, proxy_server


@pytest.fixture(scope="session")
def any_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The proxies' server that a run here would take."""
    with proxy_server(tmp_path_factory.mktemp("proxies") / "log") as serving:
        yield serving
