"""Faults of other systems, put into this one: each story must notice the one that it is told against."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import _validity
from tenure._handle import HandleLife, State
from tenure._validity import Validity
from tenure_chaos.sim.actor import Hold
from tenure_cluster.lease import acquiring, expiring, holding, limits, machine, queueing, room, sessions
from tenure_cluster.lease.commands import Acquire, ExpireItem, Release, Renew
from tenure_cluster.lease.holding import end_lease, serve
from tenure_cluster.lease.indexes import Indexes
from tenure_cluster.lease.results import Grant, Granted, Lost, Released, Renewed, Result
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import Lease
from tenure_cluster.raft import pump
from tenure_cluster.raft.cluster_clock import ClusterClock
from tenure_cluster.raft.snapshot_file import SnapshotStore
from tenure_cluster.service import reaper, replica
from tenure_cluster.service.attempts import Attempts
from tenure_cluster.service.lease_service import LeaseService
from tenure_cluster.service.polls import Polls

Handler = Callable[[Step, Any], Result]


def handle(monkeypatch: pytest.MonkeyPatch, command: type, handler: Handler) -> None:
    """Have the state machine answer a command by another function."""
    monkeypatch.setitem(machine._HANDLERS, command, handler)


def whoever_has_the_name_has_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acquire by an owner of the holder's name is answered with the holder's lease."""

    def acquire(step: Step, asked: Acquire) -> Result:
        lease = step.table.holder(asked.tenant, asked.keys[0])
        if lease is not None and lease.owner == asked.owner:
            return Granted([step.table.grant_of(lease)], False, True)
        return acquiring.acquire(step, asked)

    handle(monkeypatch, Acquire, acquire)


def releases_go_by_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release of a lease that is over ends its key's present lease."""

    def release(step: Step, asked: Release) -> Result:
        result = sessions.release(step, asked)
        ended = step.table.ended.get((asked.tenant, asked.lease_id))
        over = isinstance(result, Lost) or (isinstance(result, Released) and result.already)
        if over and ended is not None:
            present = step.table.holder(ended.tenant, ended.key)
            if present is not None:
                end_lease(step, present, "released")
                serve(step, ended.tenant, ended.key)
        return result

    handle(monkeypatch, Release, release)


def heartbeats_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal of a lease that is over is answered with the lease as it was."""
    known: dict[str, Grant] = {}

    def acquire(step: Step, asked: Acquire) -> Result:
        result = acquiring.acquire(step, asked)
        if isinstance(result, Granted):
            known.update((grant.lease.lease_id, grant) for grant in result.grants)
        return result

    def renew(step: Step, asked: Renew) -> Result:
        result = sessions.renew(step, asked)
        return Renewed(known[asked.lease_id or ""]) if isinstance(result, Lost) else result

    handle(monkeypatch, Acquire, acquire)
    handle(monkeypatch, Renew, renew)


def handles_wait_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle is believed until the cluster says that it is over, or an hour later."""
    extended = Validity.extended

    def believed(self: Validity, *, remaining_ms: int, **how: Any) -> bool:
        return extended(self, remaining_ms=remaining_ms + 3_600_000, **how)

    monkeypatch.setattr(Validity, "extended", believed)


def renewers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the cluster's word ends the renewals."""

    async def keep(self: Hold) -> None:
        while (await self._renew(1.0)).outcome != "refused":  # noqa: ASYNC110
            await asyncio.sleep(self.ttl_ms / 3000)

    monkeypatch.setattr(Hold, "_keep", keep)


def expiry_does_not_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a reaper has once seen due is ended."""

    def session(self: expiring._Batch, item: ExpireItem) -> None:
        lease = self.step.table.leases.get((item.tenant, item.id))
        if lease is not None:
            end_lease(self.step, lease, "expired")
            self._count()

    monkeypatch.setattr(expiring._Batch, "_session", session)


def leaderless_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cluster time is true time, whoever leads."""

    class TrueTime(ClusterClock):
        def now_ms(self, now_s: float) -> int:
            true_ms = int(asyncio.get_running_loop().time() * 1000)
            return max(super().now_ms(now_s), true_ms)

    monkeypatch.setattr(pump, "ClusterClock", TrueTime)


def leases_live_by_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease has expired when the proposer's wall clock says so."""

    def live(step: Step, lease: Lease) -> bool:
        session = step.table.sessions[(lease.tenant, lease.session_id)]
        return step.wall_ms < session.renewed_wall_ms + session.ttl_ms

    monkeypatch.setattr(holding, "lease_live", live)


def contenders_judge_by_their_own_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is over for whoever asks with a TTL shorter than the time since its grant."""

    def acquire(step: Step, asked: Acquire) -> Result:
        lease = step.table.holder(asked.tenant, asked.keys[0])
        if lease is not None and asked.ttl_ms and step.now_ms - lease.granted_ms >= asked.ttl_ms:
            end_lease(step, lease, "expired")
        return acquiring.acquire(step, asked)

    handle(monkeypatch, Acquire, acquire)


def leaders_do_not_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is written down only with what clients ask for."""
    monkeypatch.setattr(reaper, "TICK_MS", 10**9)


def one_failed_renewal_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that fails, for whatever reason, is taken for the end of the lease."""

    def failed(self: HandleLife, now: float, draw: float) -> State:
        return self.lost("unavailable", now)

    monkeypatch.setattr(HandleLife, "renew_failed", failed)


def renewals_begin_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal is due when a tenth of the TTL is left."""
    monkeypatch.setattr(_validity, "RENEW_AT_LEFT", 0.1)


