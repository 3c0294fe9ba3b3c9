"""The comparison is able to fail where leases change hands, rest or tell of progress, and where one entry may
not end all. Mutants of these parts are caught in few histories."""

from __future__ import annotations

from typing import Any

import pytest
from model_mutants import Patch, Unchecked, histories_until_caught, replace_function
from msgspec.structs import replace

from tenure_cluster.lease import commands, expiring, granting, holding, limits, liveness, sessions
from tenure_cluster.lease.indexes import Indexes
from tenure_cluster.lease.machine import Applied
from tenure_cluster.lease.results import HandedOver, Parked, Unparked
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import NO_LIFE, ClusterTime, EndReason, Lease, Session, TenantId, Waiter


class UnparkKeepsTheToken(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        before = None
        if isinstance(command, commands.Unpark):
            before = self.table.leases.get((command.tenant, command.lease_id))
        applied = super().apply(at_ms, command)
        if before is not None and isinstance(applied.result, Unparked) and not applied.result.replayed:
            lease = applied.result.grant.lease
            self.table.replace_lease((lease.tenant, lease.lease_id), replace(lease, token=before.token))
        return applied


class ParkingComesLate(Unchecked):
    """A parking that was asked for under an earlier token is done."""

    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        if isinstance(command, commands.Park | commands.Unpark):
            command = replace(command, token=None)
        return super().apply(at_ms, command)


class ParkedForEver(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        applied = super().apply(at_ms, command)
        if isinstance(applied.result, Parked):
            session = applied.result.grant.session
            ref = (session.tenant, session.session_id)
            self.table.replace_session(ref, replace(session, deadline_ms=2**40))
        return applied


class ParkedLeaseIsKeptByRenewals(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        applied = super().apply(at_ms, command)
        if isinstance(command, commands.Renew) and command.lease_id is not None:
            lease = self.table.leases.get((command.tenant, command.lease_id))
            if lease is not None and lease.parked:
                ref = (lease.tenant, lease.session_id)
                session = self.table.sessions[ref]
                deadline_ms = max(session.deadline_ms, self.table.time_ms + session.ttl_ms)
                self.table.replace_session(ref, replace(session, deadline_ms=deadline_ms))
        return applied


class HandoverLosesProgress(Unchecked):
    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        applied = super().apply(at_ms, command)
        if isinstance(applied.result, HandedOver):
            lease = applied.result.grant.lease
            forgotten = replace(lease, life=replace(lease.life or NO_LIFE, progress=None))
            self.table.replace_lease((lease.tenant, lease.lease_id), forgotten)
        return applied


class HandoverTwice(Unchecked):
    """A handover that is asked again finds nothing of the first."""

    def apply(self, at_ms: ClusterTime, command: commands.Command) -> Applied:
        applied = super().apply(at_ms, command)
        if isinstance(applied.result, HandedOver) and not applied.result.replayed:
            assert isinstance(command, commands.Handover)
            ended = self.table.ended[(command.tenant, command.lease_id)]
            self.table.ended[(command.tenant, command.lease_id)] = replace(ended, reason="released")
        return applied


def handover_goes_to_the_next_waiter(patch: pytest.MonkeyPatch) -> None:
    """Between the two leases the key is handed on."""
    right = holding.end_lease

    def end_and_serve(step: Step, lease: Lease, reason: EndReason, detail: str = "") -> None:
        right(step, lease, reason, detail)
        if reason == "handed_over":
            holding.serve(step, lease.tenant, lease.key)

    replace_function(patch, "end_lease", end_and_serve)


def handover_closes_a_circle(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "find_cycle_through", lambda step, tenant, session_id, key: None)


def successor_keeps_waiting(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "_own_waiter", lambda step, lease, session: None)


def holder_is_given_the_key_once_more(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "_may_not_have", lambda step, lease, session: None)


def floor_stays_when_a_lease_is_taken_up(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "raise_floor", lambda step, lease: None)


def parked_lease_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "parked", property(lambda lease: False))
    # What a snapshot is checked for when it is loaded would stumble over it first, now and then.
    replace_function(patch, "check_state", lambda table: None)


def parked_request_loses_its_scope(patch: pytest.MonkeyPatch) -> None:
    right = Indexes.add_lease

    def add(indexes: Indexes, lease: Lease) -> None:
        if lease.parked and lease.life is not None:
            lease = replace(lease, life=replace(lease.life, scope=""))
        right(indexes, lease)

    patch.setattr(Indexes, "add_lease", add)


def saying_it_again_is_progress(patch: pytest.MonkeyPatch) -> None:
    right = sessions._note_progress

    def note_afresh(step: Step, lease: Lease, note: commands.ProgressNote) -> None:
        known = lease.life.progress if lease.life is not None else None
        if lease.life is not None and known is not None:
            lease = replace(lease, life=replace(lease.life, progress=replace(known, counter=-1)))
        right(step, lease, note)

    replace_function(patch, "_note_progress", note_afresh)


def renewals_alone_are_progress(patch: pytest.MonkeyPatch) -> None:
    right = LeaseTable.lease_deadline

    def of_the_session(table: LeaseTable, lease: Lease) -> ClusterTime:
        return right(table, replace(lease, life=None))

    patch.setattr(LeaseTable, "lease_deadline", of_the_session)


def progress_is_demanded_before_the_claim(patch: pytest.MonkeyPatch) -> None:
    right = granting._life
    replace_function(patch, "_life", lambda step, progress_ms, claim_ms: right(step, progress_ms, 0))


def nobody_looks_for_progress(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseTable, "_watch_progress", lambda table, ref, lease: None)


def one_lease_of_a_set_shows_progress(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseTable, "together", lambda table, lease: [lease])


CLASSES: list[type[Unchecked]] = [
    UnparkKeepsTheToken,
    ParkingComesLate,
    ParkedForEver,
    ParkedLeaseIsKeptByRenewals,
    HandoverLosesProgress,
    HandoverTwice,
]

PATCHES: list[Patch] = [
    handover_goes_to_the_next_waiter,
    handover_closes_a_circle,
    successor_keeps_waiting,
    holder_is_given_the_key_once_more,
    floor_stays_when_a_lease_is_taken_up,
    parked_lease_writes,
    parked_request_loses_its_scope,
    saying_it_again_is_progress,
    renewals_alone_are_progress,
    progress_is_demanded_before_the_claim,
    nobody_looks_for_progress,
    one_lease_of_a_set_shows_progress,
]


@pytest.mark.parametrize("mutant", CLASSES)
def test_a_machine_that_passes_leases_on_wrongly_is_caught(mutant: type[Unchecked]) -> None:
    assert histories_until_caught(mutant) is not None


@pytest.mark.parametrize("break_it", PATCHES)
def test_a_machine_with_a_broken_mode_is_caught(break_it: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    assert histories_until_caught(Unchecked) is not None


# What is more than one entry may do


NARROW = {"grants": 1, "events": 2, "endings": 2, "close": 1}


def put_off_for_ever(patch: pytest.MonkeyPatch) -> None:
    replace_function(patch, "_put_off", lambda step, tenant, key: None)


def grants_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "GRANTS_PER_ENTRY_MAX", 1_000)


def expire_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Step, "full", lambda step: False)


def closed_session_goes_on(patch: pytest.MonkeyPatch) -> None:
    right = LeaseTable.close_session

    def close_later(table: LeaseTable, ref: tuple[TenantId, str], session: Session) -> None:
        right(table, ref, replace(session, deadline_ms=session.deadline_ms + 1))

    patch.setattr(LeaseTable, "close_session", close_later)


def closed_session_is_remembered_as_expired(patch: pytest.MonkeyPatch) -> None:
    right = expiring._take_away

    def take_away(step: Step, session: Session) -> None:
        right(step, replace(session, closed=False))

    replace_function(patch, "_take_away", take_away)


def waiters_of_a_closed_session_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    def close(table: LeaseTable, ref: tuple[TenantId, str], session: Session) -> None:
        table.replace_session(ref, session)
        table.watch_session(ref)

    patch.setattr(LeaseTable, "close_session", close)


def waiter_of_a_closed_session_counts(patch: pytest.MonkeyPatch) -> None:
    right = liveness.waiter_dead

    def dead(step: Step, waiter: Waiter) -> str:
        cause = right(step, waiter)
        return "" if cause == "session_closed" else cause

    replace_function(patch, "waiter_dead", dead)


BOUND_PATCHES: list[Patch] = [
    put_off_for_ever,
    grants_without_end,
    expire_without_end,
    closed_session_goes_on,
    closed_session_is_remembered_as_expired,
    waiters_of_a_closed_session_are_not_looked_for,
    waiter_of_a_closed_session_counts,
]


def narrow(patch: pytest.MonkeyPatch) -> None:
    limits_of: dict[str, Any] = {
        "grants": "GRANTS_PER_ENTRY_MAX",
        "events": "EVENTS_PER_EXPIRE_MAX",
        "endings": "EXPIRE_BATCH_MAX",
        "close": "CLOSE_AT_ONCE_MAX",
    }
    for name, limit in limits_of.items():
        patch.setattr(limits, limit, NARROW[name])


@pytest.mark.parametrize("break_it", BOUND_PATCHES)
def test_a_machine_that_does_too_much_or_too_little_in_an_entry_is_caught(
    break_it: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    break_it(monkeypatch)
    assert histories_until_caught(Unchecked, NARROW) is not None
