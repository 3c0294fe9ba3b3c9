"""The front for threads: the same names and the same behaviour, without await."""

import gc
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import tenure
from tenure import (
    Client,
    Held,
    Lease,
    State,
    Successor,
    SyncClient,
    SyncHeld,
    SyncLease,
    SyncSuccessor,
)
from tenure.election import Election
from tenure.sync import SyncElection
from tenure.testing import FakeCluster

KEY = "job/7"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[SyncClient]:
    with cluster.connect_sync() as connected:
        yield connected


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("front", "mirror"),
    [
        (Client, SyncClient),
        (Lease, SyncLease),
        (Held, SyncHeld),
        (Successor, SyncSuccessor),
        (Election, SyncElection),
    ],
    ids=str,
)
def test_both_fronts_have_the_same_names_with_the_same_parameters(front: type, mirror: type) -> None:
    names = {name for name in dir(front) if not name.startswith("_")}
    assert names == {name for name in dir(mirror) if not name.startswith("_")}
    for name in names:
        if callable(getattr(front, name)):
            theirs = inspect.signature(getattr(front, name)).parameters
            assert list(inspect.signature(getattr(mirror, name)).parameters) == list(theirs), name


def test_a_block_holds_the_key_and_leaves_it_free(cluster: FakeCluster, client: SyncClient) -> None:
    with client.lease(KEY, ttl=30, owner="a") as held:
        assert held.state is State.HELD
        assert held.expires_in > 29
        held.commit("done")
        with pytest.raises(tenure.LeaseUnavailable):
            client.lease(KEY, owner="b").acquire()
        seen = client.get(KEY)
        assert seen is not None
        assert seen.token == held.token
    assert cluster.left() == ([], [])
    assert [lease.key for lease in client.leases()] == []
    record = client.record(KEY)
    assert record is not None
    assert record.value == "done"


def test_threads_exclude_each_other(cluster: FakeCluster, client: SyncClient) -> None:
    inside: list[int] = []
    turns: list[int] = []

    def contend(number: int) -> None:
        for _ in range(5):
            with client.lease(KEY, ttl=30, wait=30):
                assert not inside
                inside.append(number)
                time.sleep(0.001)
                inside.remove(number)
                turns.append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(turns) == 20
    assert cluster.left() == ([], [])


def test_a_loss_is_seen_told_and_raised(cluster: FakeCluster, client: SyncClient) -> None:
    told: list[str] = []
    lease = client.lease(KEY, ttl=30)
    with pytest.raises(tenure.LeaseLost), lease as held:  # noqa: PT012 -- the block is what raises
        held.on_lost(lambda handle: told.append(handle.lost_reason))
        cluster.clock.jump(31)
        assert held.state is State.LOST
        assert held.lost.wait(5)
    wait_until(lambda: told == ["expired"])
    held.on_lost(lambda handle: told.append("late"))
    wait_until(lambda: told == ["expired", "late"])
    with lease as again:
        assert again.token > held.token


def test_the_loss_that_the_body_found_itself_goes_on(cluster: FakeCluster, client: SyncClient) -> None:
    with pytest.raises(tenure.LeaseLost) as lost, client.lease(KEY, ttl=30) as held:  # noqa: PT012
        cluster.clock.jump(31)
        held.check()
    assert lost.value.reason == "expired"


def test_the_bodys_own_error_goes_on_with_a_note(cluster: FakeCluster, client: SyncClient) -> None:
    with pytest.raises(KeyError) as raised, client.lease(KEY, ttl=30):  # noqa: PT012
        cluster.clock.jump(31)
        raise KeyError("the body's own")
    assert "expired" in raised.value.__notes__[0]


def test_t33_a_handle_that_nobody_refers_to_is_released(cluster: FakeCluster, client: SyncClient) -> None:
    """T33."""
    held = client.lease(KEY, ttl=30).acquire()
    assert cluster.left() == ([KEY], [])
    del held
    gc.collect()
    wait_until(lambda: cluster.left() == ([], []))


def test_a_dropped_client_ends_its_threads(cluster: FakeCluster) -> None:
    before = set(threading.enumerate())
    client = cluster.connect_sync()
    held = client.lease(KEY, ttl=30).acquire()
    assert set(threading.enumerate()) - before
    del held, client
    gc.collect()
    wait_until(lambda: not set(threading.enumerate()) - before)


def test_a_closed_client_takes_no_calls(cluster: FakeCluster) -> None:
    client = cluster.connect_sync()
    held = client.lease(KEY, ttl=30).acquire()
    client.close()
    client.close()
    assert (held.state, held.lost_reason) == (State.LOST, "closed")
    with pytest.raises(tenure.InvalidRequest, match="closed"):
        client.get(KEY)


def test_ctrl_c_gives_a_waiting_acquire_up(
    cluster: FakeCluster, client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T40: an interrupted acquire leaves no waiter."""
    with client.lease(KEY, owner="b"):

        def interrupt() -> None:
            wait_until(lambda: bool(cluster.left()[1]))
            os.kill(os.getpid(), 2)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            client.lease(KEY, owner="a").acquire(wait=60)
        interrupting.join()
        wait_until(lambda: not cluster.left()[1])


def test_an_election_is_run_and_observed(cluster: FakeCluster, client: SyncClient) -> None:
    election = client.election("scheduler", owner="a")
    assert election.leader() is None
    assert election.run(lambda: "led") == "led"
    assert election.run(lambda held: held.token) == 2
    observed = election.observe()
    assert next(observed) is None
    with client.lease("scheduler", owner="b"):
        leader = next(observed)
        assert leader is not None
        assert leader.owner == "b"
    assert next(observed) is None


def test_threads_hand_over_park_and_tell_of_progress(cluster: FakeCluster, client: SyncClient) -> None:
    held = client.lease(KEY, ttl=30, owner="a", progress=60).acquire()
    assert held.progress("review", counter=1) > 0
    before = held.token
    held.park(3600)
    assert held.state is State.PARKED
    assert held.parked_for > 3500
    held.unpark()
    assert held.state is State.HELD
    assert held.token > before
    with client.lease(KEY, ttl=30, owner="b").successor() as successor:
        held.handover(successor.session_id)
        received = successor.acquire()
    assert held.state is State.RELEASED
    assert received.is_held
    assert received.found_progress is not None
    assert received.found_progress.step == "review"
    received.park(3600)
    taken = client.take_up(received.lease_id)
    assert taken.token > received.token
    taken.release()
    wait_until(lambda: cluster.left() == ([], []))


def test_leaving_a_block_in_a_thread_leaves_a_parked_lease_parked(
    cluster: FakeCluster, client: SyncClient
) -> None:
    with client.lease(KEY, ttl=30) as held:
        held.park(3600)
    assert cluster.left()[0] == [KEY]
    held.release()
    assert cluster.left() == ([], [])


def test_a_set_of_keys_is_one_handle_in_threads_too(cluster: FakeCluster, client: SyncClient) -> None:
    with client.lease(["a", "b"], ttl=30) as held:
        assert set(held.tokens) == {"a", "b"}
        held.commit("x", key="b")
    assert cluster.left() == ([], [])
