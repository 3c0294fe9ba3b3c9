"""Putting a state back to a backup: what it must forget, and how it rises above all that it can't know of.

A backup is old. After it was made the cluster that it is of went on: it granted leases, issued tokens, told
events, and nothing of that is in the file. Whoever holds one of those leases holds it no longer; and no token
and no revision that anybody may have been told may ever be given again. So a state that is put back

    ends       all leases (reason ``restored``), all sessions, all waiting
    keeps      records, guards, credentials, quotas, the audit, and the memory of requests and op_ids
    raises     every tenant's token and revision by a jump, the floor of every guard to it, and the base from
               which a tenant counts that is not in the backup

The jump has two parts. JUMP is made at once, the same on every node that is put back to the same file: no
cluster issues so many tokens between a backup and its use. But a file can be used twice, and then the first
use must not be repeated, of which the file knows nothing. So the second part follows the wall clock, at 2^20
a second, which is more than any cluster issues: the first entry of the new log brings the leader's reading of
it, as every entry does, and with that all nodes settle the same numbers. Until then nothing is granted, for
there was no entry; one comes within a second, since a leader ticks while this is to be settled. It adds up
from both what the clock says and what has passed since the backup was made, so it rises from use to use even
if the backup's own numbers were ahead of the clock. For a clock that was set back between two uses of one
file there is a floor that the operator gives.

The wall clock decides nothing else, and nothing after that entry.
"""

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.audit_of_restore import record_restore
from tenure_cluster.lease.memory import ExpiredSession
from tenure_cluster.lease.types import (
    ALONE,
    EndedLease,
    FencingToken,
    KeyState,
    Revision,
    Tenant,
    TenantId,
)

if TYPE_CHECKING:
    from tenure_cluster.lease.step import Step
    from tenure_cluster.lease.table import LeaseTable

JUMP: Final = 2**32
"""More tokens, and more events, than a cluster brings forth between a backup and its use."""

PER_SECOND: Final = 2**20
"""More of either than a cluster brings forth in a second."""

FLOOR_MAX: Final = 2**52
"""Greatest floor that can be given, and up to where the clock is followed: half of all tokens are left."""


class Restoration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """That the state was put back to a backup. Kept for good: the bases count for tenants yet to come."""

    made_wall_ms: int
    """When the backup was made, by the wall clock of the node that made it."""
    token_base: FencingToken
    """A tenant without counters of its own counts from here."""
    revision_base: Revision
    leases_ended: int
    settled: bool = False
    """Whether an entry has brought the second part of the jump."""


class RestoreImpossible(Exception):
    """The state can't be put back with what was asked; the message says why."""


def put_back(table: "LeaseTable", *, made_wall_ms: int, token_floor: FencingToken = 0) -> Restoration:
    """Make a backup's state one that a new cluster can begin with. Takes time in proportion to the table.

    The same table, ``made_wall_ms`` and ``token_floor`` give the same state: that is what lets each node do
    it for itself. Raises RestoreImpossible, and then the table is of no use.
    """
    if not 0 <= token_floor <= FLOOR_MAX:
        raise RestoreImpossible(f"a token floor is 0 to {FLOOR_MAX}, not {token_floor}")
    before = table.restoration
    bases = (before.token_base, before.revision_base) if before is not None else (0, 0)
    base = Tenant("", _raised(bases[0], token_floor), bases[1] + JUMP)
    states = _states(table)
    leases = list(table.leases.values())
    _end_everything(table)
    record_restore(table.audit, table.time_ms, made_wall_ms, leases, token_floor)
    for counters in list(table.tenants.values()):
        token = _raised(counters.last_token, token_floor)
        table.tenants[counters.tenant] = Tenant(counters.tenant, token, counters.revision + JUMP)
    for state in states:
        _raise_floors(table, state)
    restoration = Restoration(made_wall_ms, base.last_token, base.revision, len(leases))
    table.restoration = restoration
    return restoration


