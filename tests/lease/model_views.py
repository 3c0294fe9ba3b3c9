"""What the lease table's queries answer, held against what the model knows."""

from __future__ import annotations

from typing import Any

import msgspec
from model_lease import Model
from model_rules import demand, same

from tenure_cluster.lease import results
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.table import LeaseTable

PAGE = 2
DUE_MAX = 3
AHEAD_MS = 700
"""The reaper asks for a moment that lies some way ahead of the last entry's stamp."""


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


class Views:
    """Compares a model and a machine."""

    def __init__(self, model: Model, machine: LeaseMachine) -> None:
        self.model = model
        self.machine = machine

    @property
    def table(self) -> LeaseTable:
        return self.machine.table

    def same_counters(self) -> None:
        model, table = self.model, self.table
        same("cluster time", model.time, table.time_ms)
        mine = {tenant: (model.tokens.get(tenant, 0), number) for tenant, number in model.revisions.items()}
        theirs = {row.tenant: (row.last_token, row.revision) for row in table.tenants.values()}
        same("counters", mine, theirs)

    def same_sessions(self) -> None:
        model, table = self.model, self.table
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
        model, table = self.model, self.table
        mine = [model.shown(lease) for lease in model.holders(tenant, key) if not model.dead(lease)]
        now = table.time_ms
        theirs = [
            plain_of(grant) for grant in table.holders(tenant, key) if table.lease_deadline(grant.lease) > now
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
            names = ("floor", "last_token", "last_seq", "lease_id", "owner")
            guards = {
                slot: {name: getattr(guard, name) for name in names} for slot, guard in present.guards.items()
            }
            same(f"guards of {key}", state["guards"], guards)
            if model.holders(tenant, key):
                same(f"mode of {key}", (state["mode"], state["slots"]), (present.mode, present.slots))
            same(f"guard mode of {key}", state["guard_mode"], present.guard_mode)
            grace = [max(0, ms - now) for ms in (state["blocked_until_ms"], present.blocked_until_ms)]
            same(f"grace of {key}", *grace)

    def counts_yet(self, waiter: Any) -> bool:
        session = self.table.sessions.get((waiter.tenant, waiter.session_id))
        now = self.table.time_ms
        return session is not None and session.deadline_ms > now and waiter.poll_deadline_ms > now

    def same_listing(self, tenant: str) -> None:
        """All leases of a tenant, page by page."""
        listed: list[results.Grant] = []
        after: str | None = None
        while True:
            page, next_after = self.table.list_leases(tenant, "k", after, None, PAGE)
            listed += page
            demand(bool(page) or after is None, "a page after another is empty")
            if next_after is None:
                break
            demand(len(page) >= PAGE, "a page that is not the last is not full")
            after = next_after
        held = [row for row in self.model.leases if row["tenant"] == tenant]
        held.sort(key=lambda row: row["key"].encode())
        same("listing", [row["key"] for row in held], [grant.lease.key for grant in listed])
        named = {row["owner"]: [] for row in held} | {"nobody": []}
        for owner in named:
            named[owner] = [row["lease_id"] for row in held if row["owner"] == owner]
            page, _ = self.table.list_leases(tenant, "", None, owner, len(held) + 1)
            same(f"listing of {owner}", named[owner], [grant.lease.lease_id for grant in page])

    def same_requests(self) -> None:
        """The grant of each request, and the number of each session's leases."""
        model, table = self.model, self.table
        for row in model.leases:
            session = model.session(row["tenant"], row["session_id"])
            assert session is not None
            scope = row["scope"]
            granted = table.granted(row["tenant"], scope, row["request_id"]) or []
            ids = [other["lease_id"] for other in model.together(row)]
            whole = len(ids) == len(row["set"] or [1])
            same("grants of a request", ids if whole else [], [grant.lease.lease_id for grant in granted])
        for row in model.waiters + model.ended:
            scope = row["scope"] if "scope" in row else "" if row["private"] else row["session_id"]
            if model.lease_of(row["tenant"], scope, row["request_id"]) is None:
                same("grant", None, table.granted(row["tenant"], scope, row["request_id"]))
        for row in model.sessions:
            leases = [lease for lease in model.leases if lease["session_id"] == row["session_id"]]
            leases = [lease for lease in leases if lease["tenant"] == row["tenant"]]
            same("number of leases", len(leases), table.lease_count(row["tenant"], row["session_id"]))

    def check_deadlines(self) -> None:
        """The reaper is told of nothing that is not due, and is never told to look too late."""
        model, table = self.model, self.table
        now_ms = model.time + AHEAD_MS
        due = table.due(now_ms, DUE_MAX)
        demand(len(due) <= DUE_MAX, f"{len(due)} items are due where {DUE_MAX} were asked for")
        for item in due:
            demand(item.deadline_ms <= now_ms, f"{item} is not due at {now_ms}")
        deadlines = [model.deadline(row) for row in model.leases]
        deadlines += [row["poll_deadline_ms"] for row in model.waiters]
        deadlines += [row["deadline_ms"] for row in model.sessions if not row["private"]]
        for state in model.keys:
            where = (state["tenant"], state["key"])
            if model.queue(*where) and not model.holders(*where) and state["blocked_until_ms"]:
                deadlines.append(state["blocked_until_ms"])
        next_ms = table.next_deadline()
        if deadlines:
            demand(next_ms is not None, "something will be over, and nobody is to look")
            assert next_ms is not None
            # Among what is due already any may be named: the reaper is to look at once.
            latest_ms = max(min(deadlines), now_ms)
            demand(next_ms <= latest_ms, f"to look at {next_ms} is too late for {latest_ms}")
        demand(table.has_live_sessions() or not model.sessions, "nobody keeps time for the sessions")

    def check_nothing_is_over(self) -> None:
        """Once the reaper has done all it was told, nothing that is over is left and nobody waits in vain."""
        model = self.model
        demand(all(model.alive(row) for row in model.sessions), "an expired session was never due")
        demand(not any(model.dead(row) for row in model.leases), "a dead lease was never due")
        demand(not any(model.gone(row) for row in model.waiters), "a silent waiter was never due")
        for state in model.keys:
            where = (state["tenant"], state["key"])
            first = (model.queue(*where) or [None])[0]
            demand(
                first is None
                or len(first["keys"]) > 1
                or not model.room(*where, first["mode"], first["slots"])
                or state["blocked_until_ms"] > model.time
                or model.tokens.get(state["tenant"], 0) >= model.bounds["tokens"],
                f"{state['key']} is free, and its waiters are not served",
            )
