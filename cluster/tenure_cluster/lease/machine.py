"""The lease state machine: one command in, its result and events out.

apply() is total: every refusal is a result. It is deterministic: the same commands with the same stamps give
the same state, results and events on every node. What it may use is the command, the stamp and the table,
nothing else; ids were drawn by the leader and are part of the command.

How a command is applied: cluster time moves to its stamp (never back), what is over by then is forgotten in
bounded steps, then the command runs at that time. Everything that expires is evaluated where it is met, at
that time, so nothing depends on when the reaper comes.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tenure_cluster.lease import auditing
from tenure_cluster.lease.acquiring import abandon, acquire, claim
from tenure_cluster.lease.audit_trail import Noted
from tenure_cluster.lease.commands import (
    Abandon,
    Acquire,
    AnyCommand,
    Break,
    Claim,
    CloseSession,
    Commit,
    DeleteRecord,
    Expire,
    Handover,
    OpenSession,
    Park,
    Release,
    Renew,
    Resize,
    Tick,
    Unpark,
)
from tenure_cluster.lease.credentials import CredentialResult
from tenure_cluster.lease.entrusting import HANDLERS
from tenure_cluster.lease.events import Event
from tenure_cluster.lease.expiring import expire, sweep
from tenure_cluster.lease.guards import commit, delete_record
from tenure_cluster.lease.invariants import check_table
from tenure_cluster.lease.passing import handover, park, unpark
from tenure_cluster.lease.quota import QuotaResult
from tenure_cluster.lease.resizing import resize
from tenure_cluster.lease.restoration import settle
from tenure_cluster.lease.results import Done, Result
from tenure_cluster.lease.rules import AdoptRules
from tenure_cluster.lease.sessions import break_key, close_session, open_session, release, renew
from tenure_cluster.lease.step import InvariantBroken, Step
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import ClusterTime

__all__ = ["Applied", "InvariantBroken", "LeaseMachine"]


class Applied(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one command came to."""

    result: Result | CredentialResult | QuotaResult | Noted
    events: list[Event]


def _tick(_step: Step, _asked: Tick) -> Result:
    return Done(0)


def _adopt(step: Step, asked: AdoptRules) -> Result:
    """Answers 1 if the rules are others now, else 0."""
    if asked.rules <= step.table.rules:
        return Done(0)
    step.table.rules = asked.rules
    return Done(1)


_HANDLERS: Final[dict[type, Callable[[Step, Any], Result | CredentialResult | QuotaResult | Noted]]] = {
    Acquire: acquire,
    Claim: claim,
    Renew: renew,
    Release: release,
    Abandon: abandon,
    Break: break_key,
    Commit: commit,
    DeleteRecord: delete_record,
    OpenSession: open_session,
    CloseSession: close_session,
    Expire: expire,
    Tick: _tick,
    Handover: handover,
    Park: park,
    Unpark: unpark,
    Resize: resize,
    **HANDLERS,
    **auditing.HANDLERS,
    AdoptRules: _adopt,
}


class LeaseMachine:
    """A lease table and the one way to change it."""

    def __init__(self, table: LeaseTable | None = None) -> None:
        self.table = table if table is not None else LeaseTable()
        self._wall_ms = 0

    def apply(self, at_ms: ClusterTime, command: AnyCommand) -> Applied:
        """Apply one command stamped ``at_ms``. Raises InvariantBroken only if the state contradicts
        itself."""
        table = self.table
        moved = at_ms > table.time_ms
        if moved:
            table.time_ms = at_ms
        wall_ms = command.wall_ms
        if wall_ms == self._wall_ms:
            wall_ms = self._wall_ms  # the one number that all share whose commands came together
        else:
            self._wall_ms = wall_ms
        step = Step(table, table.time_ms, wall_ms)
        if table.restoration is not None and not table.restoration.settled:
            settle(step)
        if moved:
            sweep(step)
        audit = table.audit
        if audit.due_ms <= step.now_ms:
            auditing.sweep_audit(step)
        result = _HANDLERS[type(command)](step, command)
        if audit.on:
            auditing.observe(step, command, result)
        return Applied(result, step.events)

    def tidy(self, steps: int) -> None:
        """What time and snapshots leave to be done beside the state, in a bounded number of steps of each
        kind. Called once an entry: each command of it would have to do more than it can cause, and a large
        entry would do all of it at once."""
        table = self.table
        table.deadlines.advance(table.time_ms, steps)
        if table.frozen:
            table.thaw(steps)

    def check(self) -> None:
        """Verify every invariant of the state and that the indexes agree with it. Takes time in
        proportion to the table. Raises InvariantBroken."""
        check_table(self.table)
