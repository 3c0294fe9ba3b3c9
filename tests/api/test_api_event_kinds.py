"""Every kind of event: a story for each, told alike over Server-Sent Events and over the stream."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, get_args

import pytest
from api_node import RunningNode
from api_sse import Listener
from api_stream import stream
from api_wire import ask

from tenure_cluster.lease.events import EventKind

Happened: TypeAlias = list[tuple[str, str]]
"""Kinds and details, in order."""

NOT_BY_A_CALL: Final = "restored"
"""Told by a cluster that was put back to a backup; see tests/integration."""
TTL_MIN_MS: Final = 3_000


class Caller:
    """Makes calls that are expected to succeed, on keys of one story."""

    def __init__(self, port: int, key: str) -> None:
        self.port = port
        self.key = key

    async def post(self, call: str, /, expected: int = 200, **body: Any) -> Any:
        reply = await ask(self.port, "POST", f"/v1/{call}", body)
        assert reply.status == expected, reply
        return reply.json

    async def acquire(self, **fields: Any) -> dict[str, Any]:
        body = {"key": self.key, "owner": "a", **fields}
        if "session_id" not in body:
            body.setdefault("ttl_ms", 60_000)
        lease: dict[str, Any] = (await self.post("acquire", **body))["lease"]
        return lease

    async def commit(self, lease: dict[str, Any], expected: int = 200, **fields: Any) -> Any:
        body = {"key": self.key, "lease_id": lease["lease_id"], "token": lease["token"], "mode": "once"}
        return await self.post("commit", expected, **body, **fields)

    async def session(self, owner: str) -> str:
        return str((await self.post("sessions", owner=owner, ttl_ms=60_000))["session"]["session_id"])

    async def queue(self, name: str) -> None:
        """Have somebody wait behind a holder."""
        fields = {"key": self.key, "owner": name, "ttl_ms": 60_000, "request_id": f"{self.key}/{name}"}
        await self.post("acquire", 202, **fields, wait_ms=10)


async def granted(call: Caller) -> Happened:
    await call.acquire()
    return [("granted", "")]


async def renewed(call: Caller) -> Happened:
    lease = await call.acquire()
    await asyncio.sleep(1.0)  # a renewal in the second of the grant is not told
    await call.post("renew", lease_id=lease["lease_id"])
    return [("granted", ""), ("renewed", "")]


async def progress(call: Caller) -> Happened:
    lease = await call.acquire()
    for step in ("plan", "plan", "write"):
        await call.post("renew", lease_id=lease["lease_id"], progress={"step": step})
    return [("granted", ""), ("progress", "plan"), ("progress", "write")]


async def released(call: Caller) -> Happened:
    lease = await call.acquire()
    await call.post("release", lease_id=lease["lease_id"])
    await call.acquire(request_id=f"{call.key}/r")
    await call.post("abandon", request_id=f"{call.key}/r")
    await call.acquire(session_id=(session := await call.session("a")))
    assert (await ask(call.port, "DELETE", f"/v1/sessions/{session}")).status == 200
    details = ("", "abandoned", "session_closed")
    return [told for detail in details for told in (("granted", ""), ("released", detail))]


async def expired(call: Caller) -> Happened:
    await call.acquire(ttl_ms=TTL_MIN_MS)
    await call.queue("b")
    await call.post("abandon", request_id=f"{call.key}/b")
    return [("granted", ""), ("queue_joined", ""), ("queue_left", "abandoned"), ("expired", "")]


async def expired_without_progress(call: Caller) -> Happened:
    await call.acquire(progress_ms=1_000)
    return [("granted", ""), ("expired", "no_progress")]


async def broken(call: Caller) -> Happened:
    await call.acquire()
    await call.post("break", key=call.key, reason="its machine is gone")
    return [("granted", ""), ("broken", "its machine is gone")]


async def handed_over(call: Caller) -> Happened:
    lease = await call.acquire()
    successor = await call.session("b")
    await call.post("handover", lease_id=lease["lease_id"], to_session_id=successor)
    return [("granted", ""), ("handed_over", "b"), ("granted", "")]


async def resized(call: Caller) -> Happened:
    await call.acquire(mode="permit", slots=2)
    answer = await call.post("resize", key=call.key, slots=3)
    assert answer == {"status": "resized", "slots": 3, "before": 2, "holders": 1}
    return [("granted", ""), ("resized", "3")]


async def parked_and_unparked(call: Caller) -> Happened:
    lease = await call.acquire()
    await call.post("park", lease_id=lease["lease_id"], limit_ms=60_000)
    await call.post("unpark", lease_id=lease["lease_id"])
    return [("granted", ""), ("parked", ""), ("unparked", "")]


async def committed_and_refused(call: Caller) -> Happened:
    lease = await call.acquire()
    await call.commit(lease, value="v")
    await call.commit(lease, 412)
    assert (await ask(call.port, "DELETE", f"/v1/records/{call.key}")).status == 200
    return [("granted", ""), ("committed", ""), ("commit_refused", "token_used"), ("record_deleted", "")]


async def queued(call: Caller) -> Happened:
    lease = await call.acquire()
    await call.queue("b")
    await call.queue("c")
    await call.post("abandon", request_id=f"{call.key}/c")
    await call.post("release", lease_id=lease["lease_id"])
    await call.post("acquire", key=call.key, owner="b", ttl_ms=60_000, request_id=f"{call.key}/b")
    return [
        ("granted", ""),
        ("queue_joined", ""),
        ("queue_joined", ""),
        ("queue_left", "abandoned"),
        ("released", ""),
        ("granted", ""),
    ]


async def a_set_comes_and_goes(call: Caller) -> Happened:
    keys = [f"{call.key}/1", f"{call.key}/2"]
    leases = (await call.post("acquire", keys=keys, owner="a", ttl_ms=60_000))["leases"]
    await call.post("release", lease_id=leases[0]["lease_id"], whole_set=True)
    return [("granted", ""), ("granted", ""), ("released", ""), ("released", "")]


STORIES: Final[tuple[Callable[[Caller], Awaitable[Happened]], ...]] = (
    granted,
    renewed,
    progress,
    released,
    expired,
    expired_without_progress,
    broken,
    handed_over,
    resized,
    parked_and_unparked,
    committed_and_refused,
    queued,
    a_set_comes_and_goes,
)
KINDS: Final = {
    "granted": granted,
    "renewed": renewed,
    "progress": progress,
    "released": released,
    "expired": expired,
    "broken": broken,
    "handed_over": handed_over,
    "resized": resized,
    "parked": parked_and_unparked,
    "unparked": parked_and_unparked,
    "committed": committed_and_refused,
    "commit_refused": committed_and_refused,
    "record_deleted": committed_and_refused,
    "queue_joined": queued,
    "queue_left": queued,
}
"""Which story shows a kind. ``leader_changed`` is no event of the log and needs more than one node; see
tests/integration/test_integration_modes.py."""


@pytest.fixture
async def begun(node: RunningNode) -> int:
    """The revision that the tests' state begins with."""
    return int((await ask(node.port, "GET", "/v1/leases?limit=1")).json["revision"])


