"""A lease that demands progress, in a session that goes on being renewed, against a real cluster."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from dev_process import DevProcess

import tenure
from tenure import Client, State

pytestmark = pytest.mark.process

TTL_S = 3.0
"""The shortest that the cluster allows."""
PROGRESS_S = 4.0
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("progress")) as running:
        yield running


@pytest.fixture
async def client(dev: DevProcess) -> AsyncIterator[Client]:
    async with tenure.connect(dev.urls) as connected:
        yield connected


@pytest.mark.parametrize("tells", [False, True], ids=["tells nothing", "tells once"])
async def test_whoever_sees_it_ended_finds_its_handle_lost_and_its_session_alive(
    client: Client, tells: bool
) -> None:
    kept = await client.lease(f"progress/{tells}/kept", ttl=TTL_S, owner="a").acquire()
    held = await client.lease(f"progress/{tells}", ttl=TTL_S, owner="a", progress=PROGRESS_S).acquire()
    assert held.session_id == kept.session_id
    if tells:
        await asyncio.sleep(PROGRESS_S / 2)
        await held.progress("half of it")
    async with asyncio.timeout(PATIENCE_S):
        while (await client.get(held.key)) is not None:  # noqa: ASYNC110 -- what the cluster does by itself
            await asyncio.sleep(0.01)
    # The answer that nobody holds it is here: from before then on no handle may say otherwise.
    assert (held.state, held.lost_reason) == (State.LOST, "expired")
    await asyncio.wait_for(held.lost.wait(), PATIENCE_S)
    with pytest.raises(tenure.CommitRefused) as refused:
        await client.commit(held.key, lease_id=held.lease_id, token=held.token, value="late")
    assert refused.value.code == "not_live"
    await kept.renew()
    assert kept.is_held
    await kept.release()


async def test_told_of_in_time_it_outlives_its_demand_over_and_over(client: Client) -> None:
    async with client.lease("progress/steady", ttl=TTL_S, owner="b", progress=PROGRESS_S) as held:
        for counter in range(1, 9):
            await asyncio.sleep(PROGRESS_S / 4)
            await held.progress("pages", counter=counter)
        assert (await client.validate(held.key, held.token)).valid
