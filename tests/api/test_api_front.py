"""What the front makes of answers that a healthy node of one cannot be brought to give."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from api_wire import Wire, ask

from tenure_cluster.api.app import HttpFront
from tenure_cluster.api.limits import HttpLimits
from tenure_cluster.service.errors import CODES, Problem
from tenure_cluster.service.replies import AbandonedReply, ClusterReply, Reply
from tenure_cluster.service.requests import AbandonRequest, Request

FOLLOWER = ClusterReply(
    cluster_id="c",
    node="n2",
    role="follower",
    leader=None,
    leader_url=None,
    term=7,
    commit_index=1,
    applied_index=1,
    last_index=1,
    cluster_time_ms=0,
    durability="fsync",
    version="0",
    members=[],
)


class Readiness(NamedTuple):
    ready: bool
    reason: str


class Service:
    """Answers whatever it is told to; an exception is raised, and "wait" waits until it is cancelled."""

    def __init__(self) -> None:
        self.next: Reply | Problem | Exception | str = AbandonedReply()
        self.calls: list[tuple[str, str, Request]] = []
        self.cancelled = asyncio.Event()
        self.leader_url: str | None = "http://n1:7601"
        self.elsewhere = ["http://n1:7601"]
        self.readiness = Readiness(True, "")

    async def call(
        self, operation: str, tenant: str, request: Request, actor: str = "", origin: str = ""
    ) -> Reply | Problem:
        self.calls.append((operation, tenant, request))
        if isinstance(self.next, Exception):
            raise self.next
        if isinstance(self.next, str):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            raise AssertionError("nobody cancelled")
        return self.next

    async def batch(
        self, tenant: str, operations: Sequence[tuple[str, Request]], actor: str = "", origin: str = ""
    ) -> list[Reply | Problem]:
        return [await self.call(operation, tenant, request) for operation, request in operations]

    def cluster(self) -> ClusterReply:
        return FOLLOWER

    def ready(self) -> Readiness:
        return self.readiness


class Front(NamedTuple):
    service: Service
    front: HttpFront

    async def abandon(self, **headers: str) -> Any:
        return await ask(self.front.port, "POST", "/v1/abandon", {"request_id": "r"}, **headers)


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    service = Service()
    limits = HttpLimits(stop_timeout_ms=500)
    front = HttpFront(service, version="0", wall_ms=lambda: 0, request_id_prefix="p", limits=limits)
    await front.start("127.0.0.1:0")
    yield Front(service, front)
    await front.stop()


async def test_a_call_reaches_the_service_as_the_default_tenants(front: Front) -> None:
    reply = await front.abandon(authorization="Bearer whatever")
    assert reply.json == {"status": "abandoned"}
    assert front.service.calls == [("abandon", "default", AbandonRequest(request_id="r"))]


@pytest.mark.parametrize("code", sorted(CODES))
async def test_every_code_has_its_status_and_hint(front: Front, code: str) -> None:
    front.service.next = Problem(code, "because", {"floor": 7, "status": "not this", "code": "nor this"})
    reply = await front.abandon()
    status, title = CODES[code]
    assert (reply.status, reply.code) == (status, code)
    assert reply.json == {
        "type": f"urn:tenure:problem:{code}",
        "title": title,
        "status": status,
        "detail": "because",
        "code": code,
        "floor": 7,
    }
    assert ("retry-after" in reply.headers) == (status in (429, 503))
    batch = await ask(front.front.port, "POST", "/v1/batch", {"ops": [{"op": "abandon", "request_id": "r"}]})
    assert batch.json["results"] == [reply.json]


@pytest.mark.parametrize(
    ("retry_after_s", "header"), [(None, "1"), (0.0, "1"), (0.2, "1"), (1.0, "1"), (1.2, "2"), (30.0, "30")]
)
async def test_retry_after_is_whole_seconds(front: Front, retry_after_s: float | None, header: str) -> None:
    front.service.next = Problem("no_leader", "none is known", {}, retry_after_s)
    assert (await front.abandon()).headers["retry-after"] == header


async def test_a_failure_of_the_server_is_a_problem_and_the_connection_goes_on(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    front.service.next = RuntimeError("secret detail")
    async with await Wire.open(front.front.port) as wire:
        reply = await wire.ask("POST", "/v1/abandon", b'{"request_id": "r"}')
        assert (reply.status, reply.code) == (500, "internal")
        assert b"secret" not in reply.body
        assert "secret detail" in caplog.text
        front.service.next = AbandonedReply()
        assert (await wire.ask("POST", "/v1/abandon", b'{"request_id": "r"}')).status == 200


async def test_without_a_leader_no_leader_is_named(front: Front) -> None:
    assert (await front.abandon()).headers["x-tenure-leader"] == "http://n1:7601"
    front.service.leader_url = None
    assert "x-tenure-leader" not in (await front.abandon()).headers
    front.service.leader_url = "http://n3:7601"
    assert (await front.abandon()).headers["x-tenure-leader"] == "http://n3:7601"


async def test_a_node_that_is_not_ready_says_why_and_is_alive(front: Front) -> None:
    front.service.readiness = Readiness(False, "two of three members are away")
    reply = await ask(front.front.port, "GET", "/readyz")
    assert (reply.status, reply.code) == (503, "no_quorum")
    assert reply.json["detail"] == "two of three members are away"
    front.service.leader_url = None
    assert (await ask(front.front.port, "GET", "/readyz")).code == "no_leader"
    assert (await ask(front.front.port, "GET", "/livez")).status == 200
    assert (await ask(front.front.port, "GET", "/v1/cluster")).json == msgspec.to_builtins(FOLLOWER)


ACQUIRE = b'{"key": "k", "owner": "o", "ttl_ms": 30000%b}'


@pytest.mark.parametrize(
    ("more", "given_up"),
    [
        (b', "wait_ms": 1000, "request_id": "r"', True),
        (b', "wait_ms": 1000', True),
        (b"", True),
        (b', "request_id": "r"', False),
    ],
    ids=["waits", "waits unnamed", "unnamed", "named"],
)
async def test_an_acquire_is_given_up_with_its_connection_if_it_waits_or_cannot_be_found_again(
    front: Front, more: bytes, given_up: bool
) -> None:
    front.service.next = "wait"
    async with await Wire.open(front.front.port) as wire:
        body = ACQUIRE % more
        wire.send(b"POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        async with asyncio.timeout(5):
            while not front.service.calls:  # noqa: ASYNC110 -- the condition is the front's
                await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        while front.front.connections:  # noqa: ASYNC110 -- the condition is the front's
            await asyncio.sleep(0.01)
    if given_up:
        await asyncio.wait_for(front.service.cancelled.wait(), timeout=5)
    else:
        assert not front.service.cancelled.is_set()


async def test_stopping_waits_for_requests_in_flight_and_not_for_halves(front: Front) -> None:
    front.service.next = "wait"
    async with await Wire.open(front.front.port) as busy, await Wire.open(front.front.port) as half:
        half.send(b"POST /v1/abandon HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{")
        busy.send(b'POST /v1/abandon HTTP/1.1\r\nhost: x\r\ncontent-length: 19\r\n\r\n{"request_id": "r"}')
        async with asyncio.timeout(5):
            while not front.service.calls:  # noqa: ASYNC110 -- the condition is the front's
                await asyncio.sleep(0.01)
        stopping = asyncio.create_task(front.front.stop())
        assert await half.closed(within_s=0.4) == b""
        assert not front.service.cancelled.is_set()
        await asyncio.wait_for(stopping, timeout=5)
        assert front.service.cancelled.is_set()
        assert await busy.closed(within_s=5) == b""


async def test_an_address_that_is_taken_is_an_os_error(front: Front) -> None:
    other = HttpFront(
        front.service, version="0", wall_ms=lambda: 0, request_id_prefix="q", limits=HttpLimits()
    )
    with pytest.raises(OSError, match="address already in use"):
        await other.start(f"127.0.0.1:{front.front.port}")
