"""Sets, pools, readers, handover, parking, progress and queues: the same answers over HTTP and the stream."""

import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import pytest
from api_node import RunningNode
from api_stream import StreamClient, stream
from api_wire import ask

_numbers = itertools.count()

_READS: Final = {"get_lease": "leases", "queue": "queues"}


class Way(Protocol):
    """Asks for an operation: (status, body)."""

    async def __call__(self, operation: str, /, **body: Any) -> tuple[int, Any]: ...


class OverHttp:
    def __init__(self, port: int) -> None:
        self.port = port

    async def __call__(self, operation: str, /, **body: Any) -> tuple[int, Any]:
        method, target, data = "POST", f"/v1/{operation}", body
        if operation == "open_session":
            target = "/v1/sessions"
        elif operation in _READS:
            method, target, data = "GET", f"/v1/{_READS[operation]}/{quote(body['key'])}", {}
        elif operation == "list_leases":
            method, target, data = "GET", f"/v1/leases?{urlencode(body)}", {}
        reply = await ask(self.port, method, target, data or b"")
        return reply.status, reply.json


class OverStream:
    def __init__(self, client: StreamClient) -> None:
        self.client = client

    async def __call__(self, operation: str, /, **body: Any) -> tuple[int, Any]:
        return await self.client.ask(operation, **body)


@contextlib.asynccontextmanager
async def opened(name: str, port: int) -> AsyncIterator[Way]:
    if name == "http":
        yield OverHttp(port)
    else:
        async with stream(port) as client:
            yield OverStream(client)


@pytest.fixture(params=["http", "stream"])
async def way(node: RunningNode, request: pytest.FixtureRequest) -> AsyncIterator[Way]:
    async with opened(request.param, node.port) as call:
        yield call


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"modes/{next(_numbers)}"


async def session(way: Way, owner: str) -> str:
    status, body = await way("open_session", owner=owner, ttl_ms=60_000)
    assert status == 200, body
    return str(body["session"]["session_id"])


async def acquired(way: Way, key: str, owner: str = "a", **fields: Any) -> dict[str, Any]:
    if "session_id" not in fields:
        fields.setdefault("ttl_ms", 60_000)
    status, body = await way("acquire", key=key, owner=owner, **fields)
    assert status == 200, body
    lease: dict[str, Any] = body["lease"]
    return lease


async def queue_up(way: Way, owner: str, **fields: Any) -> None:
    if "session_id" not in fields:
        fields["ttl_ms"] = 60_000
    status, body = await way("acquire", owner=owner, wait_ms=10, request_id=f"{owner}", **fields)
    assert (status, body["status"]) == (202, "waiting"), body


async def refused(way: Way, operation: str, /, **body: Any) -> tuple[int, str, dict[str, Any]]:
    status, problem = await way(operation, **body)
    assert status == problem["status"] >= 400, problem
    return status, problem["code"], problem


async def test_a_set_is_granted_as_a_whole_or_not_at_all(way: Way, key: str) -> None:
    keys = [f"{key}/b", f"{key}/a"]
    asked = {"keys": keys, "owner": "a", "ttl_ms": 60_000, "request_id": key}
    status, granted = await way("acquire", **asked)
    assert (status, granted["status"]) == (200, "granted")
    assert [lease["key"] for lease in granted["leases"]] == keys
    assert len({lease["token"] for lease in granted["leases"]}) == 2
    status, again = await way("acquire", **asked)
    assert (status, again["replayed"]) == (200, True)
    other = {"keys": [f"{key}/c", f"{key}/a"], "owner": "b", "ttl_ms": 60_000}
    status, code, problem = await refused(way, "acquire", **other)
    assert (status, code, problem["key"]) == (409, "held", f"{key}/a")
    assert (await way("get_lease", key=f"{key}/c"))[0] == 404
    lease_id = granted["leases"][0]["lease_id"]
    assert (await way("release", lease_id=lease_id, whole_set=True))[0] == 200
    assert (await way("acquire", **other))[0] == 200


@pytest.mark.parametrize(
    ("fields", "status", "code", "path"),
    [
        ({"keys": []}, 400, "invalid", "$.keys"),
        ({"keys": ["a", "a"]}, 400, "invalid", "$.keys"),
        ({"keys": ["a", ""]}, 422, "out_of_range", "$.keys[1]"),
        ({"keys": [f"{n}" for n in range(65)]}, 422, "out_of_range", "$.keys"),
        ({"keys": ["a"], "key": "b"}, 400, "invalid", "$.keys"),
        ({"key": "a", "mode": "permit"}, 400, "invalid", "$.slots"),
        ({"key": "a", "slots": 2}, 400, "invalid", "$.slots"),
        ({"key": "a", "mode": "several"}, 400, "invalid", "$.mode"),
        ({"key": "a", "progress_ms": 999}, 422, "out_of_range", "$.progress_ms"),
    ],
)
async def test_an_acquire_that_makes_no_sense_is_refused_with_the_path(
    way: Way, fields: dict[str, Any], status: int, code: str, path: str
) -> None:
    found = await refused(way, "acquire", owner="o", ttl_ms=60_000, **fields)
    assert (*found[:2], found[2]["path"]) == (status, code, path)


