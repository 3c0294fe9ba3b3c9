"""Namespaces in place of proxies, where the machine allows them."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure_chaos.live.bench import Bench
from tenure_chaos.live.lines import NoLines
from tenure_chaos.live.namespaces import Namespaces, NoNamespaces, namespaces
from tenure_chaos.live.options import LiveOptions
from tenure_chaos.live.run import run
from tenure_chaos.live.scenarios import Strike, strike_at

pytestmark = pytest.mark.process

LISTEN = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 7000))
print("bound", flush=True)
while True:
    data, sender = server.recvfrom(100)
    server.sendto(data, sender)
"""

ASK = """
import socket, sys
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(float(sys.argv[2]))
asking.sendto(b"x", (sys.argv[1], 7000))
try:
    asking.recvfrom(100)
except TimeoutError:
    sys.exit(1)
"""


def allowed() -> str:
    """Why this machine has none; empty if it has."""
    try:
        with namespaces(["n1"], []):
            return ""
    except NoNamespaces as error:
        return str(error)


@pytest.fixture
def spaces() -> Iterator[Namespaces]:
    if why_not := allowed():
        pytest.skip(f"no network namespaces here: {why_not}")
    with namespaces(["n1", "n2", "n3"], ["c1"]) as spaces:
        yield spaces


def answers(spaces: Namespaces, asker: str, asked: str, timeout_s: float) -> bool:
    """Whether a packet gets from one to the other and one back."""
    host = spaces.place(asked).host
    with subprocess.Popen(
        [*spaces.place(asked).prefix, sys.executable, "-c", LISTEN, host], stdout=subprocess.PIPE
    ) as listening:
        try:
            assert listening.stdout is not None
            assert listening.stdout.readline() == b"bound\n"
            asking = [*spaces.place(asker).prefix, sys.executable, "-c", ASK, host, str(timeout_s)]
            return subprocess.run(asking, check=False).returncode == 0
        finally:
            listening.kill()


def test_a_cut_line_loses_packets_and_the_others_do_not(spaces: Namespaces) -> None:
    assert answers(spaces, "n1", "n2", 10.0)
    asyncio.run(spaces.silence("f1", ["n1>n2"]))
    asyncio.run(spaces.silence("f2", ["n1>n2"]))
    assert not answers(spaces, "n1", "n2", 0.5)
    assert answers(spaces, "n1", "n3", 10.0)
    asyncio.run(spaces.heal("f1"))
    assert not answers(spaces, "n1", "n2", 0.5)
    assert asyncio.run(spaces.heal_everything()) == ["n1>n2"]
    assert answers(spaces, "n1", "n2", 10.0)


def test_answers_to_a_client_can_be_lost_alone(spaces: Namespaces) -> None:
    asyncio.run(spaces.silence("f1", ["c1>n1"], ["downstream"]))
    assert not answers(spaces, "c1", "n1", 0.5)
    assert answers(spaces, "c1", "n2", 10.0)
    asyncio.run(spaces.heal("f1"))
    assert answers(spaces, "c1", "n1", 10.0)


def test_a_node_that_comes_has_a_namespace_and_lines_and_keeps_them_when_it_has_gone(
    spaces: Namespaces,
) -> None:
    place = asyncio.run(spaces.prepare("n4"))
    assert place == spaces.place("n4")
    asyncio.run(spaces.join("n4", lambda a, b: f"{spaces.place(b).host}:1"))
    assert spaces.address("n1>n4") == spaces.address("c1>n4") == f"{place.host}:1"
    assert "n4>n2" in spaces.peer_lines()
    assert answers(spaces, "n4", "n1", 10.0)
    asyncio.run(spaces.silence("f1", ["n1>n4"]))
    assert not answers(spaces, "n1", "n4", 0.5)
    spaces.leave("n4")
    assert not any("n4" in line for line in spaces.peer_lines())
    assert asyncio.run(spaces.heal_everything()) == ["n1>n4"]
    assert answers(spaces, "n1", "n4", 10.0)


def test_what_takes_proxies_is_refused(spaces: Namespaces) -> None:
    for asked in (spaces.refuse(["n1>n2"]), spaces.toxic("f1", ["n1>n2"], "latency", latency=1)):
        with pytest.raises(NoLines):
            asyncio.run(asked)


def test_nothing_is_left_of_namespaces(spaces: Namespaces) -> None:
    before = {name for _, name in socket.if_nameindex()}
    with namespaces(["x1"], []):
        assert {name for _, name in socket.if_nameindex()} > before
    assert {name for _, name in socket.if_nameindex()} == before


def test_without_the_rights_there_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(NoNamespaces, match="root"), namespaces(["n1"], []):
        pass


@pytest.mark.slow
def test_a_run_loses_packets_and_breaks_nothing(tmp_path: Path) -> None:
    if why_not := allowed():
        pytest.skip(f"no network namespaces here: {why_not}")

    async def strikes(bench: Bench) -> bool:
        for name in ("isolate leader", "lost replies", "latency", "change members"):
            await strike_at(bench, Strike(name, 0.5, 3.0))
        return True

    options = LiveOptions(
        clients=1, programs=5, ttl_ms=(3_000,), seconds=120.0, leader_bound_s=60.0, network="netns"
    )
    report = asyncio.run(run(options, tmp_path, strikes, say=print))
    assert report.violations == []
    assert report.proxies == "network namespaces"
    assert [fault.name for fault in report.history.faults] == [
        "isolate leader",
        "lost replies",
        "change members",
    ]
    assert "n4" in report.nodes
    assert any("not available here: latency" in text for _, text in report.notes)
