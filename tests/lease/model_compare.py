"""The lease machine and the model side by side: fed the same commands, compared after each.

Three parties hear every command: the model; the machine; and a second replica of it that hears the
command through its encoding. Now and then the second is taken down, started again from its snapshot, and
changes places with the first. A difference of any kind is raised as Diverged with the whole history
before it.

What is compared: the answer, the events, what the table's queries say of every key and session, cluster
time and counters; the two replicas' answers and digests; the machine's own full check. What is demanded
of the machine whatever the model says stands in ``Ledger``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from model_coverage import count_marks
from model_lease import Model
from model_rules import Diverged, Ledger, demand, same
from model_scripts import KEYS, STEP_BYTES, TENANTS, Writer, describe
from model_state import Row
from model_views import Views, plain_of

from tenure_cluster.lease import commands, snapshot
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.rules import PRESENT

RESTART_EVERY = 40
"""About one step in so many restarts the second replica from its snapshot."""

FULL_EVERY = 16
TIDY_STEPS = 500
"""Every so many steps all keys and the replicas' digests are compared, not only what the step touched."""

REAP_ROUNDS_MAX = 50
DUE_MAX = 100

LONG_MS = 300_000
"""Longer than any TTL, grace period or silence in a history."""

WALL_MS = 1_700_000_000_000

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
    "handover": commands.Handover,
    "park": commands.Park,
    "unpark": commands.Unpark,
    "resize": commands.Resize,
    "tick": commands.Tick,
}


def command_of(plain: Row) -> Any:
    """The machine's command for a model's command. The model knows nothing of who asks and from where."""
    kind = COMMANDS[plain["op"]]
    fields = {name: plain[name] for name in kind.__struct_fields__ if name in plain}
    if "items" in fields:
        fields["items"] = [commands.ExpireItem(**item) for item in fields["items"]]
    if fields.get("progress") is not None:
        fields["progress"] = commands.ProgressNote(**fields["progress"])
    return kind(**fields)


class Comparison:
    """One history played to the model and two replicas. ``make`` builds a machine, of a table if it is given
    one; ``bounds`` are the model's where the machine's limits are not the usual ones."""

    def __init__(
        self,
        make: Callable[..., LeaseMachine] = LeaseMachine,
        counts: Counter[str] | None = None,
        bounds: dict[str, int] | None = None,
    ) -> None:
        self.make = make
        self.model = Model(bounds)
        self.writer = Writer(self.model)
        self.machine = make()
        self.replica = make()
        for machine in (self.machine, self.replica):
            machine.table.rules = PRESENT
        self.ledger = Ledger(self.machine)
        self.views = Views(self.model, self.machine)
        self.history: list[str] = []
        self.begun: tuple[str, Iterator[bytes]] | None = None
        self.counts: Counter[str] = counts if counts is not None else Counter()

    def play(self, script: Iterable[bytes]) -> None:
        """Play a whole script and let the reaper finish what is left; Diverged tells the history."""
        try:
            for data in script:
                self.step(data)
            self.drain()
            self.same_tables()
            self.finish_snapshot()
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
        for machine in (self.machine, self.replica):
            machine.tidy(TIDY_STEPS)
        self.count(plain, expected, expected_events)

        same("answer", expected, plain_of(applied.result))
        same("events", expected_events, [msgspec.structs.asdict(event) for event in applied.events])
        same("answer of the second replica", applied, again)
        self.ledger.check(plain["op"], applied.events)
        self.machine.check()
        self.views.same_counters()
        self.views.same_sessions()
        looked_at = {(event["tenant"], event["key"]) for event in expected_events}
        for tenant, key in looked_at | {(plain["tenant"], key) for key in self.named(plain)}:
            self.views.same_key(tenant, key)
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
        count_marks(self.counts, COMMANDS[plain["op"]].__name__, plain, result, events)
        if plain["op"] == "expire":
            self.counts.update(f"item {kind}" for kind in self.model.ended_items)
        self.counts["an entry has granted enough"] += self.model.grants_left <= 0
        self.counts["a session is closed bit by bit"] += any(row["closed"] for row in self.model.sessions)
        kinds = [event["kind"] for event in events]
        for first, second in itertools.pairwise(kinds):
            self.counts[f"{first} then {second}"] += 1

    def restart(self) -> None:
        """Start the second replica again from its snapshot. From then on it is the one that is looked at."""
        self.counts["restarts"] += 1
        self.finish_snapshot()
        self.begun = (snapshot.digest(self.machine.table), snapshot.dump(self.machine.table))
        chunks = list(snapshot.dump(self.replica.table))
        restarted = self.make(snapshot.load(chunks))
        restarted.check()
        same("snapshot of the restarted replica", chunks, list(snapshot.dump(restarted.table)))
        self.machine, self.replica = restarted, self.machine
        self.ledger.machine = self.views.machine = restarted
        self.same_tables()

    def finish_snapshot(self) -> None:
        """Write out the snapshot of the machine that was begun some time ago: it must be of that time."""
        if self.begun is not None:
            digest, chunks = self.begun
            same("snapshot begun before", digest, snapshot.digest(snapshot.load(chunks)))

    def same_tables(self) -> None:
        """Everything that the model knows, and the digests of the replicas."""
        for tenant in set(TENANTS):
            for key in set(KEYS):
                self.views.same_key(tenant, key)
            self.views.same_listing(tenant)
        self.views.same_requests()
        self.views.check_deadlines()
        same("digest", snapshot.digest(self.machine.table), snapshot.digest(self.replica.table))

    def named(self, plain: Row) -> list[str]:
        """Keys that a command names."""
        return plain["keys"] if "keys" in plain else [plain["key"]] if "key" in plain else []

    def drain(self) -> None:
        """Let the reaper finish: what is over now, and after a long time what nobody has kept up."""
        self.reap()
        self.apply(self.model.time + LONG_MS, {"op": "tick", "tenant": "", "wall_ms": WALL_MS})
        self.reap()
        demand(not self.model.sessions, "a session outlived its time")
        self.counts["drained"] += 1

    def reap(self) -> None:
        """Propose what the table says is due until nothing is; then nothing may be left that is over."""
        table = self.machine.table
        for _ in range(REAP_ROUNDS_MAX):
            due = table.due(table.time_ms, DUE_MAX)
            if not due:
                break
            items = [msgspec.structs.asdict(item) for item in due]
            self.apply(table.time_ms, {"op": "expire", "tenant": "", "items": items, "wall_ms": WALL_MS})
        demand(not table.due(table.time_ms, DUE_MAX), "the reaper's work has no end")
        self.views.check_nothing_is_over()