def _raised(token: FencingToken, floor: FencingToken) -> FencingToken:
    raised = max(token + JUMP, floor)
    if raised > limits.TOKEN_MAX - JUMP:
        raise RestoreImpossible(f"its tokens have come to {token}, which leaves none for another cluster")
    return raised


def _states(table: "LeaseTable") -> list[KeyState]:
    """The state of every key, also where it only follows from a lease: in the order of their storing."""
    stored = list(table.keys.values())
    implied = dict.fromkeys(
        (lease.tenant, lease.key)
        for lease in table.leases.values()
        if (lease.tenant, lease.key) not in table.keys
    )
    states = [table.key_state(tenant, key) for tenant, key in implied]
    return stored + [state for state in states if state is not None]


def _end_everything(table: "LeaseTable") -> None:
    for waiter in list(table.waiters.values()):
        table.remove_waiter(waiter)
    for ref, lease in list(table.leases.items()):
        ended = EndedLease(
            lease.tenant,
            lease.lease_id,
            lease.key,
            lease.scope,
            lease.request_id,
            lease.token,
            "restored",
            table.time_ms,
            lease.in_set != ALONE,
        )
        table.remove_lease(ref, lease, ended)
    for session_ref, session in list(table.sessions.items()):
        table.remove_session(session_ref)
        if not session.private:
            expired = ExpiredSession(session.tenant, session.session_id, table.time_ms)
            table.remember_expired_session(session_ref, expired)


def _raise_floors(table: "LeaseTable", state: KeyState) -> None:
    """No grant belongs to the new floor, so nothing passes before the next one."""
    floor = table.tenants[state.tenant].last_token
    guards = {
        slot: replace(guard, floor=floor, lease_id="", owner="") for slot, guard in state.guards.items()
    }
    idle_ms = table.time_ms if state.idle_since_ms < 0 else state.idle_since_ms
    if (state.tenant, state.key) in table.records:
        idle_ms = -1
    table.put_key_state(replace(state, guards=guards, blocked_until_ms=0, idle_since_ms=idle_ms))


def settle(step: "Step") -> None:
    """The first entry after a state was put back: the second part of the jump, and word to those who
    watch."""
    table = step.table
    restoration = table.restoration
    assert restoration is not None, "asked for by the machine, which has looked"
    passed_ms = max(0, step.wall_ms - restoration.made_wall_ms)
    more, clock = _in_time(passed_ms), _in_time(step.wall_ms)

    def settled(number: int) -> int:
        return max(number, min(max(number + more, clock), FLOOR_MAX))

    table.restoration = replace(
        restoration,
        token_base=settled(restoration.token_base),
        revision_base=settled(restoration.revision_base),
        settled=True,
    )
    detail = f"{restoration.leases_ended} leases ended"
    for counters in list(table.tenants.values()):
        tenant = counters.tenant
        token = settled(counters.last_token)
        table.tenants[tenant] = Tenant(tenant, token, settled(counters.revision))
        step.emit("restored", tenant, "", "", token, detail)


def token_base(table: "LeaseTable") -> FencingToken:
    """Tokens up to here are of before the state was put back, whoever's they are; 0 if it was not."""
    return 0 if table.restoration is None else table.restoration.token_base


def counters_of(table: "LeaseTable", tenant: TenantId) -> Tenant:
    """The tenant's counters; of one that is new, those that it begins with."""
    found = table.tenants.get(tenant)
    if found is not None:
        return found
    base = table.restoration
    return Tenant(tenant, 0, 0) if base is None else Tenant(tenant, base.token_base, base.revision_base)


def _in_time(wall_ms: int) -> int:
    return wall_ms * PER_SECOND // 1000


def fault(restoration: Restoration | None, tenants: dict[str, Tenant]) -> str:
    """What contradicts itself; empty if nothing does."""
    if restoration is None:
        return ""
    for counters in tenants.values():
        if counters.last_token < JUMP or counters.revision < JUMP:
            return f"tenant {counters.tenant!r} counts as if nothing had been put back"
    return ""
