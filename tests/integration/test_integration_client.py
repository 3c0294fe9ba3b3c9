"""The asyncio client against a real cluster, also through a network that loses answers."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from dev_process import DevProcess

import tenure
from tenure import Client
from tenure._acquisition import CLOSING_S, CONFIRM_AFTER_S

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("client")) as running:
        yield running


@pytest.fixture
async def client(dev: DevProcess) -> AsyncIterator[Client]:
    async with tenure.connect(dev.urls) as connected:
        yield connected


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"client/{request.node.name}"


async def until(what: str, condition: Callable[[], Awaitable[Any]], patience_s: float = 20.0) -> Any:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if found := await condition():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited {patience_s} s for {what}")


async def waiting(client: Client, key: str) -> int:
    return (await client.queue(key)).waiters_total


class Losing:
    """A relay to one node. While `losing`, it passes requests on and cuts the connection instead of passing
    the answer back."""

    def __init__(self, url: str) -> None:
        self._target = int(url.rpartition(":")[2])
        self.losing = True
        self.paths: list[str] = []
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "Losing":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Break every connection as it stands."""
        for writer in self._open:
            writer.transport.abort()

    async def lost_one(self) -> bool:
        """An answer was lost, and the client asks again."""
        return len(self.paths) > 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {back, writer}
        try:
            while asked := await reader.read(65_536):
                self.paths.append(asked.split()[1].decode())
                back.write(asked)
                answer = await there.read(65_536)
                if self.losing:
                    return
                # Without the hint, or the client would go to the leader by itself.
                writer.write(answer.replace(b"X-Tenure-Leader", b"X-Nobody-Leader"))
                await writer.drain()
        finally:
            self._open -= {back, writer}
            for stream in (back, writer):
                stream.close()
                with contextlib.suppress(OSError):
                    await stream.wait_closed()


async def test_a_lease_from_acquire_to_release(client: Client, key: str) -> None:
    grant = await client.acquire(key, owner="a", ttl=30, metadata={"workflow": "w"})
    assert (grant.key, grant.owner, grant.ttl_ms, grant.metadata) == (key, "a", 30_000, {"workflow": "w"})
    renewed = await client.renew(grant.lease_id, ttl=60)
    assert (renewed.token, renewed.lease_id, renewed.ttl_ms) == (grant.token, grant.lease_id, 60_000)
    seen = await client.get(key)
    assert seen is not None
    assert seen.token == grant.token
    assert (await client.validate(key, grant.token)).valid
    assert (await client.release(grant.lease_id)).status == "released"
    assert (await client.release(grant.lease_id)).status == "already_released"
    assert await client.get(key) is None
    assert not (await client.validate(key, grant.token)).valid
    with pytest.raises(tenure.LeaseLost) as lost:
        await client.renew(grant.lease_id)
    assert lost.value.reason == "released"


async def test_the_guard_refuses_the_late_and_keeps_what_it_accepted(client: Client, key: str) -> None:
    old = await client.acquire(key, owner="a", ttl=30)
    await client.break_(key, reason="test")
    new = await client.acquire(key, owner="b", ttl=30)
    with pytest.raises(tenure.CommitRefused) as refused:
        await client.commit(key, lease_id=old.lease_id, token=old.token, value="late")
    assert (refused.value.code, refused.value.floor) == ("stale_token", new.token)
    accepted = await client.commit(key, lease_id=new.lease_id, token=new.token, value=b"\x00\xff")
    record = await client.record(key)
    assert record is not None
    assert (record.data(), record.revision, record.token) == (b"\x00\xff", accepted.revision, new.token)
    with pytest.raises(tenure.CommitRefused):
        await client.delete_record(key, if_revision=record.revision + 1)
    assert await client.delete_record(key, if_revision=record.revision)
    assert not await client.delete_record(key)
    assert await client.record(key) is None


