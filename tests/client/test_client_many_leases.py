"""Thousands of leases in one process cost no more for each than a few do."""

import asyncio

import pytest

from tenure._handle import HandleLife, State
from tenure._kept import KeptSession
from tenure.testing import FakeCluster

LEASES = 1_000
LOOKS_PER_LEASE_MAX = 100


async def test_acquiring_a_lease_does_not_look_at_all_others_of_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand leases of one owner took ten times as long as those of a hundred owners."""
    looks = 0
    state = HandleLife.state

    def counted(life: HandleLife, now: float) -> State:
        nonlocal looks
        looks += 1
        return state(life, now)

    cluster = FakeCluster()
    async with cluster.connect() as client:
        monkeypatch.setattr(HandleLife, "state", counted)
        handles = [await client.lease(f"job/{number}", ttl=3600).acquire() for number in range(LEASES)]
        assert len({handle.session_id for handle in handles}) == 1
        assert looks < LOOKS_PER_LEASE_MAX * LEASES
        looks = 0
        await asyncio.gather(*(handle.release() for handle in handles))
        assert looks < LOOKS_PER_LEASE_MAX * LEASES
        assert cluster.left() == ([], [])


async def test_a_key_is_known_to_be_held_for_exactly_as_long_as_it_is() -> None:
    """Also if it is lost, and if it is acquired again and again."""
    cluster = FakeCluster()
    async with cluster.connect() as client, client.lease("other", ttl=30) as other:
        session: KeptSession = other._session
        for ends_by in ("release", "loss", "release"):
            held = await client.lease("job", ttl=30).acquire()
            assert held._session is session
            assert session.uses_any(["nothing", "job"])
            if ends_by == "release":
                await held.release()
            else:
                await client.break_("job", reason="test")
                await cluster.pass_time(15)
                assert held.state is State.LOST
            assert not session.uses_any(["job"])
        assert session.uses_any(["other"])
