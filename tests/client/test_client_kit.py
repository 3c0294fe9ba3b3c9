"""The test kit itself: its clock, its faults, and its fixtures."""

import asyncio
from typing import Any

import msgspec
import pytest

import tenure
from tenure import State
from tenure.testing import FakeCluster, ManualClock, proposing
from tenure.testing.server import BOUNDS
from tenure_cluster.service import proposals, requests
from tenure_cluster.service.asks import READS, Ask
from tenure_cluster.settings import Leases

pytest_plugins = ["tenure.testing.pytest_plugin"]

KEY = "job/7"


def test_a_clock_passes_by_itself_and_jumps_when_told() -> None:
    clock = ManualClock(start=5.0)
    began = clock.now()
    clock.jump(100)
    assert 100 <= clock.now() - began < 101
    with pytest.raises(ValueError, match="back"):
        clock.jump(-1)


def test_a_clock_can_stand_still() -> None:
    clock = ManualClock(start=5.0, running=False)
    assert clock.now() == clock.now() == 5.0
    clock.jump(1.5)
    assert clock.now() == 6.5


async def test_the_fixture_gives_a_cluster(tenure_cluster: FakeCluster) -> None:
    async with tenure_cluster.connect() as client, client.lease(KEY) as held:
        assert held.is_held
        assert tenure_cluster.left() == ([KEY], [])


async def test_time_that_passes_is_not_time_that_jumps(tenure_cluster: FakeCluster) -> None:
    async with tenure_cluster.connect() as client:
        held = await client.lease(KEY, ttl=30).acquire()
        await tenure_cluster.pass_time(100)
        assert held.state is State.HELD
        tenure_cluster.clock.jump(100)
        assert held.state is State.LOST


async def test_a_holder_learns_of_an_expiry_that_the_test_brings_about(tenure_cluster: FakeCluster) -> None:
    assert not tenure_cluster.expire_now(KEY), "nobody holds it"
    async with tenure_cluster.connect() as client:
        held = await client.lease(KEY, ttl=30).acquire()
        assert tenure_cluster.expire_now(KEY)
        assert held.is_held, "it can't know yet"
        assert tenure_cluster.left() == ([], [])
        await tenure_cluster.pass_time(12)
        assert held.state is State.LOST


@pytest.mark.parametrize("call", ["acquire", None])
async def test_a_dropped_reply_was_executed(tenure_cluster: FakeCluster, call: str | None) -> None:
    async with tenure_cluster.connect() as client:
        tenure_cluster.drop_next_reply(call)
        grant = await client.acquire(KEY, owner="a", ttl=30)
        assert tenure_cluster.calls["/v1/acquire"] == 2
        assert grant.token == 1, "it was granted once"


async def test_a_partition_lets_nothing_through_and_heals(tenure_cluster: FakeCluster) -> None:
    async with tenure_cluster.connect(timeout=0.2) as client:
        with tenure_cluster.partition(), pytest.raises(tenure.ClusterUnavailable):
            await client.acquire(KEY, owner="a", ttl=30)
        assert tenure_cluster.left() == ([], [])
        await client.acquire(KEY, owner="a", ttl=30)


async def test_a_paused_cluster_answers_when_it_goes_on(tenure_cluster: FakeCluster) -> None:
    async with tenure_cluster.connect() as client:
        with tenure_cluster.pause():
            acquiring = asyncio.create_task(client.acquire(KEY, owner="a", ttl=30))
            await asyncio.sleep(0.02)
            assert not acquiring.done()
        assert (await acquiring).token == 1


def test_a_program_for_threads_is_tested_the_same_way(tenure_cluster: FakeCluster) -> None:
    with tenure_cluster.connect_sync() as client:
        held = client.lease(KEY, ttl=30).acquire()
        tenure_cluster.expire_now(KEY)
        with pytest.raises(tenure.CommitRefused):
            held.commit("late")
        assert held.state is State.LOST


def samples() -> list[msgspec.Struct]:
    """A request of each kind that changes anything, with all its fields."""
    note = requests.ProgressNote(step="s", text="t", counter=3)
    return [
        requests.AcquireRequest(
            key="k",
            owner="o",
            ttl_ms=7,
            wait_ms=5,
            request_id="r",
            metadata={"a": "b"},
            grace_ms=3,
            if_held="conflict",
            progress_ms=9,
        ),
        requests.AcquireRequest(
            keys=["k", "l"], owner="o", session_id="s", request_id="r", mode="permit", slots=2
        ),
        requests.RenewRequest(lease_id="l", ttl_ms=7, progress=note),
        requests.RenewRequest(session_id="s"),
        requests.ReleaseRequest(lease_id="l", whole_set=True),
        requests.AbandonRequest(request_id="r", session_id="s"),
        requests.HandoverRequest(lease_id="l", to_session_id="s"),
        requests.ParkRequest(lease_id="l", limit_ms=7),
        requests.UnparkRequest(lease_id="l", session_id="s"),
        requests.UnparkRequest(lease_id="l", ttl_ms=7),
        requests.BreakRequest(key="k", reason="r"),
        requests.ResizeRequest(key="k", slots=3),
        requests.CommitRequest(
            key="k",
            lease_id="l",
            token=7,
            mode="sequence",
            slot=1,
            seq=2,
            op_id="o",
            require_live=False,
            if_revision=3,
            value="YQ==",
            value_encoding="base64",
            digest="d",
        ),
        requests.CommitRequest(key="k", lease_id="l", token=7, mode="once", value="v"),
        requests.DeleteRecordRequest(key="k", if_revision=3),
        requests.OpenSessionRequest(owner="o", ttl_ms=7, metadata={"a": "b"}),
        requests.CloseSessionRequest(session_id="s"),
    ]


@pytest.mark.parametrize("request_", samples(), ids=lambda sample: type(sample).__name__)
def test_a_request_is_the_command_that_a_leader_makes_of_it(request_: Any) -> None:
    operation = next(name for name, kind in requests.OPERATIONS.items() if kind is type(request_))
    ask = Ask(operation, "default", request_, remember=True)
    ours = proposing.command(request_, "default", lambda _: "id", 5)
    assert ours == proposals._COMMANDS[type(request_)](ask, request_, lambda: "id", 5)


def test_every_request_that_changes_anything_is_known_to_the_kit() -> None:
    writing = {kind for name, kind in requests.OPERATIONS.items() if name not in READS}
    assert set(proposing._COMMANDS) == writing == {type(sample) for sample in samples()}


def test_the_kit_has_the_bounds_that_a_cluster_can_have() -> None:
    assert vars(BOUNDS) == msgspec.structs.asdict(Leases(ttl_min_ms=1_000))
