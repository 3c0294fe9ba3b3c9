"""T64: the full check finds a table that contradicts itself, and names how."""

from collections.abc import Callable
from typing import Any

import pytest
from lease_world import TENANT, World
from msgspec.structs import replace

from tenure_cluster.lease.machine import InvariantBroken
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import Guard, LeaseLife, Progress


def change(section: str, name: str, **fields: Any) -> Callable[[LeaseTable], None]:
    """Put other contents into one row, found by the last part of its key."""

    def apply(table: LeaseTable) -> None:
        rows = getattr(table, section)
        (ref,) = [ref for ref in rows if (ref if isinstance(ref, str) else ref[-1]) == name]
        rows[ref] = replace(rows[ref], **fields)

    return apply


def remove(section: str, name: str) -> Callable[[LeaseTable], None]:
    def apply(table: LeaseTable) -> None:
        rows = getattr(table, section)
        (ref,) = [ref for ref in rows if (ref if isinstance(ref, str) else ref[-1]) == name]
        del rows[ref]

    return apply


def rest(lease_id: str, **fields: Any) -> Callable[[LeaseTable], None]:
    return change("leases", lease_id, life=LeaseLife(**fields))


def add_second_holder(table: LeaseTable) -> None:
    lease, session = table.leases[(TENANT, "a")], table.sessions[(TENANT, "a")]
    table.leases[(TENANT, "x")] = replace(lease, lease_id="x", session_id="x", request_id="x")
    table.sessions[(TENANT, "x")] = replace(session, session_id="x")


def turn_polling_around(table: LeaseTable) -> None:
    table.waiters = dict(reversed(table.waiters.items()))


BROKEN: dict[str, tuple[Callable[[LeaseTable], None], str]] = {
    "a lease without its session": (remove("sessions", "s"), "no session"),
    "a private session without lease or waiter": (remove("leases", "a"), "not exactly one"),
    "a lease under another id": (change("leases", "a", lease_id="z"), "another id"),
    "two holders of one key": (add_second_holder, "two exclusive holders"),
    "a token that was never minted": (change("leases", "a", token=99), "never minted"),
    "a revision that never was": (change("leases", "a", revision=99), "revision"),
    "a lease from the future": (change("leases", "a", granted_ms=10**9), "future"),
    "a claim window without end": (change("leases", "a", claim_deadline_ms=10**9), "claim window"),
    "a held key in its grace period": (change("keys", "k", blocked_until_ms=5), "grace"),
    "a floor below the holder": (change("keys", "k", guards={}), "floor"),
    "a floor of another grant": (
        change("keys", "k", guards={0: Guard(2, 2, 0, "gone", "A")}),
        "not the grant that its guard knows",
    ),
    "a guard with the owner of no grant": (
        change("keys", "idle", guards={0: Guard(1, 0, 0, "", "A")}),
        "an owner and no grant",
    ),
    "a used key that is marked idle": (change("keys", "k", idle_since_ms=1), "idle"),
    "an idle key that is marked used": (change("keys", "idle", idle_since_ms=-1), "idle"),
    "a key that became idle in the future": (change("keys", "idle", idle_since_ms=10**9), "future"),
    "a tenant without counters": (remove("tenants", TENANT), "no counters"),
    "a counter that fell": (change("tenants", TENANT, last_token=0), "never minted"),
    "a waiter without a session": (remove("sessions", "w1"), "no session|disagree|exactly"),
    "a waiter with a ticket of the future": (change("waiters", "r1", ticket=99), "ticket"),
    "two waiters with one ticket": (change("waiters", "r2", ticket=1), "ticket"),
    "waiters out of the order of polling": (turn_polling_around, "polling"),
    "a waiter for a free key": (change("waiters", "r1", keys=["idle"]), "idle|free"),
    "a record without a guard": (remove("keys", "k"), "guard"),
    "a record above the floor": (change("records", "k", token=99), "floor"),
    "a request with two fates": (change("leases", "a", request_id="r0"), "two fates"),
    "a session that is closed and goes on": (change("sessions", "s", closed=True), "closed"),
    "a lease that nobody can take up again": (
        rest("b", parked_ttl_ms=9, scope=None),
        "session or its request",
    ),
    "a lease of an explicit session that is parked": (rest("b", parked_ttl_ms=9, scope="s"), "session"),
    "a parked lease that must show progress": (
        rest("a", parked_ttl_ms=9, scope="", progress_ms=5, progress_deadline_ms=9),
        "nobody demands",
    ),
    "a term for progress that nobody demands": (rest("a", progress_deadline_ms=9), "nobody demands"),
    "progress that is demanded without a term": (rest("a", progress_ms=5), "no term"),
    "a term for progress that is too long": (
        rest("a", progress_ms=5, progress_deadline_ms=10**9),
        "too long",
    ),
    "progress in the future": (rest("a", progress=Progress("plan", "", 1, 10**9, 0)), "future"),
    "a memory from the future": (change("ended", "gone", ended_ms=10**9), "order of time"),
}


@pytest.fixture
def table(world: World) -> LeaseTable:
    world.acquire("idle", lease="gone", request="r0")
    world.release("gone")
    grant = world.granted("k", "A", lease="a")
    world.commit(grant, value=b"v")
    world.open("s", "B")
    world.acquire("other", "B", session="s", lease="b")
    world.acquire("k", "C", lease="w1", request="r1", wait=True)
    world.wait(5)
    world.acquire("k", "D", lease="w2", request="r2", wait=True)
    found: LeaseTable = world.table
    return found


@pytest.mark.parametrize("name", BROKEN)
def test_the_check_finds(world: World, table: LeaseTable, name: str) -> None:
    breaking, says = BROKEN[name]
    world.machine.check()
    breaking(table)
    table.rebuild_derived()
    with pytest.raises(InvariantBroken, match=says):
        world.machine.check()


@pytest.mark.parametrize(
    "index", ["holders", "requests", "scoped_requests", "session_leases", "queues", "reserved", "idle"]
)
def test_the_check_finds_an_index_that_has_lost_something(
    world: World, table: LeaseTable, index: str
) -> None:
    of_tenants = getattr(table.indexes, index)
    assert of_tenants
    of_tenants.clear()
    with pytest.raises(InvariantBroken):
        world.machine.check()
