"""The lease machine and the model side by side: fed the same commands, compared after each.

Three parties hear every command: the model; the machine; and a second replica of it that hears the
command through its encoding and is now and then taken down and started again from its snapshot. A
difference of any kind is raised as Diverged with the whole history before it.

What is compared: the answer, the events, what the table's queries say of every key and session, cluster
time and counters; the two replicas' answers and digests; the machine's own full check. What is demanded
of the machine whatever the model says stands in ``Ledger``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from model_lease import Model, Row
from model_scripts import KEYS, STEP_BYTES, TENANTS, Writer, describe

from tenure_cluster.lease import commands, results, snapshot
from tenure_cluster.lease.events import Event
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.types import Lease, Waiter

RESTART_EVERY = 40
"""About one step in so many restarts the second replica from its snapshot."""

FULL_EVERY = 16
"""Every so many steps all keys and the replicas' digests are compared, not only what the step touched."""

DRAIN_ROUNDS_MAX = 50
DUE_MAX = 100

COMMANDS: dict[str, Any] = {
    "acquire": commands.Acquire,
    "claim": commands.Claim,
    "renew": commands.Renew,
    "release": commands.Release,
    "abandon": commands.Abandon,
    "break_": commands.Break,
    "commit": commands.Commit,
    "delete_record": commands.DeleteRecord,
    "open_session": commands.OpenSession,
    "close_session": commands.CloseSession,
    "expire": commands.Expire,
    "tick": commands.Tick,
}


class Diverged(AssertionError):
    """The machine and the model, or two replicas, or the machine and its own rules, do not agree."""


def command_of(plain: Row) -> Any:
    """The machine's command for a model's command."""
    kind = COMMANDS[plain["op"]]
    fields = {name: plain[name] for name in kind.__struct_fields__}
    if "items" in fields:
        fields["items"] = [commands.ExpireItem(**item) for item in fields["items"]]
    return kind(**fields)