def requests_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what became of a request."""
    monkeypatch.setattr(Indexes, "fate", lambda self, tenant, scope, request_id: None)


def silence_ends_a_waiter_after(ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter has less time than there is between two of its polls."""
    monkeypatch.setattr(limits, "WAITER_SILENCE_MS", ms)


def silence_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter that nobody hears of stays."""
    monkeypatch.setattr(limits, "WAITER_SILENCE_MS", 10**9)


def polls_do_not_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter's time counts from when it queued."""
    monkeypatch.setattr(acquiring, "refresh", lambda step, waiter: waiter)


def tries_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds the key held is queued, whether it can wait or not."""

    def acquire(step: Step, asked: Acquire) -> Result:
        return acquiring.acquire(step, replace(asked, wait=True))

    handle(monkeypatch, Acquire, acquire)


def dead_sessions_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter whose session has expired is left where it is."""
    monkeypatch.setattr(expiring._Batch, "_explicit_session", lambda self, session: None)


def hand_off_is_left_to_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release frees the key and does no more."""
    monkeypatch.setattr(sessions, "serve", lambda step, tenant, key: None)


def callers_who_hang_up_are_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that closes while its acquire is under way is nobody's affair."""
    monkeypatch.setattr(Polls, "drop", lambda self, ask, left=False: None)
    monkeypatch.setattr(Attempts, "give_up", lambda self, ask: None)


def expiry_comes_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is due is ended in one entry."""
    monkeypatch.setattr(limits, "EXPIRE_BATCH_MAX", 10**9)


def leaders_look_through_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader enters every lease into its calendar."""
    on_role = LeaseService._role_changed

    def changed(self: LeaseService) -> None:
        on_role(self)
        if self.leadership.role == "leader":
            self._replica.table.deadlines.rebuild()

    monkeypatch.setattr(LeaseService, "_role_changed", changed)


def snapshots_come_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole state is encoded before the first of it is written."""
    save = SnapshotStore.save

    def at_once(self: SnapshotStore, last: Any, previous: Any, chunks: Any, done: Any, *more: Any) -> Any:
        return save(self, last, previous, iter(list(chunks)), done, *more)

    monkeypatch.setattr(SnapshotStore, "save", at_once)


def leases_end_in_the_listing_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that has ended is not listed any more, and still there."""

    def remove(self: LeaseTable, ref: Any, lease: Lease, ended: Any) -> None:
        self.deadlines.claims.discard(ref)
        self.indexes.remove_lease(lease, ended)
        self.ended.remember(ref, ended)

    monkeypatch.setattr(LeaseTable, "remove_lease", remove)


def snapshots_lose_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is made without its last session, and nothing else is wrong with it."""
    dump, rows_of = replica.dump, LeaseTable.rows_of

    def rows(table: LeaseTable, section: str, **how: Any) -> Any:
        of_section = rows_of(table, section, **how)
        return list(of_section)[:-1] if section == "sessions" else of_section

    def incomplete(*asked: Any, **how: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LeaseTable, "rows_of", rows)
            return dump(*asked, **how)

    monkeypatch.setattr(replica, "dump", incomplete)


def any_reader_renews_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal prolongs every lease of its key."""

    def renew(step: Step, asked: Renew) -> Result:
        result = sessions.renew(step, asked)
        if isinstance(result, Renewed):
            lease = result.grant.lease
            for other in step.table.leases_of(lease.tenant, lease.key):
                sessions.renew(step, replace(asked, lease_id=other.lease_id))
        return result

    handle(monkeypatch, Renew, renew)


def circles_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether those who wait wait for one another."""
    monkeypatch.setattr(queueing, "find_cycle", lambda *asked: None)


def leases_never_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ends a lease but its holder."""
    monkeypatch.setattr(holding, "lease_live", lambda step, lease: True)


def sets_are_granted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a set, those keys that are free are granted, one after another."""

    def acquire(step: Step, asked: Acquire) -> Result:
        if len(asked.keys) == 1:
            return acquiring.acquire(step, asked)
        granted = []
        for key, lease_id in zip(asked.keys, asked.lease_ids, strict=True):
            request_id = f"{asked.request_id} {key}"
            one = replace(asked, keys=[key], lease_ids=[lease_id], request_id=request_id, wait=False)
            result = acquiring.acquire(step, one)
            if isinstance(result, Granted):
                granted += result.grants
        return Granted(granted, False, True)

    handle(monkeypatch, Acquire, acquire)


def readers_pass_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that comes joins those who read."""
    is_free = acquiring._is_free

    def free(step: Step, tenant: str, key: str, family: room.Family, session_id: str | None) -> bool:
        if family[0] == "shared" and step.table.holder(tenant, key) is not None:
            return room.has_room(step.table, tenant, key, family)
        return is_free(step, tenant, key, family, session_id)

    monkeypatch.setattr(acquiring, "_is_free", free)


def offices_begin_with_a_leap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes office is ahead of the time of whom it replaces."""

    class Leaping(ClusterClock):
        def __init__(self, base_ms: int, now_s: float, stall_after_s: float) -> None:
            super().__init__(base_ms + (30_000 if base_ms else 0), now_s, stall_after_s)

    monkeypatch.setattr(pump, "ClusterClock", Leaping)
