"""A small world around the lease machine, for tests to tell stories in.

It keeps the leader's clock, draws ids, and applies every command twice: to the machine, and through the
command's encoding to a replica. After each command the answers must agree and the table be whole. So no
test can pass on a machine that is not deterministic or that broke an invariant on the way.
"""

from typing import Any, TypeVar

from tenure_cluster.lease import commands, results, snapshot
from tenure_cluster.lease.events import Event
from tenure_cluster.lease.machine import Applied, LeaseMachine
from tenure_cluster.lease.rules import PRESENT
from tenure_cluster.lease.types import GuardMode

TENANT = "default"
EPOCH_WALL_MS = 1_800_000_000_000

R = TypeVar("R")


class World:
    """One lease machine with a replica, at a time that the test moves."""

    def __init__(self) -> None:
        self.machine = LeaseMachine()
        self.replica = LeaseMachine()
        for machine in (self.machine, self.replica):
            machine.table.rules = PRESENT
        self.now_ms = 1_000
        self.events: list[Event] = []
        """What the last command told the watchers."""
        self.ids = 0
        self.tidy_steps = 1_000
        """How much tidying comes with an entry, of which each has one command here."""

    @property
    def table(self) -> Any:
        return self.machine.table

    def wait(self, ms: int) -> None:
        """Let the leader's clock run."""
        self.now_ms += ms

    def apply(self, command: commands.Command, at_ms: int | None = None) -> results.Result:
        """Apply one command at the leader's time, or with another stamp."""
        at_ms = self.now_ms if at_ms is None else at_ms
        applied = self.machine.apply(at_ms, command)
        echoed: Applied = self.replica.apply(at_ms, commands.decode(commands.encode(command)))
        assert applied == echoed
        for machine in (self.machine, self.replica):
            machine.tidy(self.tidy_steps)
        self.machine.check()
        self.events = applied.events
        return applied.result

    def restart(self) -> None:
        """Take both replicas down and load them from snapshots, as after a restart."""
        for machine in (self.machine, self.replica):
            chunks = list(snapshot.dump(machine.table))
            machine.table = snapshot.load(chunks)
            assert list(snapshot.dump(machine.table)) == chunks
        self.machine.check()
        assert snapshot.digest(self.machine.table) == snapshot.digest(self.replica.table)

    def change_leader(self) -> None:
        """The cluster clock goes on from the log's last stamp: time without a leader does not count."""
        self.restart()
        self.now_ms = self.table.time_ms

    def kinds(self) -> list[str]:
        """The kinds of the last command's events."""
        return [event.kind for event in self.events]

    def fresh_id(self, kind: str) -> str:
        self.ids += 1
        return f"{kind}-{self.ids}"

    # Commands

    def acquire(self, *args: Any, **kwargs: Any) -> results.Result:
        """Apply an acquire; the arguments are those of acquire_command()."""
        return self.apply(self.acquire_command(*args, **kwargs))

    def acquire_command(
        self,
        key: str = "k",
        owner: str = "A",
        *,
        ttl_ms: int | None = 30_000,
        request: str | None = None,
        lease: str | None = None,
        session: str | None = None,
        wait: bool = False,
        grace_ms: int = 0,
        if_held: Any = "return",
        tenant: str = TENANT,
        metadata: dict[str, str] | None = None,
        progress_ms: int = 0,
        mode: Any = "exclusive",
        slots: int = 0,
        keys: list[str] | None = None,
        wall_ms: int | None = None,
    ) -> commands.Acquire:
        keys = keys if keys is not None else [key]
        first = lease if lease is not None else self.fresh_id("lease")
        return commands.Acquire(
            tenant=tenant,
            keys=keys,
            lease_ids=[first, *(f"{first}.{number}" for number in range(1, len(keys)))][: len(keys) or 1],
            owner=owner,
            session_id=session,
            ttl_ms=None if session is not None else ttl_ms,
            request_id=request if request is not None else self.fresh_id("request"),
            remember=True,
            wait=wait,
            mode=mode,
            slots=slots,
            grace_ms=grace_ms,
            if_held=if_held,
            metadata=metadata or {},
            wall_ms=self.wall_ms if wall_ms is None else wall_ms,
            progress_ms=progress_ms,
        )

    @property
    def wall_ms(self) -> int:
        return EPOCH_WALL_MS + self.now_ms

    def granted(self, *args: Any, **kwargs: Any) -> results.Grant:
        """Acquire, and be granted."""
        return grant_in(self.acquire(*args, **kwargs))

    def claim(self, lease: str, tenant: str = TENANT) -> results.Result:
        return self.apply(commands.Claim(tenant, lease, self.wall_ms))

    def renew(
        self,
        lease: str | None = None,
        *,
        session: str | None = None,
        ttl_ms: int | None = None,
        tenant: str = TENANT,
        progress: tuple[str, str, int] | None = None,
    ) -> results.Result:
        note = commands.ProgressNote(*progress) if progress is not None else None
        return self.apply(commands.Renew(tenant, lease, session, ttl_ms, self.wall_ms, note))

    def handover(self, lease: str, to: str, new: str | None = None) -> results.Result:
        new = new if new is not None else self.fresh_id("handed")
        return self.apply(commands.Handover(TENANT, lease, to, new, self.wall_ms))

    def park(self, lease: str, limit_ms: int = 3_600_000, token: int | None = None) -> results.Result:
        return self.apply(commands.Park(TENANT, lease, limit_ms, self.wall_ms, token))

    def unpark(
        self, lease: str, session: str | None = None, ttl_ms: int | None = None, token: int | None = None
    ) -> results.Result:
        return self.apply(commands.Unpark(TENANT, lease, session, ttl_ms, self.wall_ms, token))

    def release(self, lease: str, tenant: str = TENANT, *, whole_set: bool = False) -> results.Result:
        return self.apply(commands.Release(tenant, lease, self.wall_ms, whole_set))

    def abandon(
        self, request: str, session: str | None = None, *, polled_until_ms: int | None = None
    ) -> results.Result:
        return self.apply(commands.Abandon(TENANT, request, session, self.wall_ms, polled_until_ms))

    def break_key(self, key: str = "k", reason: str = "stuck") -> results.Result:
        return self.apply(commands.Break(TENANT, key, reason, "operator", self.wall_ms))

    def resize(self, slots: int, key: str = "k") -> results.Result:
        return self.apply(commands.Resize(TENANT, key, slots, "operator", self.wall_ms))

    def commit(
        self,
        grant: results.Grant | None = None,
        *,
        key: str | None = None,
        lease: str | None = None,
        token: int | None = None,
        mode: GuardMode = "current",
        slot: int = 0,
        seq: int | None = None,
        op: str | None = None,
        require_live: bool = True,
        if_revision: int | None = None,
        value: bytes | None = None,
        binary: bool = False,
        digest: str = "",
        tenant: str = TENANT,
    ) -> results.Result:
        """Write under a grant, or under a lease and token named one by one."""
        if grant is not None:
            key = grant.lease.key if key is None else key
            lease = grant.lease.lease_id if lease is None else lease
            token = grant.lease.token if token is None else token
        return self.apply(
            commands.Commit(
                tenant=tenant,
                key=key or "k",
                slot=slot,
                lease_id=lease or "",
                token=token if token is not None else 0,
                mode=mode,
                seq=seq,
                op_id=op,
                require_live=require_live,
                if_revision=if_revision,
                value=value,
                binary=binary,
                digest=digest,
                wall_ms=self.wall_ms,
            )
        )

    def delete_record(self, key: str = "k", if_revision: int | None = None) -> results.Result:
        return self.apply(commands.DeleteRecord(TENANT, key, if_revision, self.wall_ms))

    def open(self, session: str, owner: str = "A", ttl_ms: int = 30_000) -> results.Result:
        return self.apply(commands.OpenSession(TENANT, session, owner, ttl_ms, {}, self.wall_ms))

    def close(self, session: str) -> results.Result:
        return self.apply(commands.CloseSession(TENANT, session, self.wall_ms))

    def tick(self) -> results.Result:
        return self.apply(commands.Tick(self.wall_ms))

    def expire(self, items: list[commands.ExpireItem] | None = None) -> results.Done:
        """The reaper's batch: what is due now, or what it had seen before."""
        if items is None:
            items = self.table.due(self.now_ms, 500)
        return expect(results.Done, self.apply(commands.Expire(items, self.wall_ms)))

    # What is there

    def holder(self, key: str = "k") -> str | None:
        """The owner of the key's lease that has not expired, if there is one."""
        for grant in self.table.holders(TENANT, key):
            if self.machine.table.lease_deadline(grant.lease) > self.now_ms:
                owner: str = grant.lease.owner
                return owner
        return None

    def queue(self, key: str = "k") -> list[str]:
        """The owners of the key's waiters, first come first."""
        return [waiter.owner for waiter in self.table.queue(TENANT, key)]

    def floor(self, key: str = "k") -> int:
        """The floor of the key's guard, 0 without state."""
        state = self.table.key_state(TENANT, key)
        floor: int = state.guards[0].floor if state is not None else 0
        return floor


def expect(kind: type[R], result: object) -> R:
    """The result, which must be of that kind."""
    assert isinstance(result, kind), result
    return result


def grant_in(result: results.Result) -> results.Grant:
    """The one grant of a Granted."""
    (grant,) = expect(results.Granted, result).grants
    return grant