def plain_of(value: Any) -> Any:
    """A result of the machine as the dictionaries that the model speaks."""
    if isinstance(value, list):
        return [plain_of(item) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    fields = msgspec.structs.asdict(value)
    for name, inner in fields.items():
        if isinstance(inner, list | msgspec.Struct):
            fields[name] = plain_of(inner)
    if type(value).__module__ == results.__name__:
        fields["is"] = type(value).__name__
        fields.pop("detail", None)  # Wording for people is nobody's contract.
    return fields


ENDED_BY = {
    "released": {"release", "abandon", "close_session"},
    "broken": {"break_"},
    "expired": set(COMMANDS) - {"tick"},
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


def demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Diverged(otherwise)


class Comparison:
    """One history played to the model and two replicas."""

    def __init__(
        self, make: Callable[..., LeaseMachine] = LeaseMachine, counts: Counter[str] | None = None
    ) -> None:
        self.make = make
        self.model = Model()
        self.writer = Writer(self.model)
        self.machine = make()
        self.replica = make()
        self.ledger = Ledger(self.machine)
        self.history: list[str] = []
        self.counts: Counter[str] = counts if counts is not None else Counter()

    def play(self, script: Iterable[bytes]) -> None:
        """Play a whole script and let the reaper finish what is left; Diverged tells the history."""
        try:
            for data in script:
                self.step(data)
            self.drain()
            self.same_tables()
        except Exception as error:
            told = "\n".join(self.history)
            raise Diverged(f"{type(error).__name__}: {error}\nafter:\n{told}") from error

    def step(self, data: bytes) -> None:
        written = self.writer.command(data)
        if written is None:
            return
        self.apply(*written)
        if data[STEP_BYTES - 1] % RESTART_EVERY == RESTART_EVERY - 1:
            self.restart()

    def apply(self, at_ms: int, plain: Row) -> None:
        self.history.append(describe(at_ms, plain))
        command = command_of(plain)
        self.ledger.look()
        expected, expected_events = self.model.step(at_ms, plain)
        applied = self.machine.apply(at_ms, command)
        again = self.replica.apply(at_ms, commands.decode(commands.encode(command)))
        self.count(plain, expected, expected_events)

        same("answer", expected, plain_of(applied.result))
        same("events", expected_events, [msgspec.structs.asdict(event) for event in applied.events])
        same("answer of the second replica", applied, again)
        self.ledger.check(plain["op"], applied.events)
        self.machine.check()
        self.same_counters()
        self.same_sessions()
        looked_at = {(event["tenant"], event["key"]) for event in expected_events}
        for tenant, key in looked_at | {(plain["tenant"], key) for key in self.named(plain)}:
            self.same_key(tenant, key)
        if len(self.history) % FULL_EVERY == 0:
            self.same_tables()

    def count(self, plain: Row, result: Row, events: list[Row]) -> None:
        """Coverage marks: which answers and events a campaign has met."""
        name = f"{plain['op']} {result['is']}"
        for field in ("code", "reason", "replayed", "claimed", "already", "had"):
            if field in result:
                name += f" {field}={result[field]}"
        self.counts[name] += 1
        self.counts["steps"] += 1
        kinds = [event["kind"] for event in events]
        for first, second in itertools.pairwise(kinds):
            self.counts[f"{first} then {second}"] += 1

    def restart(self) -> None:
        """Start the second replica again from its snapshot."""
        self.counts["restarts"] += 1
        chunks = list(snapshot.dump(self.replica.table))
        self.replica = self.make(snapshot.load(chunks))
        self.replica.check()
        same("snapshot of the restarted replica", chunks, list(snapshot.dump(self.replica.table)))
        self.same_tables()

    def same_tables(self) -> None:
        """Everything that the model knows, and the digests of the replicas."""
        for tenant in set(TENANTS):
            for key in set(KEYS):
                self.same_key(tenant, key)
        same("digest", snapshot.digest(self.machine.table), snapshot.digest(self.replica.table))

    def named(self, plain: Row) -> list[str]:
        """Keys that a command names."""
        return plain["keys"] if "keys" in plain else [plain["key"]] if "key" in plain else []

    def same_counters(self) -> None:
        model, table = self.model, self.machine.table
        same("cluster time", model.time, table.time_ms)
        mine = {tenant: (model.tokens.get(tenant, 0), number) for tenant, number in model.revisions.items()}
        theirs = {row.tenant: (row.last_token, row.revision) for row in table.tenants.values()}
        same("counters", mine, theirs)

    def same_sessions(self) -> None:
        model, table = self.model, self.machine.table
        mine = [row for row in model.sessions if model.alive(row)]
        theirs = {where for where, row in table.sessions.items() if row.deadline_ms > table.time_ms}
        same("live sessions", {(row["tenant"], row["session_id"]) for row in mine}, theirs)
        for row in mine:
            session = table.session(row["tenant"], row["session_id"])
            assert session is not None
            same(
                f"session {row['session_id']}",
                (row["deadline_ms"], row["ttl_ms"], row["private"], row["owner"]),
                (session.deadline_ms, session.ttl_ms, session.private, session.owner),
            )

    def same_key(self, tenant: str, key: str) -> None:
        model, table = self.model, self.machine.table
        mine = [model.shown(lease) for lease in model.holders(tenant, key) if not model.dead(lease)]
        now = table.time_ms
        theirs = [
            plain_of(grant)
            for grant in table.holders(tenant, key)
            if grant.session.deadline_ms > now and not 0 < grant.lease.claim_deadline_ms <= now
        ]
        same(f"holders of {key}", mine, theirs)
        queue = [row["request_id"] for row in model.queue(tenant, key) if not model.gone(row)]
        same(
            f"queue of {key}",
            queue,
            [row.request_id for row in table.queue(tenant, key) if self.counts_yet(row)],
        )
        record = table.record(tenant, key)
        same(f"record of {key}", model.record(tenant, key), None if record is None else plain_of(record))
        state, present = model.key(tenant, key), table.key_state(tenant, key)
        same(f"state of {key} is kept", state is not None, present is not None)
        if state is not None and present is not None:
            guard = present.guards.get(0)
            shown = (guard.floor, guard.last_token, guard.last_seq) if guard else (0, 0, 0)
            same(f"guard of {key}", (state["floor"], state["last_token"], state["last_seq"]), shown)
            same(f"guard mode of {key}", state["guard_mode"], present.guard_mode)
            grace = [max(0, ms - now) for ms in (state["blocked_until_ms"], present.blocked_until_ms)]
            same(f"grace of {key}", *grace)

    def counts_yet(self, waiter: Any) -> bool:
        session = self.machine.table.sessions.get((waiter.tenant, waiter.session_id))
        now = self.machine.table.time_ms
        return session is not None and session.deadline_ms > now and waiter.poll_deadline_ms > now

    def drain(self) -> None:
        """Propose what the table says is due until nothing is; then nothing may be left that is over."""
        table = self.machine.table
        for _ in range(DRAIN_ROUNDS_MAX):
            due = table.due(table.time_ms, DUE_MAX)
            if not due:
                break
            items = [msgspec.structs.asdict(item) for item in due]
            self.apply(table.time_ms, {"op": "expire", "items": items, "wall_ms": 1_700_000_000_000})
        demand(not table.due(table.time_ms, DUE_MAX), "the reaper's work has no end")
        model = self.model
        demand(all(model.alive(row) for row in model.sessions), "an expired session was never due")
        demand(not any(model.dead(row) for row in model.leases), "a dead lease was never due")
        demand(not any(model.gone(row) for row in model.waiters), "a silent waiter was never due")
        for state in model.keys:
            waited_for = model.queue(state["tenant"], state["key"]) and not model.holders(
                state["tenant"], state["key"]
            )
            demand(
                not waited_for or state["blocked_until_ms"] > model.time,
                f"{state['key']} is free, and its waiters are not served",
            )


def same(what: str, expected: Any, found: Any) -> None:
    if expected != found:
        raise Diverged(f"{what}:\n  expected {expected}\n  found    {found}")