def test_every_kind_has_a_story() -> None:
    assert {*KINDS, NOT_BY_A_CALL} == set(get_args(EventKind))
    assert set(KINDS.values()) <= set(STORIES)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_what_happens_is_told_alike_over_server_sent_events_and_the_stream(
    node: RunningNode, begun: int, story: Callable[[Caller], Awaitable[Happened]]
) -> None:
    """Both watch from before the story on, and are told it while it happens."""
    key = f"kinds/{story.__name__}/k"
    async with (
        await Listener.open(node.port, f"/v1/events?prefix={key}&from={begun}") as listener,
        stream(node.port) as client,
    ):
        [watch] = await client.send(("watch", {"prefix": key, "from": begun}))
        assert (await client.answer(watch))[0] == 200
        expected = await story(Caller(node.port, key))
        over_sse = [told.data for told in await listener.events(len(expected))]
        over_stream = await client.events(watch, len(expected))
    assert [(event["kind"], event["detail"]) for event in over_sse] == expected
    assert over_stream == over_sse
    assert all(event["key"].startswith(key) for event in over_sse)
    revisions = [event["revision"] for event in over_sse]
    assert revisions == sorted(set(revisions))
    assert revisions[0] > begun
    shown = {kind for kind, by in KINDS.items() if by is story}
    assert shown <= {kind for kind, _ in expected}
    async with await Listener.open(node.port, f"/v1/events?prefix={key}&from={begun}") as again:
        assert [told.data for told in await again.events(len(expected))] == over_sse


async def test_renewals_without_pause_are_told_at_most_once_in_a_second(
    node: RunningNode, begun: int
) -> None:
    call = Caller(node.port, "kinds/sampled")
    lease = await call.acquire()
    renewals, until_s = 0, time.monotonic() + 2.5
    while time.monotonic() < until_s:
        ops = [{"op": "renew", "lease_id": lease["lease_id"]}] * 20
        results = (await call.post("batch", ops=ops))["results"]
        assert {result["status"] for result in results} == {200}
        renewals += len(results)
    await call.post("release", lease_id=lease["lease_id"])
    told = []
    async with await Listener.open(node.port, f"/v1/events?prefix={call.key}&from={begun}") as listener:
        while not told or told[-1]["kind"] != "released":
            told.append((await listener.events(1))[0].data)
    seconds = [event["cluster_time_ms"] // 1_000 for event in told if event["kind"] == "renewed"]
    assert 2 <= len(seconds) < renewals / 10
    assert len(set(seconds)) == len(seconds)
