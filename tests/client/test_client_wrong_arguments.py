"""What a newcomer gets wrong: refused as InvalidRequest that names the argument, before anything is asked."""

import asyncio
import datetime
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import tenure
from tenure.testing import FakeCluster

Wrong = Callable[[Any], Any]

CONNECTING: dict[str, tuple[Wrong, str]] = {
    "no endpoints": (lambda connect: connect(None), "endpoints are URLs in a text or a list, not None"),
    "a number": (lambda connect: connect(7601), "endpoints are URLs in a text or a list, not 7601"),
    "a list of no texts": (lambda connect: connect([None]), r"endpoints are URLs .*, not \[None\]"),
    "bytes": (lambda connect: connect(b"http://n1"), "endpoints are URLs in a text or a list, not b'http"),
    "a time-out in text": (lambda connect: connect(timeout="10"), "timeout must be a number of seconds"),
    "no time-out": (lambda connect: connect(timeout=None), "timeout must be a number of seconds .* not None"),
    "no time at all": (lambda connect: connect(timeout=0), "timeout must be a millisecond at least, not 0 s"),
    "time that runs back": (lambda connect: connect(attempt_timeout=-1), "attempt_timeout must be a number"),
    "a credential of no kind": (lambda connect: connect(credential=5), "credential is a text, a path or"),
}

ASKING: dict[str, tuple[Wrong, str]] = {
    "a number for a key": (lambda client: client.lease(42), "a lease needs a key, .*; not 42"),
    "no key": (lambda client: client.lease(None), "a lease needs a key, .*; not None"),
    "one key twice": (lambda client: client.lease(["a", "a"]), "several different keys, .*; not "),
    "an owner in numbers": (lambda client: client.lease("k", owner=7), "owner is a text, not 7"),
    "metadata in a list": (lambda client: client.lease("k", metadata=["x"]), "metadata maps texts to texts"),
    "a wait in text": (
        lambda client: client.lease("k").acquire(wait="5"),
        "wait must be a number of seconds",
    ),
    "an endless wait": (lambda client: client.lease("k").acquire(wait=float("inf")), "wait must be a number"),
    "a TTL too short": (
        lambda client: client.lease("k", ttl=0.9).acquire(),
        "ttl_ms must be 1000 to 86400000",
    ),
    "a key too long": (lambda client: client.lease("k" * 513).acquire(), "key must be 1 to 512 bytes"),
    "an owner without a name": (lambda client: client.lease("k", owner="").acquire(), "owner must be 1 to"),
    "a permit of nothing": (lambda client: client.lease("k", mode="permit").acquire(), "slots"),
    "a look at a number": (lambda client: client.get(5), "named by a text, not by 5"),
    "an owner that is no JSON": (
        lambda client: client.acquire("k", owner=object(), ttl=30),
        "acquire: Encoding objects of type object",
    ),
}


@pytest.mark.parametrize("connect", [tenure.connect, tenure.connect_sync])
@pytest.mark.parametrize("case", CONNECTING)
def test_connecting_names_what_is_wrong(connect: Wrong, case: str) -> None:
    wrong, why = CONNECTING[case]
    with pytest.raises(tenure.InvalidRequest, match=why):
        wrong(connect)


@pytest.mark.parametrize("case", ASKING)
async def test_asking_names_what_is_wrong(case: str) -> None:
    wrong, why = ASKING[case]
    cluster = FakeCluster()
    async with cluster.connect() as client:
        with pytest.raises(tenure.InvalidRequest, match=why):
            await wrong(client)
    assert cluster.left() == ([], [])


@pytest.mark.parametrize("value", [bytes, bytearray, memoryview])
async def test_bytes_of_every_kind_come_back_as_bytes(value: Any) -> None:
    async with FakeCluster().connect() as client, client.lease("k") as held:
        await held.commit(value(b"\x00paid"))
        record = await client.record("k")
    assert record is not None
    assert (record.value_encoding, record.value) == ("base64", "AHBhaWQ=")


@pytest.mark.parametrize(
    "value",
    [{"paid": True}, 5, True, ["paid"], datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), uuid.UUID(int=1)],
)
async def test_a_value_that_is_no_text_is_not_made_one_in_secret(value: Any) -> None:
    async with FakeCluster().connect() as client, client.lease("k") as held:
        with pytest.raises(tenure.InvalidRequest, match=r"a value is str or bytes, not \w+: encode it"):
            await held.commit(value)
        assert await client.record("k") is None
        assert held.is_held


def test_a_client_of_another_event_loop_says_so() -> None:
    client = FakeCluster().connect()
    assert asyncio.run(_look(client)) is None
    with pytest.raises(tenure.InvalidRequest, match="another event loop: connect in each"):
        asyncio.run(_look(client))
    with pytest.raises(tenure.InvalidRequest, match="another event loop: connect in each"):
        asyncio.run(_watch(client))
    asyncio.run(client.close())


async def _look(client: tenure.Client) -> object:
    return await client.get("k")


async def _watch(client: tenure.Client) -> object:
    return await anext(client.watch())


async def test_a_closed_client_takes_no_watch() -> None:
    client = FakeCluster().connect()
    await client.close()
    with pytest.raises(tenure.InvalidRequest, match="this client is closed"):
        await anext(client.watch())


async def test_who_finds_no_cluster_is_told_for_how_long_it_was_tried() -> None:
    cluster = FakeCluster()
    async with cluster.connect(timeout=0.5) as client:
        with cluster.partition():
            asking = asyncio.ensure_future(client.get("k"))
            await cluster.pass_time(1)
            with pytest.raises(
                tenure.ClusterUnavailable, match=r"within 0\.5 s \(http://fake: connection re"
            ):
                await asking
        with cluster.pause():
            releasing = asyncio.ensure_future(client.release("l"))
            await cluster.pass_time(1)
            with pytest.raises(
                tenure.OutcomeUnknown, match=r"within 0\.5 s \(http://fake: no answer in time"
            ):
                await releasing