async def test_readers_share_and_a_pool_has_slots(way: Way, key: str) -> None:
    readers = [await acquired(way, f"{key}/r", owner, mode="shared") for owner in "ab"]
    assert len({lease["token"] for lease in readers}) == 1
    status, code, problem = await refused(way, "acquire", key=f"{key}/r", owner="w", ttl_ms=60_000)
    assert (status, code, len(problem["holders"])) == (409, "held", 2)
    permits = [await acquired(way, f"{key}/p", owner, mode="permit", slots=2) for owner in "ab"]
    assert [lease["slot"] for lease in permits] == [0, 1]
    pool = {"key": f"{key}/p", "owner": "c", "ttl_ms": 60_000, "mode": "permit"}
    assert (await refused(way, "acquire", **pool, slots=2))[:2] == (409, "held")
    status, code, problem = await refused(way, "acquire", **pool, slots=3)
    assert (status, code, problem["present_slots"], problem["asked_slots"]) == (409, "mode_conflict", 2, 3)


async def test_a_handover_gives_the_lease_with_its_context(way: Way, key: str) -> None:
    lease = await acquired(way, key, metadata={"run": "7"})
    await way("renew", lease_id=lease["lease_id"], progress={"step": "half", "counter": 5})
    successor = await session(way, "b")
    asked = {"lease_id": lease["lease_id"], "to_session_id": successor}
    status, given = await way("handover", **asked)
    assert (status, given["status"]) == (200, "handed_over")
    new = given["lease"]
    assert (new["owner"], new["metadata"], new["session_id"]) == ("b", {"run": "7"}, successor)
    assert new["token"] > lease["token"]
    assert new["progress"]["counter"] == 5
    assert (await way("handover", **asked))[1]["replayed"] is True
    status, code, problem = await refused(way, "renew", lease_id=lease["lease_id"])
    assert (status, code, problem["reason"]) == (410, "lost", "handed_over")
    nobody = {"lease_id": new["lease_id"], "to_session_id": "nobody"}
    assert (await refused(way, "handover", **nobody))[:2] == (404, "no_session")
    unknown = {"lease_id": "unknown", "to_session_id": successor}
    assert (await refused(way, "handover", **unknown))[:2] == (410, "lost")


async def test_a_handover_that_would_close_a_circle_is_refused_with_it(way: Way, key: str) -> None:
    lease = await acquired(way, key)
    waiting, successor = await session(way, "w"), await session(way, "s")
    await acquired(way, f"{key}/other", "w", session_id=waiting)
    await queue_up(way, "w", key=key, session_id=waiting)
    await queue_up(way, "s", key=f"{key}/other", session_id=successor)
    asked = {"lease_id": lease["lease_id"], "to_session_id": successor}
    status, code, problem = await refused(way, "handover", **asked)
    assert (status, code) == (409, "deadlock")
    assert f"{key}/other" in problem["cycle"]


async def test_a_parked_lease_rests_until_it_is_taken_up(way: Way, key: str) -> None:
    mine = await session(way, "a")
    lease = await acquired(way, key, session_id=mine)
    lease_id = lease["lease_id"]
    status, parked = await way("park", lease_id=lease_id, limit_ms=3_600_000)
    assert (status, parked["status"]) == (200, "parked")
    assert (parked["lease"]["state"], parked["lease"]["token"]) == ("parked", lease["token"])
    assert parked["lease"]["expires_in_ms"] > 3_000_000
    commit = {"key": key, "lease_id": lease_id, "token": lease["token"], "mode": "current"}
    assert (await refused(way, "commit", **commit))[:2] == (412, "not_live")
    assert (await way("get_lease", key=key))[1]["state"] == "parked"
    status, awake = await way("unpark", lease_id=lease_id, session_id=mine)
    assert (status, awake["status"], awake["lease"]["session_id"]) == (200, "unparked", mine)
    assert awake["lease"]["token"] > lease["token"]
    assert (await refused(way, "commit", **commit))[:2] == (412, "stale_token")
    assert (await way("unpark", lease_id=lease_id))[1]["replayed"] is True
    assert (await refused(way, "park", lease_id=lease_id, limit_ms=999))[:2] == (422, "out_of_range")
    both = {"lease_id": lease_id, "session_id": mine, "ttl_ms": 60_000}
    assert (await refused(way, "unpark", **both))[:2] == (400, "invalid")
    reader = await acquired(way, f"{key}/r", mode="shared")
    assert (await refused(way, "park", lease_id=reader["lease_id"], limit_ms=5_000))[:2] == (
        400,
        "unsupported",
    )