async def test_a_session_keeps_its_leases_and_ends_them(client: Client, key: str) -> None:
    session = await client.open_session(owner="worker", ttl=30, metadata={"host": "h"})
    first = await client.acquire(f"{key}/1", owner="worker", session_id=session.session_id)
    await client.acquire(f"{key}/2", owner="worker", session_id=session.session_id)
    again = await client.acquire(f"{key}/1", owner="worker", session_id=session.session_id)
    assert again.lease_id == first.lease_id
    with pytest.raises(tenure.LeaseUnavailable):
        await client.acquire(f"{key}/1", owner="w", session_id=session.session_id, if_held="conflict")
    assert (await client.renew_session(session.session_id)).leases == 2
    found = await client.session(session.session_id)
    assert found is not None
    assert found.owner == "worker"
    assert await client.close_session(session.session_id)
    assert not await client.close_session(session.session_id)
    assert await client.session(session.session_id) is None
    assert await client.get(f"{key}/1") is None
    with pytest.raises(tenure.LeaseLost):
        await client.renew_session(session.session_id)
    with pytest.raises(tenure.LeaseLost):
        await client.acquire(key, owner="w", session_id=session.session_id)


async def test_a_listing_goes_through_all_its_pages(client: Client, key: str) -> None:
    for number in range(5):
        await client.acquire(f"{key}/{number}", owner="o", ttl=30)
    assert [lease.key async for lease in client.leases(f"{key}/", page=2)] == [f"{key}/{n}" for n in range(5)]


async def test_wrong_requests_are_told_from_refusals(client: Client, key: str) -> None:
    with pytest.raises(tenure.InvalidRequest) as invalid:
        await client.acquire(key, owner="o", ttl=0.001)
    assert invalid.value.code == "out_of_range"
    with pytest.raises(tenure.InvalidRequest):
        await client.acquire(key, owner="o", ttl=-1)
    with pytest.raises(tenure.InvalidRequest):
        await client.acquire(key, owner="o", ttl=float("nan"))


# Waiting.


async def test_a_grant_that_came_while_waiting_is_confirmed_by_a_fresh_renewal(
    dev: DevProcess, client: Client, key: str
) -> None:
    """T2: the time of a grant counts from the send, and that of a poll was long ago when it is answered."""
    held = await client.acquire(key, owner="a", ttl=30)
    async with Losing(dev.urls[0]) as relay, tenure.connect(relay.url, stream=False) as waiter:
        relay.losing = False
        at_once = await waiter.acquire(f"{key}/free", owner="b", ttl=4, wait=20)
        assert relay.paths == ["/v1/acquire"]
        assert at_once.owner == "b"
        task = asyncio.create_task(waiter.acquire(key, owner="b", ttl=4, wait=20))
        await until("the waiter", lambda: waiting(client, key))
        await asyncio.sleep(CONFIRM_AFTER_S)  # the stretch of waiting that the confirmation is for
        await client.release(held.lease_id)
        grant = await task
        assert grant.owner == "b"
        assert grant.token > held.token
        assert relay.paths[1:] == ["/v1/acquire", "/v1/renew"]


async def test_a_wait_that_is_over_leaves_nothing_and_names_the_holder(client: Client, key: str) -> None:
    await client.acquire(key, owner="a", ttl=30)
    began = time.monotonic()
    with pytest.raises(tenure.LeaseUnavailable) as over:
        await client.acquire(key, owner="b", ttl=30, wait=0.4)
    assert 0.35 < time.monotonic() - began < 5
    assert over.value.code == "wait_over"
    assert over.value.holder is not None
    assert over.value.holder.owner == "a"
    assert over.value.position == 1
    assert await waiting(client, key) == 0


async def test_a_cancelled_wait_leaves_nothing(client: Client, key: str) -> None:
    """T40."""
    await client.acquire(key, owner="a", ttl=30)
    task = asyncio.create_task(client.acquire(key, owner="b", ttl=30, wait=20))
    await until("the waiter", lambda: waiting(client, key))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await waiting(client, key) == 0


async def test_cancelling_twice_does_not_stop_the_abandoning(dev: DevProcess, key: str) -> None:
    async with tenure.connect(dev.urls) as client:
        await client.acquire(key, owner="a", ttl=30)
        task = asyncio.create_task(client.acquire(key, owner="b", ttl=30, wait=20))
        await until("the waiter", lambda: waiting(client, key))
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with tenure.connect(dev.urls) as client:
        assert await waiting(client, key) == 0


