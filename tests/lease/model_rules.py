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
    "handed_over": {"handover"},
    "broken": {"break_"},
    "expired": {
        *("acquire", "claim", "renew", "release", "abandon", "break_", "close_session", "expire"),
        *("handover", "park", "unpark", "resize"),
    },
}
"""Which commands can end a lease in which way."""


class Ledger:
    """Rules of the service that need no model, checked on the machine's events and table alone."""

    def __init__(self, machine: LeaseMachine) -> None:
        self.machine = machine
        self.tokens: dict[str, int] = {}
        self.revisions: dict[str, int] = {}
        self.held: dict[tuple[str, str], list[int]] = {}
        self.at_slot: dict[tuple[str, str, int], int] = {}
        """The token that was last granted, or taken up with, at each slot."""
        self.leases: dict[Any, tuple[Lease, int]] = {}
        self.waiters: list[Waiter] = []
        self.slots: dict[tuple[str, str], int] = {}
        """How many slots each pool had before the command."""

    def look(self) -> None:
        """Remember who holds until when and who waits, before a command."""
        table = self.machine.table
        self.waiters = list(table.waiters.values())
        self.slots = {(row.tenant, row.key): row.slots for row in table.keys.values()}
        self.leases = {}
        for where, lease in table.leases.items():
            deadline_ms = table.sessions[lease.tenant, lease.session_id].deadline_ms
            life = lease.life
            for other_ms in (lease.claim_deadline_ms, life.progress_deadline_ms if life else 0):
                deadline_ms = min(deadline_ms, other_ms or deadline_ms)
            self.leases[where] = (lease, deadline_ms)

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
        present = self.held.setdefault(where, [])
        if event.kind == "granted":
            joins = event.token in present
            rose = event.token > self.tokens.get(event.tenant, 0)
            demand(joins or rose, f"token {event.token} did not rise")
            self.tokens[event.tenant] = max(event.token, self.tokens.get(event.tenant, 0))
            present.append(event.token)
            self.at_slot[event.tenant, event.key, event.slot] = event.token
        elif event.kind == "unparked":
            demand(event.token > self.tokens.get(event.tenant, 0), f"token {event.token} did not rise")
            self.tokens[event.tenant] = event.token
            before = self.at_slot.get((event.tenant, event.key, event.slot), 0)
            demand(before in present, f"a lease without token {before} was unparked")
            present[present.index(before)] = event.token
            self.at_slot[event.tenant, event.key, event.slot] = event.token
        elif event.kind == "parked":
            demand(event.token in present, f"token {event.token} was parked and did not hold")
        elif event.kind in ENDED_BY:
            may_end = ENDED_BY["expired"] if event.detail == "session_closed" else ENDED_BY[event.kind]
            demand(op in may_end, f"{op} told {event.kind}")
            demand(event.token in present, f"token {event.token} ended and did not hold")
            present.remove(event.token)
        # A handover gives one holder's place to another.
        self.check_together(where, present, grown=event.kind == "granted" and op != "handover")

    def check_together(self, where: tuple[str, str], present: list[int], *, grown: bool) -> None:
        """Those hold at the same time who may, after every single event: readers of one phase, or permits of
        one pool, each with a token of its own. A pool that was made smaller keeps whom it has, and takes
        nobody in beyond its slots."""
        pools = {(row.tenant, row.key): row.slots for row in self.machine.table.keys.values()}
        if len(present) > 1 and len(set(present)) > 1:
            slots = max(pools.get(where, 1), self.slots.get(where, 1))
            demand(len(set(present)) == len(present), f"{where}: tokens {present} held at the same time")
            demand(not grown or len(present) <= slots, f"{where}: more than one holder, {present}")

    def check_ends(self, events: list[Event]) -> None:
        """Every lease that is gone was told to be, once, and none expired before its deadline."""
        table = self.machine.table
        gone: dict[tuple[str, int], list[int]] = {}
        for where, (lease, deadline_ms) in self.leases.items():
            if where not in table.leases:
                gone.setdefault((lease.tenant, lease.token), []).append(deadline_ms)
        for (tenant, token), deadlines_ms in gone.items():
            ends = [
                event.kind
                for event in events
                if (event.tenant, event.token) == (tenant, token) and event.kind in ENDED_BY
            ]
            demand(len(ends) == len(deadlines_ms), f"the end of token {token} was told {len(ends)} times")
            over = [deadline_ms for deadline_ms in deadlines_ms if deadline_ms <= table.time_ms]
            demand(ends.count("expired") <= len(over), f"token {token} expired before {deadlines_ms}")

    def check_holders(self) -> None:
        """The holders are those that the events tell of; no floor is below a holder's token; no slot is taken
        twice, and one who holds alone is alone."""
        table = self.machine.table
        held: dict[tuple[str, str], list[Lease]] = {}
        for lease in table.leases.values():
            state = table.key_state(lease.tenant, lease.key)
            floor = state.guards[lease.slot].floor if state is not None else 0
            demand(floor == lease.token, f"floor {floor} at the slot of present token {lease.token}")
            held.setdefault((lease.tenant, lease.key), []).append(lease)
        for where, leases in held.items():
            modes = {lease.mode for lease in leases}
            demand(len(modes) == 1, f"{where} is held in modes {modes}")
            demand(len(leases) == 1 or modes != {"exclusive"}, f"two holders of {where}")
            slots = {lease.slot for lease in leases}
            demand(modes != {"permit"} or len(slots) == len(leases), f"a slot of {where} is taken twice")
            tokens = {lease.token for lease in leases}
            demand(modes != {"shared"} or len(tokens) == 1, f"readers of {where} have tokens {tokens}")
        tokens_of = {where: sorted(lease.token for lease in leases) for where, leases in held.items()}
        told = {where: sorted(tokens) for where, tokens in self.held.items() if tokens}
        demand(tokens_of == told, "the holders are not those that the events tell of")

    def check_order(self) -> None:
        """Nobody is granted while a waiter of the same key alone that came before still waits, and a waiter
        is granted all its keys or none."""
        table = self.machine.table
        for waiter in self.waiters:
            granted = [lease_id for lease_id in waiter.lease_ids if (waiter.tenant, lease_id) in table.leases]
            if not granted:
                continue
            demand(granted == waiter.lease_ids, f"{granted} are half of a set {waiter.lease_ids}")
            for key in waiter.keys:
                left = [row.ticket for row in table.queue(waiter.tenant, key) if len(row.keys) == 1]
                demand(
                    not left or min(left) > waiter.ticket, f"ticket {waiter.ticket} was granted out of turn"
                )
