"""How leases are counted, on the real state machine and without a node."""

from typing import Any

from tenure_cluster.lease.commands import Abandon, Acquire, Break, Command, Expire, Park, Release, Unpark
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.types import Mode
from tenure_cluster.observe.lease_counts import OTHER, LeaseCounts, TenantCounts
from tenure_cluster.observe.series import Histogram


class World:
    """A machine and what counts it."""

    def __init__(self, tenants_max: int = 50) -> None:
        self.machine = LeaseMachine()
        self.counting = True
        self.counts = LeaseCounts(tenants_max, lambda: self.counting)

    def apply(self, at_ms: int, *commands: Command) -> list[Any]:
        """One entry."""
        applied = [self.machine.apply(at_ms, command) for command in commands]
        events = [event for one in applied for event in one.events]
        answers = [one.result for one in applied]
        self.counts.on_applied(commands, answers, events)
        return answers

    def acquire(
        self,
        at_ms: int,
        key: str,
        tenant: str = "t",
        *,
        wait: bool = False,
        who: str = "a",
        mode: Mode = "exclusive",
    ) -> str:
        lease_id = f"lease-{tenant}-{key}-{who}-{at_ms}"
        command = Acquire(
            tenant=tenant,
            keys=[key],
            lease_ids=[lease_id],
            owner=who,
            session_id=None,
            ttl_ms=60_000,
            request_id=f"request-{lease_id}",
            remember=True,
            wait=wait,
            mode=mode,
            slots=1,
            grace_ms=0,
            if_held="conflict",
            metadata={},
            wall_ms=0,
        )
        self.apply(at_ms, command)
        return lease_id

    def of(self, tenant: str = "t") -> TenantCounts:
        return self.counts.tenants[tenant]


def release(lease_id: str, tenant: str = "t") -> Release:
    return Release(tenant=tenant, lease_id=lease_id, wall_ms=0)


def test_a_lease_is_held_from_its_grant_to_its_end() -> None:
    world = World()
    lease_id = world.acquire(1_000, "k")
    assert world.of().held == 1
    world.apply(4_500, release(lease_id))
    assert world.of().held == 0
    assert world.of().hold_s.count == 1
    assert world.of().hold_s.total == 3.5
    assert world.of().ended == {"released": 1}


def test_readers_who_share_a_token_are_counted_each() -> None:
    world = World()
    first = world.acquire(1_000, "k", who="a", mode="shared")
    second = world.acquire(2_000, "k", who="b", mode="shared")
    assert world.of().held == 2
    world.apply(4_000, release(first), release(second))
    assert world.of().held == 0
    assert world.of().hold_s.total == 3.0 + 2.0


def test_a_lease_that_was_parked_and_has_another_token_since_is_held_from_its_grant() -> None:
    world = World()
    lease_id = world.acquire(1_000, "k")
    world.apply(2_000, Park("t", lease_id, 60_000, 0))
    world.apply(3_000, Unpark("t", lease_id, None, None, 0))
    assert world.of().held == 1
    world.apply(5_000, release(lease_id))
    assert world.of().held == 0
    assert world.of().hold_s.total == 4.0


def test_a_waiter_waits_from_joining_to_its_grant() -> None:
    world = World()
    first = world.acquire(1_000, "k")
    world.acquire(2_000, "k", wait=True, who="b")
    world.acquire(3_000, "k", wait=True, who="b")
    assert world.of().waiting == 2
    assert world.of().blocked == 2
    world.apply(7_000, release(first))
    assert world.of().waiting == 1
    assert world.of().wait_s.total == 5.0
    assert world.of().granted == 2


def test_who_gives_up_is_no_waiter_any_more_and_no_grant() -> None:
    world = World()
    world.acquire(1_000, "k")
    waiter = world.acquire(2_000, "k", wait=True, who="b")
    world.apply(3_000, Abandon(tenant="t", request_id=f"request-{waiter}", session_id=None, wall_ms=0))
    assert world.of().waiting == 0
    assert world.of().left == 1
    assert world.of().wait_s.count == 0


def test_only_who_counts_counts_but_all_follow() -> None:
    world = World()
    world.counting = False
    world.acquire(1_000, "k")
    world.acquire(2_000, "k", wait=True, who="b")
    assert (world.of().held, world.of().waiting, world.of().granted, world.of().blocked) == (1, 1, 0, 0)
    world.counting = True
    world.apply(9_000, Break(tenant="t", key="k", reason="test", actor="t", wall_ms=0))
    assert world.of().hold_s.total == 8.0
    assert world.of().wait_s.total == 7.0


def test_a_state_that_was_restored_is_followed_from_there() -> None:
    world = World()
    lease_id = world.acquire(1_000, "k")
    world.acquire(2_000, "k", wait=True, who="b")
    late = LeaseCounts(50, lambda: True)
    late.on_restored(world.machine.table)
    assert (late.tenants["t"].held, late.tenants["t"].waiting) == (1, 1)
    world.counts = late
    world.apply(6_000, release(lease_id))
    assert late.tenants["t"].hold_s.total == 5.0
    assert late.tenants["t"].wait_s.total == 4.0
    late.on_restored(LeaseMachine().table)
    assert (late.tenants["t"].held, late.tenants["t"].waiting) == (0, 0)


def test_tenants_beyond_the_cap_share_one_name() -> None:
    world = World(tenants_max=2)
    for number in range(5):
        world.acquire(1_000, "k", f"t{number}")
    assert set(world.counts.tenants) == {"t0", "t1", OTHER}
    assert world.of(OTHER).granted == 3
    assert world.of(OTHER).held == 3


def test_what_has_no_tenant_is_counted_by_its_events() -> None:
    world = World()
    world.acquire(1_000, "k")
    due = world.machine.table.due(100_000, 10)
    assert len(due) == 1
    world.apply(100_000, Expire(items=due, wall_ms=0))
    assert world.of().ended == {"expired": 1}
    assert world.of().held == 0


def test_a_histogram_tells_what_lies_below_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        histogram.observe(value)
    assert histogram.buckets() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert histogram.count == 4
    assert histogram.total == 10.0