async def test_an_acquire_cancelled_at_any_moment_leaves_no_lease(client: Client, key: str) -> None:
    """T38, T40: wherever the cancellation strikes, before, during or after the grant."""
    granted = 0
    for number in range(40):
        task = asyncio.create_task(client.acquire(f"{key}/{number}", owner="a", ttl=60))
        await asyncio.sleep(number / 40 * 0.02)
        task.cancel()
        try:
            grant = await task
        except asyncio.CancelledError:
            continue
        granted += 1
        await client.release(grant.lease_id)

    async def nothing_left() -> bool:
        return not [lease async for lease in client.leases(f"{key}/")]

    await until("all to be free", nothing_left, 4.0)
    assert granted < 40


async def test_a_wait_goes_on_after_its_connection_was_broken(
    dev: DevProcess, client: Client, key: str
) -> None:
    """The cluster takes a broken connection for a caller that has gone; a caller that is still there queues
    anew."""
    held = await client.acquire(key, owner="a", ttl=30)
    async with Losing(dev.urls[0]) as relay, tenure.connect(relay.url, stream=False) as waiter:
        relay.losing = False
        task = asyncio.create_task(waiter.acquire(key, owner="b", ttl=10, wait=20))
        await until("the waiter", lambda: waiting(client, key))
        relay.cut()

        async def asked_again() -> bool:
            return relay.paths.count("/v1/acquire") > 1 and await waiting(client, key) == 1

        await until("the waiter to ask again", asked_again)
        await client.release(held.lease_id)
        assert (await task).owner == "b"
    assert await waiting(client, key) == 0


# Answers that are lost.


async def test_an_acquire_whose_answer_is_lost_finds_its_grant_by_asking_again(
    dev: DevProcess, client: Client, key: str
) -> None:
    """Never a second grant, and never "not acquired"."""
    async with Losing(dev.urls[0]) as relay, tenure.connect(relay.url, stream=False) as losing:
        task = asyncio.create_task(losing.acquire(key, owner="a", ttl=30))
        await until("a lost answer", relay.lost_one)
        first = await client.get(key)
        relay.losing = False
        grant = await task
        assert first is not None
        assert (grant.token, grant.owner) == (first.token, "a")
        await losing.release(grant.lease_id)


async def test_an_acquire_whose_outcome_stays_unknown_says_so_and_ends_nothing_that_its_id_can_find(
    dev: DevProcess, client: Client, key: str
) -> None:
    async with Losing(dev.urls[0]) as relay, tenure.connect(relay.url, stream=False, timeout=0.5) as losing:
        with pytest.raises(tenure.OutcomeUnknown):
            await losing.acquire(key, owner="a", ttl=30, request_id=f"{key}-r")
    held = await client.get(key)
    assert held is not None
    grant = await client.acquire(key, owner="a", ttl=30, request_id=f"{key}-r")
    assert grant.token == held.token


async def test_an_acquire_and_its_taking_back_keep_to_the_time_given(dev: DevProcess, key: str) -> None:
    async with Losing(dev.urls[0]) as relay, tenure.connect(relay.url, stream=False, timeout=1.0) as losing:
        began = time.monotonic()
        with pytest.raises(tenure.OutcomeUnknown):
            await losing.acquire(key, owner="a", ttl=30)
        assert time.monotonic() - began < 1.0 + CLOSING_S + 0.4
        assert "/v1/abandon" in relay.paths


async def test_a_node_that_hangs_costs_no_more_than_the_time_given() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with tenure.connect(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.7) as client:
            for call in (client.acquire("k", owner="o", ttl=30), client.release("l")):
                began = time.monotonic()
                with pytest.raises(tenure.OutcomeUnknown):
                    await call
                assert 0.6 < time.monotonic() - began < 0.7 + CLOSING_S + 0.4