async def test_progress_is_shown_and_keeps_a_lease_that_demands_it(way: Way, key: str) -> None:
    lease = await acquired(way, key, progress_ms=30_000)
    assert (lease["progress_ms"], lease["expires_in_ms"] <= 30_000) == (30_000, True)
    note = {"step": "write", "text": "chapter 2", "counter": 2}
    status, renewed = await way("renew", lease_id=lease["lease_id"], progress=note)
    assert status == 200
    shown = (await way("get_lease", key=key))[1]["progress"]
    assert {name: shown[name] for name in note} == note
    assert renewed["lease"]["progress"]["at"] == shown["at"]
    by_session = {"session_id": lease["session_id"], "progress": note}
    assert (await refused(way, "renew", **by_session))[:2] == (400, "invalid")
    long = {"lease_id": lease["lease_id"], "progress": {"step": "s" * 129}}
    status, code, problem = await refused(way, "renew", **long)
    assert (status, code, problem["path"]) == (422, "out_of_range", "$.progress.step")


async def test_a_queue_shows_who_holds_who_waits_since_when_and_the_chain(way: Way, key: str) -> None:
    first, second = await session(way, "first"), await session(way, "second")
    await acquired(way, f"{key}/2", "root")
    await acquired(way, f"{key}/1", "first", session_id=first, metadata={"task": "t"})
    await queue_up(way, "first", key=f"{key}/2", session_id=first)
    await queue_up(way, "second", key=f"{key}/1", session_id=second)
    await queue_up(way, f"{key}/third", key=f"{key}/1", mode="shared")
    status, queue = await way("queue", key=f"{key}/1")
    assert status == 200
    [holder] = queue["holders"]
    assert (holder["owner"], holder["state"], holder["metadata"]) == ("first", "held", {"task": "t"})
    assert holder["held_ms"] >= 0
    assert [(w["position"], w["owner"], w["mode"]) for w in queue["waiters"]] == [
        (1, "second", "exclusive"),
        (2, f"{key}/third", "shared"),
    ]
    ages = [waiter["waiting_ms"] for waiter in queue["waiters"]]
    assert ages == sorted(ages, reverse=True)
    assert queue["waiters_total"] == 2
    assert [(link["key"], link["owner"]) for link in queue["chain"]] == [
        (f"{key}/1", "first"),
        (f"{key}/2", "root"),
    ]
    held = {"owner": "second", "session_id": second, "wait_ms": 10, "request_id": "closes"}
    mine = await acquired(way, f"{key}/3", "second", session_id=second)
    assert mine["owner"] == "second"
    status, code, problem = await refused(
        way, "acquire", key=f"{key}/3", **(held | {"owner": "first", "session_id": first})
    )
    assert (status, code) == (409, "deadlock")
    assert problem["cycle"] == ["first", f"{key}/3", "second", f"{key}/1"]


async def test_leases_are_listed_page_by_page(way: Way, key: str) -> None:
    names = [f"{key}/{number}" for number in range(7)]
    for name in names:
        await acquired(way, name, "even" if name[-1] in "0246" else "odd")
    found: list[str] = []
    page: dict[str, Any] = {"prefix": f"{key}/", "limit": 3}
    pages = 0
    while True:
        status, listed = await way("list_leases", **page)
        assert status == 200
        assert all("lease_id" not in lease for lease in listed["leases"])
        found += [lease["key"] for lease in listed["leases"]]
        pages += 1
        if listed["next"] is None:
            break
        page["after"] = listed["next"]
    assert (found, pages) == (names, 3)
    _, listed = await way("list_leases", prefix=f"{key}/", owner="odd")
    assert [lease["key"] for lease in listed["leases"]] == names[1::2]
    assert (await refused(way, "list_leases", limit=0))[:2] == (422, "out_of_range")


async def test_a_batch_hands_over_parks_and_takes_up(node: RunningNode, key: str) -> None:
    call = OverHttp(node.port)
    leases = [await acquired(call, f"{key}/{number}") for number in range(2)]
    successor = await session(call, "b")
    status, body = await call(
        "batch",
        ops=[
            {"op": "handover", "lease_id": leases[0]["lease_id"], "to_session_id": successor},
            {"op": "park", "lease_id": leases[1]["lease_id"], "limit_ms": 60_000},
            {"op": "unpark", "lease_id": leases[1]["lease_id"]},
            {"op": "renew", "lease_id": leases[1]["lease_id"], "progress": {"step": "one"}},
            {"op": "park", "lease_id": "nobody's", "limit_ms": 60_000},
            {"op": "park", "lease_id": leases[1]["lease_id"], "limit_ms": 1},
        ],
    )
    assert status == 200
    results = body["results"]
    assert [result["status"] for result in results] == [200, 200, 200, 200, 410, 422]
    assert [result.get("result") for result in results[:3]] == ["handed_over", "parked", "unparked"]
    assert results[2]["lease"]["token"] > leases[1]["token"]
    assert results[3]["lease"]["progress"]["step"] == "one"
    assert results[5]["path"] == "$.ops[5].limit_ms"
