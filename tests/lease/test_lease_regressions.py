"""Cases that the random histories once found, each told plainly."""

from __future__ import annotations

from tenure_cluster.lease import commands, results
from tenure_cluster.lease.machine import LeaseMachine


def acquire(lease_id: str, request_id: str) -> commands.Acquire:
    return commands.Acquire(
        tenant="acme",
        keys=["build"],
        lease_ids=[lease_id],
        owner="ann",
        session_id=None,
        ttl_ms=5_000,
        request_id=request_id,
        remember=True,
        wait=False,
        mode="exclusive",
        slots=1,
        grace_ms=0,
        if_held="return",
        metadata={},
        wall_ms=1,
    )


def test_a_lease_cannot_take_the_id_of_a_session_that_is_remembered_as_expired() -> None:
    machine = LeaseMachine()
    machine.apply(0, commands.OpenSession("acme", "s1", "ann", 1_000, {}, 1))
    machine.apply(1_000, commands.Expire(machine.table.due(1_000, 10), 1))

    refused = machine.apply(1_000, acquire("s1", "r1"))
    granted = machine.apply(1_000, acquire("l1", "r1"))

    assert isinstance(refused.result, results.Invalid)
    assert isinstance(granted.result, results.Granted)
    machine.check()
