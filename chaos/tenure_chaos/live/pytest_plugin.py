"""A cluster of real nodes behind proxies for a project's own tests:

    pytest_plugins = ["tenure_chaos.live.pytest_plugin"]          # in conftest.py

    def test_my_worker_stops_when_it_is_cut_off(chaos):
        worker = Worker(endpoints=chaos.endpoints)
        leader = chaos.leader()
        with chaos.partition(leader, clients_with=leader):
            ...
        chaos.kill_leader()

One cluster serves all tests of a session; after each test everything is healed. ``chaos.py`` says what there
is. Options of pytest: ``--chaos-nodes 5``, ``--chaos-proxies real``.
"""

from collections.abc import Iterator

import pytest

from tenure_chaos.live.chaos import Chaos
from tenure_chaos.live.own_cluster import own_cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tenure-chaos")
    group.addoption(
        "--chaos-nodes",
        type=int,
        choices=range(1, 10),
        metavar="1..9",
        default=3,
        help="nodes of the cluster behind `chaos`",
    )
    group.addoption(
        "--chaos-proxies",
        choices=("any", "real", "standin"),
        default="any",
        help="Toxiproxy, or the stand-in for it",
    )


@pytest.fixture(scope="session")
def chaos_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chaos]:
    """The cluster of the session."""
    directory = tmp_path_factory.mktemp("chaos")
    nodes, proxies = request.config.getoption("--chaos-nodes"), request.config.getoption("--chaos-proxies")
    with own_cluster(directory, nodes=nodes, proxies=proxies) as chaos:
        yield chaos


@pytest.fixture
def chaos(chaos_cluster: Chaos) -> Iterator[Chaos]:
    """Faults for one test; whatever is on at its end is healed, and somebody leads again."""
    chaos_cluster.leader()
    yield chaos_cluster
    chaos_cluster.heal()
    chaos_cluster.leader()
