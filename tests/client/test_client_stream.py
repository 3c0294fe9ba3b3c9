"""Calls over one stream where it can be had, and over plain HTTP where it can't: behind proxies that refuse
the upgrade, let it hang, or keep its messages to themselves."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import pytest
from aiohttp import WSMsgType, web
from client_front import Front, machine, serving

import tenure
from tenure import Client
from tenure._stream import StreamFirst
from tenure_cluster.service.errors import Problem

KEY = "job/7"
Behaviour = Literal[
    "serves", "refuses", "hangs", "keeps", "cuts", "reverses", "unauthenticated", "leaderless"
]


@dataclass
class StreamFront(Front):
    """A node with streams, or a proxy before it."""

    behaviour: Behaviour = "serves"
    messages: list[list[tuple[int, str, Any]]] = field(default_factory=list)
    opened: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/v1/stream":
            return await super().answer(request)
        self.asked.append(request.path)
        if self.behaviour == "refuses":
            return web.Response(status=502, text="<html>no upgrades here</html>")
        if self.behaviour == "hangs":
            while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return web.Response()
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        self.opened += 1
        async for message in socket:
            if message.type is not WSMsgType.BINARY or await self._took(socket, message.data):
                break
        return socket

    async def _took(self, socket: web.WebSocketResponse, data: bytes) -> bool:
        """Answer a message; true if the connection is to be cut."""
        triples = msgspec.msgpack.decode(data)
        self.messages.append(triples)
        if self.behaviour == "keeps":
            return False
        answers = [self._answered(number, operation, body) for number, operation, body in triples]
        if self.behaviour == "cuts":
            self.behaviour = "serves"
            return True
        if self.behaviour == "reverses":
            answers.reverse()
        await socket.send_bytes(msgspec.msgpack.encode(answers))
        return False

    def _answered(self, number: int, operation: str, body: Any) -> tuple[int, int, Any]:
        refusals = {
            "unauthenticated": Problem("unauthenticated", "no credential"),
            "leaderless": Problem("no_leader", "no leader is known"),
        }
        reply = refusals.get(self.behaviour) or self.server._ask(operation, body)
        if isinstance(reply, Problem):
            return number, reply.status, {"code": reply.code, "detail": reply.detail, **reply.extra}
        return number, 200, reply


@contextlib.asynccontextmanager
async def node(behaviour: Behaviour = "serves") -> AsyncIterator[StreamFront]:
    async with serving(StreamFront(machine(), "127.0.0.1", behaviour=behaviour)) as front:
        assert isinstance(front, StreamFront)
        yield front


async def use(client: Client) -> None:
    """Calls of each kind, with and without success."""
    grant = await client.acquire(KEY, owner="a", ttl=30)
    assert (await client.renew(grant.lease_id)).token == grant.token
    with pytest.raises(tenure.LeaseUnavailable) as held:
        await client.acquire(KEY, owner="b", ttl=30)
    assert held.value.holder is not None
    assert held.value.holder.owner == "a"
    await client.commit(KEY, lease_id=grant.lease_id, token=grant.token, value=b"\x00\xff")
    record = await client.record(KEY)
    assert record is not None
    assert record.data() == b"\x00\xff"
    seen = await client.get(KEY)
    assert seen is not None
    assert (await client.leases_page("job/", limit=5)).leases[0].token == seen.token
    assert (await client.queue(KEY)).holders[0].owner == "a"
    assert await client.get("nobody's") is None
    assert await client.delete_record(KEY, if_revision=record.revision)
    session = await client.open_session(owner="s", ttl=30)
    assert await client.session(session.session_id) is not None
    assert await client.close_session(session.session_id)
    assert (await client.validate(KEY, grant.token)).valid
    assert (await client.release(grant.lease_id)).status == "released"


async def test_calls_go_over_one_stream() -> None:
    async with node() as front, tenure.connect(front.url) as client:
        await use(client)
        assert front.asked == ["/v1/stream"]
        assert front.opened == 1
        operations = {operation for message in front.messages for _, operation, _ in message}
        assert operations >= {"acquire", "renew", "commit", "get_record", "list_leases", "queue", "get_lease"}


async def test_what_is_asked_together_goes_out_together_and_is_answered_in_any_order() -> None:
    async with node("reverses") as front, tenure.connect(front.url) as client:
        await client.get(KEY)
        grants = await asyncio.gather(*(client.acquire(f"k/{n}", owner="a", ttl=30) for n in range(100)))
        assert [grant.key for grant in grants] == [f"k/{n}" for n in range(100)]
        assert max(len(message) for message in front.messages) > 10


@pytest.mark.parametrize("behaviour", ["refuses", "hangs"])
async def test_where_there_is_no_stream_it_is_plain_http(behaviour: Behaviour) -> None:
    async with node(behaviour) as front, tenure.connect(front.url) as client:
        began = time.monotonic()
        await use(client)
        assert time.monotonic() - began < 10
        assert front.asked.count("/v1/stream") == 1, "it is not tried again and again"
        assert "/v1/acquire" in front.asked


async def test_behind_a_proxy_that_keeps_the_messages_it_is_plain_after_one_attempt() -> None:
    async with node("keeps") as front, tenure.connect(front.url, attempt_timeout=0.3) as client:
        await use(client)
        assert front.opened == 1
        assert len(front.messages) == 1
        assert front.asked.count("/v1/acquire") >= 1


async def test_without_streams_none_is_tried() -> None:
    async with node() as front, tenure.connect(front.url, stream=False) as client:
        await use(client)
        assert "/v1/stream" not in front.asked


async def test_after_a_broken_connection_what_may_be_asked_again_is() -> None:
    """The first answer was lost: the same request_id finds the same grant."""
    async with node("cuts") as front, tenure.connect(front.url) as client:
        grant = await client.acquire(KEY, owner="a", ttl=30)
        assert grant.token == 1
        assert front.opened == 2
        assert [message[0][1] for message in front.messages] == ["acquire", "acquire"]


async def test_what_must_not_be_sent_twice_has_a_connection_of_its_own() -> None:
    async with node() as front, tenure.connect(front.url) as client:
        await client.acquire(KEY, owner="a", ttl=30)
        await client.break_(KEY, reason="test")
        assert front.asked == ["/v1/stream", "/v1/break"]


async def test_a_waiting_acquire_has_a_connection_of_its_own() -> None:
    async with node() as front, tenure.connect(front.url) as client:
        await client.acquire(KEY, owner="a", ttl=30)
        with pytest.raises(tenure.LeaseUnavailable):
            await client.acquire(KEY, owner="b", ttl=30, wait=0.05)
        assert "/v1/acquire" in front.asked


async def test_a_node_that_can_not_serve_is_left_for_another() -> None:
    async with node("leaderless") as one, node() as other:
        for _ in range(4):  # begins with either
            async with tenure.connect([one.url, other.url]) as client:
                grant = await client.acquire(KEY, owner="a", ttl=30)
                await client.release(grant.lease_id)
        assert other.opened == 4


async def test_a_credential_that_is_not_taken_is_asked_again_over_http() -> None:
    async with node("unauthenticated") as front, tenure.connect(front.url, credential="new") as client:
        grant = await client.acquire(KEY, owner="a", ttl=30)
        assert grant.token == 1
        assert front.asked == ["/v1/stream", "/v1/acquire"]


async def test_a_stream_that_falls_silent_later_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has answered before, so it is no proxy's fault: the next stream is tried at once."""
    async with node() as front, tenure.connect(front.url, attempt_timeout=0.3) as client:
        await client.get(KEY)
        front.behaviour = "keeps"
        asking = asyncio.create_task(client.get(KEY))
        while len(front.messages) < 2:  # noqa: ASYNC110 -- the server's doing
            await asyncio.sleep(0.001)
        front.behaviour = "serves"
        assert await asking is None
        assert front.opened == 2


async def test_a_lease_is_kept_over_streams_of_its_own() -> None:
    """Renewals have a connection of their own."""
    async with node() as front, tenure.connect(front.url) as client:
        async with client.lease(KEY, ttl=3) as held:
            while not any(one[1] == "renew" for message in front.messages for one in message):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert held.is_held
        assert front.opened == 2


async def test_closing_and_dropping_leave_no_connection() -> None:
    async with node() as front:
        client = tenure.connect(front.url)
        await client.get(KEY)
        transport = client._calls.http
        assert isinstance(transport, StreamFirst)
        [stream] = transport._streams.values()
        await client.close()
        assert stream.closed
        assert not [task for task in asyncio.all_tasks() if "_stream" in repr(task.get_coro())]
