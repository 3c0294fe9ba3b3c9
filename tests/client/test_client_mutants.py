"""The checks of this folder have teeth: each mutant of the client, made in the real code, fails the very
check that is there for it, and the client as it is passes.

The mutants are those of which the simulation can show nothing, because there all tasks share one thread, and
those whose harm shows best where the client's clock and the cluster's are one.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import test_client_renewal

from tenure import Client, State, _background
from tenure.testing import FakeCluster
from tenure_chaos.mutants.clients import DEADLINE_FROM_THE_RECEIPT
from tenure_chaos.mutants.edits import Edit, made

KEY = "job/7"

RENEWER_ON_THE_BODYS_LOOP = Edit(
    "tenure._background:LoopThread.__init__",
    """\
    self._ready = threading.Event()
    self._thread = threading.Thread(target=self._main, name=name, daemon=True)
    self._thread.start()
    self._ready.wait()""",
    """\
    self._thread = threading.current_thread()
    self._stopped = asyncio.Event()
    self.loop = asyncio.get_running_loop()""",
)
"""Everything is renewed as ever, but on the event loop of whoever acquired first."""


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as connected:
        yield connected


@pytest.fixture
def on_the_bodys_loop(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For what is acquired by this client from here on, and for nobody else's leases."""
    monkeypatch.setattr(_background, "_shared", _background._Shared())
    with made([RENEWER_ON_THE_BODYS_LOOP]) as entered:
        yield
    assert entered["LoopThread.__init__"], "the mutant was not run"


@pytest.mark.usefixtures("on_the_bodys_loop")
async def test_t32_a_renewer_on_the_bodys_loop_keeps_the_lease_of_a_body_that_awaits(client: Client) -> None:
    """So it is the blocking alone that the next test sees."""
    async with client.lease(KEY, ttl=1) as held:
        await asyncio.sleep(1.5)
        held.check()


@pytest.mark.usefixtures("on_the_bodys_loop")
async def test_t32_a_renewer_on_the_bodys_loop_fails_the_check_of_t32(
    cluster: FakeCluster, client: Client
) -> None:
    """T32: the very check that the client as it is passes, in test_client_renewal.py."""
    check = test_client_renewal.test_t32_a_body_that_blocks_its_event_loop_keeps_its_lease
    with pytest.raises(AssertionError, match="is_held") as failed:
        await check(cluster, client)
    assert "is over: expired" in "".join(failed.value.__notes__), "and leaving its block tells of the loss"


@pytest.mark.usefixtures("on_the_bodys_loop")
async def test_t32_with_a_renewer_on_the_bodys_loop_a_body_that_blocks_sees_it_lost(client: Client) -> None:
    """T32: and never HELD in vain; the handle stays honest whatever becomes of its renewal."""
    held = await client.lease(KEY, ttl=1).acquire()
    time.sleep(1.5)  # noqa: ASYNC251 -- that is the case
    assert (held.state, held.lost_reason) == (State.LOST, "expired")


async def believed_longer_than_held(cluster: FakeCluster, client: Client) -> bool:
    """A holder whose renewals are answered 2 s late, and then not at all: does it believe in its lease when
    the cluster has ended it?"""
    answer = cluster.answer

    async def late(attempt):
        answered = await answer(attempt)
        if attempt.target == "/v1/renew":
            await cluster.sleep(2)
        return answered

    held = await client.lease(KEY, ttl=30).acquire()
    cluster.answer = late  # type: ignore[method-assign]
    renewals = cluster.calls["/v1/renew"]
    await cluster.pass_time(25)
    assert cluster.calls["/v1/renew"] >= renewals + 2
    assert held.is_held
    with cluster.partition():
        while held.is_held:
            await cluster.pass_time(0.2)
            if held.is_held and cluster.left()[0] != [KEY]:
                return True
    return False


@pytest.mark.parametrize("edits", [(), DEADLINE_FROM_THE_RECEIPT.edits], ids=["as it is", "mutant"])
async def test_t1_a_deadline_counted_from_the_receipt_is_believed_in_for_too_long(
    cluster: FakeCluster, client: Client, edits: tuple[Edit, ...]
) -> None:
    """T1: and one that is counted from the send is not."""
    with made(edits) if edits else contextlib.nullcontext():
        assert await believed_longer_than_held(cluster, client) is bool(edits)