async def test_a_commit_whose_answer_is_lost_is_answered_as_the_first_time(
    dev: DevProcess, client: Client, key: str
) -> None:
    grant = await client.acquire(key, owner="a", ttl=30)
    async with Losing(dev.urls[0]) as relay, tenure.connect(relay.url, stream=False) as losing:
        commit = losing.commit(key, lease_id=grant.lease_id, token=grant.token, mode="once", value="v")
        task = asyncio.create_task(commit)
        await until("a lost answer", relay.lost_one)
        assert await client.record(key) is not None
        relay.losing = False
        accepted = await task
    record = await client.record(key)
    assert record is not None
    assert record.revision == accepted.revision


async def test_a_break_whose_answer_is_lost_is_not_made_twice(
    dev: DevProcess, client: Client, key: str
) -> None:
    await client.acquire(key, owner="a", ttl=30)
    async with Losing(dev.urls[0]) as relay, tenure.connect(relay.url, stream=False) as losing:
        with pytest.raises(tenure.OutcomeUnknown):
            await losing.break_(key, reason="test")
        assert relay.paths == ["/v1/break"]
    assert await client.get(key) is None


async def test_a_release_whose_answer_is_lost_never_touches_a_later_lease(
    dev: DevProcess, client: Client, key: str
) -> None:
    """T37."""
    grant = await client.acquire(key, owner="a", ttl=30)
    async with Losing(dev.urls[0]) as relay, tenure.connect(relay.url, stream=False) as losing:
        task = asyncio.create_task(losing.release(grant.lease_id))

        await until("a lost answer", relay.lost_one)
        assert await client.get(key) is None
        later = await client.acquire(key, owner="b", ttl=30)
        relay.losing = False
        assert (await task).status == "already_released"
    seen = await client.get(key)
    assert seen is not None
    assert seen.token == later.token


# The nodes.


async def test_a_client_goes_to_the_leader_that_its_first_answer_names(dev: DevProcess) -> None:
    async with tenure.connect(dev.urls) as client:
        await client.cluster()
        leader = (await client.cluster()).leader
        await client.get("k")
        assert leader is not None
        assert client._calls.endpoints.choose(time.monotonic()) == dev.node(leader)["http"]


async def test_nobody_there_is_told_soon_and_not_executed() -> None:
    async with tenure.connect("http://127.0.0.1:1,http://127.0.0.1:2", timeout=0.3) as client:
        began = time.monotonic()
        with pytest.raises(tenure.ClusterUnavailable) as unavailable:
            await client.acquire("k", owner="o", ttl=30)
        assert time.monotonic() - began < 3
    assert "127.0.0.1:1" in str(unavailable.value)
    assert "connection refused" in str(unavailable.value)


async def test_a_node_that_accepts_no_connection_has_executed_nothing() -> None:
    """Its queue of connections is full, so the try ends by the time-out and not by a refusal."""
    with socket.socket() as full, contextlib.ExitStack() as waiting_connections:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            filler = waiting_connections.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        async with tenure.connect(f"http://127.0.0.1:{full.getsockname()[1]}", timeout=0.3) as client:
            with pytest.raises(tenure.ClusterUnavailable, match="no connection within"):
                await client.release("l")


async def test_calls_go_on_while_the_leader_is_stopped(dev: DevProcess, client: Client, key: str) -> None:
    """T22: a change of leader is retried, and the lease is still the holder's. The old leader's connection
    hangs."""
    grant = await client.acquire(key, owner="a", ttl=30)
    leader = (await client.cluster()).leader
    assert leader is not None
    pid = dev.node(leader)["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        renewed = await client.renew(grant.lease_id)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert renewed.token == grant.token


async def test_many_clients_of_one_key_are_served_one_after_another(dev: DevProcess, key: str) -> None:
    """T43, T55: nobody starves and the key never stays idle, with ten waiting at once."""

    async def worker(number: int) -> int:
        async with tenure.connect(dev.urls) as client:
            grant = await client.acquire(key, owner=f"w{number}", ttl=30, wait=30)
            await client.commit(
                key, lease_id=grant.lease_id, token=grant.token, mode="current", value=str(number)
            )
            await client.release(grant.lease_id)
            return grant.token

    began = time.monotonic()
    tokens = await asyncio.gather(*map(worker, range(10)))
    assert len(set(tokens)) == 10
    assert time.monotonic() - began < 20
