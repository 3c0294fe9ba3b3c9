"""Quotas that are set for tenants, as the machine keeps them, and the counts that they are held against."""

from typing import Any

import pytest
from lease_world import TENANT, World

from tenure_cluster.lease import limits, snapshot
from tenure_cluster.lease.quota import Quota, QuotaIs, QuotasFull, SetQuota
from tenure_cluster.lease.results import Invalid


def put(world: World, tenant: str, quota: Quota | None) -> Any:
    return world.apply(SetQuota(tenant, quota, "root", world.wall_ms))


def test_a_quota_is_set_replaced_and_taken_away() -> None:
    world = World()
    assert put(world, "a", Quota(leases_max=3)) == QuotaIs(Quota(leases_max=3))
    assert put(world, "a", Quota(sessions_max=1)) == QuotaIs(Quota(sessions_max=1))
    assert world.table.quotas["a"].quota == Quota(sessions_max=1)
    assert put(world, "a", None) == put(world, "a", None) == QuotaIs(None)
    assert not world.table.quotas


def test_a_quota_out_of_bounds_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(limits, "QUOTAS_MAX", 1)
    assert isinstance(put(world, "a", Quota(leases_max=-1)), Invalid)
    assert isinstance(put(world, "", Quota()), Invalid)
    put(world, "a", Quota())
    assert put(world, "b", Quota()) == QuotasFull(1)
    assert put(world, "a", Quota(leases_max=1)) == QuotaIs(Quota(leases_max=1))


def test_quotas_survive_a_restart() -> None:
    world = World()
    put(world, "a", Quota(leases_max=3, ttl_max_ms=9))
    world.restart()
    assert world.table.quotas["a"].quota == Quota(leases_max=3, ttl_max_ms=9)
    assert world.table.quotas["a"].set_by == "root"


def test_the_digest_tells_quotas_apart() -> None:
    one, other = World(), World()
    put(one, "a", Quota(leases_max=1))
    put(other, "a", Quota(leases_max=2))
    assert snapshot.digest(one.table) != snapshot.digest(other.table)


def test_what_a_tenant_has_is_counted_as_it_comes_and_goes() -> None:
    """World.apply compares the counts with the state after each command."""
    world = World()

    def counts() -> tuple[int, ...]:
        return world.table.usage.look(TENANT).counts()

    world.open("s")
    lease = world.granted("k", session="s").lease
    world.acquire("k", owner="B", wait=True, lease="next")
    assert counts() == (1, 1, 1, 0, 0)
    world.commit(None, key="k", lease=lease.lease_id, token=lease.token, value=b"12345")
    assert counts() == (1, 1, 1, 1, 5)
    world.release(lease.lease_id)
    assert counts() == (1, 1, 0, 1, 5)
    world.restart()
    assert counts() == (1, 1, 0, 1, 5)
    world.delete_record("k")
    world.close("s")
    world.release("next")
    assert counts() == (0, 0, 0, 0, 0)
