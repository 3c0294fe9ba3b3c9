"""Every line that is written for a request has its id, at the node that it came to and at the leader."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from service_cluster import Part, acquired, ask, cluster, until

from tenure_cluster.observe import logs
from tenure_cluster.observe.request_context import REQUEST_ID
from tenure_cluster.service import peer_messages, reads
from tenure_cluster.service.asks import Ask
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.requests import ReleaseRequest


class Older(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Asked as it was before it had ids."""

    number: int
    term: int
    tenant: str
    items: list[peer_messages.AskedItem]
    actor: str = ""


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the process logs, as JSON."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure("debug", "json", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def asked_as() -> Iterator[str]:
    """The id of the HTTP request that a test's operations come with."""
    token = REQUEST_ID.set(b"mine-42")
    yield "mine-42"
    REQUEST_ID.reset(token)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_both_kinds_of_loggers_name_the_request_that_is_worked_for(
    written: io.StringIO, asked_as: str
) -> None:
    logging.getLogger("tenure.x").warning("something")
    structlog.get_logger("tenure.y").warning("something else")
    logging.getLogger("tenure.x").warning("of another one", extra={"request_id": "theirs"})
    assert [line["request_id"] for line in lines(written)] == [asked_as, asked_as, "theirs"]


def test_outside_of_requests_no_id_is_named(written: io.StringIO) -> None:
    logging.getLogger("tenure.x").warning("something")
    assert "request_id" not in lines(written)[0]


async def test_the_leader_knows_the_id_of_what_another_node_hands_on(
    tmp_path: Path, written: io.StringIO, asked_as: str
) -> None:
    async with cluster(tmp_path, 3) as running:
        follower = await running.follower()
        await acquired(follower, "k")
        handed_on = [line for line in lines(written) if line["event"].endswith("asks for acquire")]
    assert handed_on
    assert {line["request_id"] for line in handed_on} == {asked_as}
    assert all(line["event"].startswith(follower.node_id) for line in handed_on)


async def test_a_read_that_fails_at_the_leader_is_told_with_its_request(
    tmp_path: Path, written: io.StringIO, asked_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    async with cluster(tmp_path, 3) as running:
        follower = await running.follower()
        monkeypatch.setattr(reads, "read", fails)
        answer = await ask(follower, "get_lease", key="k")
        assert isinstance(answer, Problem)
        assert answer.code == "internal"
        failed = [line for line in lines(written) if line["event"].startswith("a read failed")]
    assert {line["request_id"] for line in failed} == {asked_as}


async def test_what_consensus_says_is_of_no_request(
    tmp_path: Path, written: io.StringIO, asked_as: str
) -> None:
    """Its rounds work for many requests, and go on when the one that began them is answered."""
    told: list[bytes] = []

    def applied(*_: object) -> None:
        told.append(REQUEST_ID.get())

    token = REQUEST_ID.set(b"")  # nodes are started outside of any request
    async with cluster(tmp_path, 3) as running:
        leader: Part = await running.leader()
        leader.replica.on_applied = applied
        REQUEST_ID.reset(token)
        await acquired(leader, "k")
        await until(lambda: told, "an entry")
    assert set(told) == {b""}


def test_nodes_that_know_of_no_ids_can_be_asked_and_can_ask() -> None:
    """As it is while one node after the other is brought up to this version."""
    ask = Ask("release", "default", ReleaseRequest(lease_id="l"))
    ask.request_id = b"mine-42"
    fields = msgspec.msgpack.decode(peer_messages.encode_asked(7, 3, "default", [ask], "00-a-b-01"))
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Older)
    assert (older.number, older.tenant, older.actor) == (7, "default", "")
    heard = peer_messages.decode(msgspec.msgpack.encode(older))
    assert isinstance(heard, peer_messages.Asked)
    assert (heard.number, heard.request_id, heard.traceparent) == (7, b"", "")
    [asked] = peer_messages.asks_of(heard)
    assert asked.request == ask.request
