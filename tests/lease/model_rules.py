"""What must hold of the lease machine whatever any model says."""

from __future__ import annotations

from typing import Any

from tenure_cluster.lease.events import Event
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.types import Lease, Waiter


class Diverged(AssertionError):
    """The machine and the model, or two replicas, or the machine and its own rules, do not agree."""


def demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Diverged(otherwise)


def same(what: str, expected: Any, found: Any) -> None:
    if expected != found:
        raise Diverged(f"{what}:\n  expected {expected}\n  found    {found}")


ENDED_BY = {
    "released": {"release", "abandon", "close_session"},
    "broken": {"break_"},
    "expired": {
        *("acquire", "claim", "renew", "release", "abandon", "break_", "close_session", "expire"),
    },
}
"""Which commands can end a lease in which way."""


class Ledger:
    """Rules of the service that need no model, checked on the machine's events and table alone."""

    def __init__(self, machine: LeaseMachine) -> None:
        self.machine = machine
        self.tokens: dict[str, int] = {}
        self.revisions: dict[str, int] = {}
        self.held: dict[tuple[str, str], int] = {}
        self.leases: dict[Any, tuple[Lease, int]] = {}
        self.waiters: list[Waiter] = []

    def look(self) -> None:
        """Remember who holds until when and who waits, before a command."""
        table = self.machine.table
        self.waiters = list(table.waiters.values())
        self.leases = {}
        for where, lease in table.leases.items():
            deadline_ms = table.sessions[lease.tenant, lease.session_id].deadline_ms
            self.leases[where] = (lease, min(deadline_ms, lease.claim_deadline_ms or deadline_ms))

    def check(self, op: str, events: list[Event]) -> None:
        """Hold what a command did against the rules."""
        for event in events:
            self.hear(op, event)
        self.check_ends(events)
        self.check_holders()
        self.check_order()

    def hear(self, op: str, event: Event) -> None:
        where = (event.tenant, event.key)
        demand(
            event.revision == self.revisions.get(event.tenant, 0) + 1,
            f"revision {event.revision} out of turn",
        )
        self.revisions[event.tenant] = event.revision
        if event.kind == "granted":
            demand(where not in self.held, f"{event.key} granted while it was held")
            demand(event.token > self.tokens.get(event.tenant, 0), f"token {event.token} did not rise")
            self.tokens[event.tenant] = event.token
            self.held[where] = event.token
        elif event.kind in ENDED_BY:
            demand(op in ENDED_BY[event.kind], f"{op} told {event.kind}")
            if self.held.get(where) == event.token:
                del self.held[where]

    def check_ends(self, events: list[Event]) -> None:
        """Every lease that is gone was told to be, once, and none expired before its deadline."""
        table = self.machine.table
        for where, (lease, deadline_ms) in self.leases.items():
            if where not in table.leases:
                told = [
                    event for event in events if (event.tenant, event.token) == (lease.tenant, lease.token)
                ]
                ends = [event.kind for event in told if event.kind in ENDED_BY]
                demand(len(ends) == 1, f"the end of token {lease.token} was told {len(ends)} times")
                early = ends == ["expired"] and deadline_ms > table.time_ms
                demand(not early, f"token {lease.token} expired before its deadline {deadline_ms}")

    def check_holders(self) -> None:
        """At most one holder a key, those that the events tell of, and no floor below a holder's token."""
        table = self.machine.table
        for lease in table.leases.values():
            state = table.key_state(lease.tenant, lease.key)
            floor = state.guards[lease.slot].floor if state is not None else 0
            demand(floor >= lease.token, f"floor below present token {lease.token}")
        held = {(lease.tenant, lease.key): lease.token for lease in table.leases.values()}
        demand(len(held) == len(table.leases), "two holders of one key")
        demand(held == self.held, "the holders are not those that the events tell of")

    def check_order(self) -> None:
        """Nobody is granted while a waiter of the same key that came before still waits."""
        table = self.machine.table
        for waiter in self.waiters:
            if (waiter.tenant, waiter.lease_ids[0]) in table.leases:
                left = [row.ticket for row in table.queue(waiter.tenant, waiter.keys[0])]
                demand(
                    not left or min(left) > waiter.ticket, f"ticket {waiter.ticket} was granted out of turn"
                )
