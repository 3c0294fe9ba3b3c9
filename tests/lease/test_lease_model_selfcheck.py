"""The comparison with the model is able to fail: machines broken on purpose are caught in few histories.

Every mutant does one thing that the specification forbids. Its own check of invariants is switched off, so
what catches it is the comparison: the model, the rules of the ledger, or the second replica.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from model_compare import Comparison
from model_mutants import QUICK, Patch, Unchecked, histories_until_caught, replace_function
from model_rules import Diverged
from model_scripts import scripts
from msgspec.structs import replace

from tenure_cluster.lease import commands, deadlock, granting, holding, room
from tenure_cluster.lease.indexes import KeyQueue, WaiterRef
from tenure_cluster.lease.machine import Applied
from tenure_cluster.lease.results import Committed, Lost, Released, Renewed
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import (
    ClusterTime,
    EndReason,
    Guard,
    KeyState,
    Lease,
    Session,
    TenantId,
    Waiter,
)

SHRUNK_STEPS_MAX = 6


class TokenResetOnRelease(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        applied = super().apply(at_ms, command)
        if isinstance(command, commands.Release) and applied.result == Released(False):
            held = [row.token for row in self.table.leases.values() if row.tenant == command.tenant]
            counters = self.table.tenants[command.tenant]
            self.table.tenants[command.tenant] = replace(counters, last_token=max(held, default=0))
        return applied


class RenewRevivesExpired(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        if isinstance(command, commands.Renew) and command.lease_id is not None:
            lease = self.table.leases.get((command.tenant, command.lease_id))
            if lease is not None:
                ref = (lease.tenant, lease.session_id)
                session = self.table.sessions[ref]
                deadline_ms = max(session.deadline_ms, self.now_ms(at_ms) + session.ttl_ms)
                self.table.replace_session(ref, replace(session, deadline_ms=deadline_ms))
        return super().apply(at_ms, command)


class RenewShortens(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        applied = super().apply(at_ms, command)
        if isinstance(applied.result, Renewed):
            session = applied.result.grant.session
            deadline_ms = self.table.time_ms + session.ttl_ms
            ref = (session.tenant, session.session_id)
            self.table.replace_session(ref, replace(session, deadline_ms=deadline_ms))
        return applied


class RenewOfAnotherTenant(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        if isinstance(command, commands.Renew):
            for tenant, lease_id in self.table.leases:
                if lease_id == command.lease_id:
                    command = replace(command, tenant=tenant)
        return super().apply(at_ms, command)


class ReleaseByKey(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        if isinstance(command, commands.Release):
            ended = self.table.ended.get((command.tenant, command.lease_id))
            holder = self.table.holder(ended.tenant, ended.key) if ended is not None else None
            if holder is not None:
                command = replace(command, lease_id=holder.lease_id)
        return super().apply(at_ms, command)


class ReaperDoesNotCheckAgain(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        if isinstance(command, commands.Expire):
            command = replace(command, items=[self.seen_late(item, at_ms) for item in command.items])
        return super().apply(at_ms, command)

    def seen_late(self, item: commands.ExpireItem, at_ms: ClusterTime) -> commands.ExpireItem:
        ref = (item.tenant, item.id)
        session = self.table.sessions.get(ref)
        if item.kind != "session" or session is None:
            return item
        deadline_ms = min(session.deadline_ms, self.now_ms(at_ms))
        self.table.replace_session(ref, replace(session, deadline_ms=deadline_ms))
        return replace(item, deadline_ms=deadline_ms)


class OnceTwice(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        applied = super().apply(at_ms, command)
        if isinstance(command, commands.Commit) and isinstance(applied.result, Committed):
            state = self.table.keys[(command.tenant, command.key)]
            guards = {slot: replace(guard, last_token=0, last_seq=0) for slot, guard in state.guards.items()}
            self.table.put_key_state(replace(state, guards=guards))
        return applied


class TokenIsEnoughToWrite(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        if isinstance(command, commands.Commit) and not command.require_live:
            state = self.table.key_state(command.tenant, command.key)
            guard = state.guards.get(command.slot) if state is not None else None
            if guard is not None:
                command = replace(command, lease_id=guard.lease_id)
        return super().apply(at_ms, command)


class TimeGoesBack(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        self.table.time_ms = min(self.table.time_ms, at_ms)
        return super().apply(at_ms, command)


class LocalClock(Unchecked):
    skews = itertools.count()

    def __init__(self, table: LeaseTable | None = None) -> None:
        super().__init__(table)
        self.skew_ms = next(LocalClock.skews) % 7

    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        return super().apply(at_ms + self.skew_ms, command)


class ForgetsRequestsInSnapshot(Unchecked):
    def __init__(self, table: LeaseTable | None = None) -> None:
        super().__init__(table)
        while self.table.ended:
            self.table.forget_ended()


def session_not_checked_again_at_the_grant(patch: pytest.MonkeyPatch) -> None:
    def silent_only(step: Step, waiter: Waiter) -> str:
        return "silent" if waiter.poll_deadline_ms <= step.now_ms else ""

    def look_at_none(step: Step, queue: KeyQueue) -> dict[int, Waiter]:
        return {}

    replace_function(patch, "waiter_dead", silent_only)
    replace_function(patch, "_look_at_sessions", look_at_none)


def floor_raised_at_the_first_write(patch: pytest.MonkeyPatch) -> None:
    def not_raised(guard: Guard | None, floor: int, lease_id: str = "", owner: str = "") -> Guard:
        return guard if guard is not None else Guard(floor, 0, 0, lease_id, owner)

    replace_function(patch, "_raised", not_raised)


def floor_not_raised_by_a_break(patch: pytest.MonkeyPatch) -> None:
    def raise_none(step: Step, tenant: TenantId, key: str) -> None:
        pass

    replace_function(patch, "raise_all_floors", raise_none)


def lease_lives_a_millisecond_too_long(patch: pytest.MonkeyPatch) -> None:
    right = LeaseTable.lease_deadline

    def late(table: LeaseTable, lease: Lease) -> ClusterTime:
        return right(table, lease) + 1

    patch.setattr(LeaseTable, "lease_deadline", late)


def lease_dies_a_millisecond_too_early(patch: pytest.MonkeyPatch) -> None:
    def live(step: Step, lease: Lease) -> bool:
        return step.table.lease_deadline(lease) > step.now_ms + 1

    replace_function(patch, "lease_live", live)


def claim_window_never_closes(patch: pytest.MonkeyPatch) -> None:
    def of_the_session(table: LeaseTable, lease: Lease) -> ClusterTime:
        return table.sessions[(lease.tenant, lease.session_id)].deadline_ms

    patch.setattr(LeaseTable, "lease_deadline", of_the_session)


def last_come_first_served(patch: pytest.MonkeyPatch) -> None:
    def tail(queue: KeyQueue) -> WaiterRef:
        return queue.polled[queue.tickets[-1]]

    patch.setattr(KeyQueue, "head", tail)


def op_id_not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseTable, "remember_operation", lambda table, operation: None)


def op_id_answers_any_commit(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "_same_commit", lambda operation, asked: True)


def abandoned_request_not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseTable, "remember_abandoned", lambda table, ref, abandoned: None)


def grace_not_kept(patch: pytest.MonkeyPatch) -> None:
    right = LeaseTable.put_key_state

    def without_grace(table: LeaseTable, state: KeyState) -> None:
        right(table, replace(state, blocked_until_ms=0))

    patch.setattr(LeaseTable, "put_key_state", without_grace)


def grace_after_a_grant_nobody_claimed(patch: pytest.MonkeyPatch) -> None:
    right = holding.end_lease

    def end_as_claimed(step: Step, lease: Lease, reason: EndReason, detail: str = "") -> None:
        right(step, replace(lease, claim_deadline_ms=0), reason, detail)

    replace_function(patch, "end_lease", end_as_claimed)


def claim_keeps_the_end_of_its_window(patch: pytest.MonkeyPatch) -> None:
    right = granting.claim_lease

    def claim_for_longer(step: Step, lease: Lease) -> Lease:
        ref = (lease.tenant, lease.session_id)
        before = step.table.sessions[ref]
        claimed = right(step, lease)
        session = step.table.sessions[ref]
        deadline_ms = max(before.deadline_ms, session.deadline_ms)
        step.table.replace_session(ref, replace(session, deadline_ms=deadline_ms))
        return claimed

    replace_function(patch, "claim_lease", claim_for_longer)


def any_session_may_be_named(patch: pytest.MonkeyPatch) -> None:
    def live(step: Step, session: Session) -> bool:
        return True

    replace_function(patch, "session_live", live)


def private_session_has_no_name(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "find_private_lease", lambda step, tenant, session_id: None)


def session_waits_for_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deadlock._Search, "waits_already", lambda search, key: False)


def writer_starved_by_readers(patch: pytest.MonkeyPatch) -> None:
    def without_queue(
        step: Step, tenant: TenantId, key: str, family: room.Family, session_id: str | None
    ) -> bool:
        free = room.has_room(step.table, tenant, key, family)
        return free and not room.blocked_until(step, tenant, key)

    replace_function(patch, "_is_free", without_queue)


def writer_beside_readers(patch: pytest.MonkeyPatch) -> None:
    right = room.has_room

    def always_beside_readers(table: LeaseTable, tenant: TenantId, key: str, family: room.Family) -> bool:
        lease = table.holder(tenant, key)
        return right(table, tenant, key, family) or (lease is not None and lease.mode == "shared")

    replace_function(patch, "has_room", always_beside_readers)


def readers_granted_one_by_one(patch: pytest.MonkeyPatch) -> None:
    right = room.has_room

    def alone(table: LeaseTable, tenant: TenantId, key: str, family: room.Family) -> bool:
        held = table.holder(tenant, key) is not None
        return right(table, tenant, key, family) and not (held and family[0] == "shared")

    replace_function(patch, "has_room", alone)


def permit_slot_issued_twice(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "_free_slot", lambda table, tenant, key: 0)


def pool_with_a_slot_too_many(patch: pytest.MonkeyPatch) -> None:
    right = room.has_room

    def one_more(table: LeaseTable, tenant: TenantId, key: str, family: room.Family) -> bool:
        return right(table, tenant, key, (family[0], family[1] + 1))

    replace_function(patch, "has_room", one_more)


def pools_go_with_anything(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "go_together", lambda one, other: True)


def readers_token_is_enough_to_write(patch: pytest.MonkeyPatch) -> None:
    def of_the_floor(step: Step, asked: commands.Commit, state: KeyState, guard: Guard) -> bool:
        return asked.lease_id == guard.lease_id if guard.lease_id else state.mode == "shared"

    replace_function(patch, "_of_the_floor", of_the_floor)


def half_a_set_granted(patch: pytest.MonkeyPatch) -> None:
    right = granting.grant_all

    def all_but_the_last(step: Step, tenant: TenantId, wanted: Any, *rest: Any) -> list[Lease]:
        leases = right(step, tenant, wanted, *rest)
        if len(leases) > 1:
            holding.end_lease(step, leases[-1], "released")
        return leases

    replace_function(patch, "grant_all", all_but_the_last)


def set_takes_what_is_held(patch: pytest.MonkeyPatch) -> None:
    right = holding._is_its_turn

    def looks_at_one_key(step: Step, waiter: Waiter, served: str) -> bool:
        return right(step, replace(waiter, keys=[served]), served)

    replace_function(patch, "_is_its_turn", looks_at_one_key)


def set_starves(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "steps_aside", lambda step, waiter: len(waiter.keys) > 1)


def set_keeps_its_keys_at_once(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "steps_aside", lambda step, waiter: False)


def set_is_passed_by_one_that_waits(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "may_pass", lambda step, tenant, session_id, others_max: True)


def request_of_a_set_not_known(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "_replay_set", lambda step, key_set: Lost("unknown"))


CLASSES: list[type[Unchecked]] = [
    TokenResetOnRelease,
    RenewRevivesExpired,
    RenewShortens,
    RenewOfAnotherTenant,
    ReleaseByKey,
    ReaperDoesNotCheckAgain,
    OnceTwice,
    TokenIsEnoughToWrite,
    TimeGoesBack,
    LocalClock,
    ForgetsRequestsInSnapshot,
]

PATCHES: list[Patch] = [
    session_not_checked_again_at_the_grant,
    floor_raised_at_the_first_write,
    floor_not_raised_by_a_break,
    lease_lives_a_millisecond_too_long,
    lease_dies_a_millisecond_too_early,
    claim_window_never_closes,
    last_come_first_served,
    op_id_not_remembered,
    op_id_answers_any_commit,
    abandoned_request_not_remembered,
    grace_not_kept,
    grace_after_a_grant_nobody_claimed,
    claim_keeps_the_end_of_its_window,
    any_session_may_be_named,
    private_session_has_no_name,
    session_waits_for_itself,
    writer_starved_by_readers,
    writer_beside_readers,
    readers_granted_one_by_one,
    permit_slot_issued_twice,
    pool_with_a_slot_too_many,
    pools_go_with_anything,
    readers_token_is_enough_to_write,
    half_a_set_granted,
    set_takes_what_is_held,
    set_starves,
    set_keeps_its_keys_at_once,
    set_is_passed_by_one_that_waits,
    request_of_a_set_not_known,
]


@pytest.mark.parametrize("mutant", CLASSES)
def test_a_broken_machine_is_caught(mutant: type[Unchecked]) -> None:
    assert histories_until_caught(mutant) is not None


@pytest.mark.parametrize("break_it", PATCHES)
def test_a_machine_with_a_broken_part_is_caught(break_it: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    assert histories_until_caught(Unchecked) is not None


def test_the_machine_that_does_not_check_itself_is_otherwise_right() -> None:
    played = 0

    @settings(QUICK, max_examples=10)
    @given(scripts())
    def agrees(script: list[bytes]) -> None:
        nonlocal played
        played += 1
        Comparison(Unchecked).play(script)

    agrees()
    assert played >= 10


def test_a_failing_history_shrinks_to_the_steps_that_matter() -> None:
    def fails(script: list[bytes]) -> bool:
        try:
            Comparison(ReleaseByKey).play(script)
        except Diverged:
            return True
        return False

    shrunk = find(scripts(50), fails, settings=settings(QUICK, phases=[Phase.generate, Phase.shrink]))
    assert len([data for data in shrunk if data[0]]) <= SHRUNK_STEPS_MAX
