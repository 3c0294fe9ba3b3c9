"""The cluster in memory of tenure.testing answers as a real one does: the same calls, the same answers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import pytest
from dev_process import DevProcess

import tenure
from tenure import Client
from tenure.testing import FakeCluster

pytestmark = pytest.mark.process

VARIES = {
    *("lease_id", "session_id", "token", "revision", "expires_in_ms", "granted_at", "renewed_at"),
    *("opened_at", "committed_at", "waiting_ms", "queued_at", "current_token", "floor", "request_id"),
    *("held_ms", "since_ms", "age_ms", "at", "cluster_time_ms"),
}
"""Members whose values differ from run to run; that they are there is compared."""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("kit")) as running:
        yield running


def plain(answer: Any) -> Any:
    """The answer as data, with what varies by its type alone."""
    if isinstance(answer, tenure.TenureError):
        kept = {name: value for name, value in vars(answer).items() if name not in ("detail", "request_id")}
        return [type(answer).__name__, *(f"{name}={plain_value(name, kept[name])}" for name in sorted(kept))]
    return plain_value("", msgspec.to_builtins(answer))


def plain_value(name: str, value: Any) -> Any:
    if name in VARIES:
        return type(value).__name__
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        return {inner: plain_value(inner, value[inner]) for inner in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain_value("", item) for item in value]
    return value


Tell: TypeAlias = Callable[[Awaitable[Any]], Awaitable[Any]]


async def play(client: Client) -> list[Any]:
    """Every call, with and without success."""
    told: list[Any] = []

    async def tell(answer: Awaitable[Any]) -> Any:
        try:
            got = await answer
        except tenure.TenureError as error:
            got = error
        told.append(plain(got))
        return got

    grant = await tell(client.acquire("kit/a", owner="a", ttl=30, metadata={"m": "1"}, request_id="r1"))
    await tell(client.acquire("kit/a", owner="a", ttl=30, metadata={"m": "1"}, request_id="r1"))
    await tell(client.acquire("kit/a", owner="b", ttl=30))
    await tell(client.acquire("kit/a", owner="b", ttl=30, wait=0.2))
    await tell(client.renew(grant.lease_id))
    await tell(client.renew(grant.lease_id, ttl=60))
    await tell(client.renew("no-such-lease"))
    await tell(client.get("kit/a"))
    await tell(client.get("kit/none"))
    await tell(client.validate("kit/a", grant.token))
    await tell(client.validate("kit/a", grant.token - 1))
    held = {"lease_id": grant.lease_id, "token": grant.token}
    await tell(client.commit("kit/a", **held, value="v", op_id="o"))
    await tell(client.commit("kit/a", **held, value="v", op_id="o"))
    await tell(client.commit("kit/a", **held, value="w"))
    await tell(client.commit("kit/a", **held, value=b"w", mode="sequence", seq=1))
    await tell(client.commit("kit/none", **held, value="v"))
    await tell(client.record("kit/a"))
    await tell(client.record("kit/none"))
    waiting = asyncio.create_task(client.acquire("kit/a", owner="b", ttl=30, wait=30))
    while not (await client.queue("kit/a")).waiters_total:  # noqa: ASYNC110 -- another's doing
        await asyncio.sleep(0.01)
    await tell(client.queue("kit/a"))
    await tell(client.release(grant.lease_id))
    await tell(client.release(grant.lease_id))
    second = await tell(waiting)
    await tell(client.renew(grant.lease_id))
    await tell(client.break_("kit/a", reason="test"))
    await tell(client.renew(second.lease_id))
    await tell(client.delete_record("kit/a"))
    await tell(client.delete_record("kit/a"))
    session = await tell(client.open_session(owner="s", ttl=30))
    for key in ("kit/s1", "kit/s2"):
        await tell(client.acquire(key, owner="s", session_id=session.session_id))
    await tell(client.acquire("kit/s1", owner="s", session_id=session.session_id))
    await tell(client.acquire("kit/s1", owner="s", session_id=session.session_id, if_held="conflict"))
    await tell(client.session(session.session_id))
    await tell(client.renew_session(session.session_id))
    await tell(client.leases_page("kit/s"))
    await tell(client.leases_page("kit/s", limit=1))
    await tell(client.close_session(session.session_id))
    await tell(client.close_session(session.session_id))
    await tell(client.session(session.session_id))
    await tell(client.acquire("kit/s1", owner="s", session_id=session.session_id))
    await tell(client.abandon("never-asked"))
    await play_modes(client, tell)
    return told


async def play_modes(client: Client, tell: Tell) -> None:
    """What several hold, what changes hands, and what rests."""
    owner = {"owner": "a", "ttl": 30}
    grants = await tell(client.acquire_set(["kit/m1", "kit/m2"], **owner))
    await tell(client.acquire_set(["kit/m2", "kit/m3"], owner="b", ttl=30))
    await tell(client.park(grants[0].lease_id, limit=60))
    await tell(client.release(grants[1].lease_id, whole_set=True))
    shared = await tell(client.acquire("kit/s", **owner, mode="shared"))
    await tell(client.acquire("kit/s", owner="b", ttl=30, mode="shared"))
    await tell(client.acquire("kit/s", owner="c", ttl=30))
    await tell(client.get("kit/s"))
    await tell(client.queue("kit/s"))
    await tell(client.park(shared.lease_id, limit=60))
    await tell(client.acquire("kit/pool", **owner, mode="permit", slots=2))
    await tell(client.acquire("kit/pool", owner="b", ttl=30, mode="permit", slots=2))
    await tell(client.acquire("kit/pool", owner="c", ttl=30, mode="permit", slots=3))
    await tell(client.acquire("kit/pool", owner="c", ttl=30, mode="permit", slots=2))
    lease = await tell(client.acquire("kit/p", **owner, progress=60, metadata={"m": "1"}))
    await tell(client.progress(lease.lease_id, "step", text="text", counter=3))
    await tell(client.get("kit/p"))
    session = await tell(client.open_session(owner="b", ttl=30))
    await tell(client.handover(lease.lease_id, "no-such-session"))
    passed = await tell(client.handover(lease.lease_id, session.session_id))
    await tell(client.handover(lease.lease_id, session.session_id))
    await tell(client.renew(lease.lease_id))
    await tell(client.park(passed.lease_id, limit=60))
    await tell(client.get("kit/p"))
    await tell(client.queue("kit/p"))
    await tell(client.commit("kit/p", lease_id=passed.lease_id, token=passed.token, value="v"))
    await tell(client.unpark(passed.lease_id, session_id=session.session_id))
    await tell(client.unpark(passed.lease_id))
    await tell(client.release(passed.lease_id))
    await tell(client.unpark(passed.lease_id))
    events = client.watch("kit/p", after=0)
    for _ in range(8):
        await tell(anext(events))
    await events.aclose()


async def test_the_cluster_in_memory_answers_as_a_real_one(dev: DevProcess) -> None:
    fake = FakeCluster()
    async with fake.connect() as client:
        in_memory = await play(client)
    fake.check()
    async with tenure.connect(dev.urls) as client:
        real = await play(client)
    assert len(real) == len(in_memory) > 75
    for step, (ours, theirs) in enumerate(zip(in_memory, real, strict=True)):
        assert ours == theirs, f"step {step}"
