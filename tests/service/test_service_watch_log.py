"""The event log: what it remembers, what it forgets, and that a hole always shows."""

import pytest
from service_events import happened

from tenure_cluster.lease.events import Event
from tenure_cluster.service.watch_log import EventLog


def revisions(log: EventLog, after: int, limit: int = 1_000, tenant: str = "default") -> list[int]:
    return [event.revision for event in log.after(tenant, after, limit)]


def of(tenant: str, *numbers: int) -> list[Event]:
    return [happened(number, tenant=tenant) for number in numbers]


def test_an_empty_log_has_nothing_and_misses_nothing() -> None:
    log = EventLog(1_000)
    assert (log.head("default"), log.horizon("default"), revisions(log, 0)) == (0, 0, [])


def test_events_follow_one_another_from_any_place() -> None:
    log = EventLog(1_000)
    log.extend(of("default", 1, 2, 3))
    log.extend(of("default", 4))
    assert log.head("default") == 4
    assert revisions(log, 0) == [1, 2, 3, 4]
    assert revisions(log, 2) == [3, 4]
    assert revisions(log, 1, limit=2) == [2, 3]
    assert revisions(log, 4) == []


def test_tenants_have_revisions_of_their_own_even_within_one_entry() -> None:
    log = EventLog(1_000)
    log.extend([*of("a", 1), *of("b", 1, 2), *of("a", 2)])
    assert revisions(log, 0, tenant="a") == [1, 2]
    assert revisions(log, 0, tenant="b") == [1, 2]
    assert len(log) == 4


def test_a_full_log_forgets_the_oldest_of_whoever_has_most() -> None:
    log = EventLog(1_600)
    log.extend(of("quiet", *range(1, 11)))
    for number in range(1, 5_001):
        log.extend(of("busy", number))
        assert len(log) <= 1_600
    assert log.horizon("quiet") == 0
    assert revisions(log, 0, tenant="quiet") == list(range(1, 11))
    horizon = log.horizon("busy")
    assert horizon > 3_000
    assert revisions(log, horizon, 10_000, "busy") == list(range(horizon + 1, 5_001))


def test_one_entry_larger_than_the_log_leaves_its_end() -> None:
    log = EventLog(1_000)
    log.extend(of("default", *range(1, 3_001)))
    assert log.head("default") == 3_000
    assert 2_000 <= log.horizon("default") < 2_100
    assert revisions(log, 2_990) == list(range(2_991, 3_001))


def test_a_snapshot_moves_the_horizon_to_its_revision() -> None:
    log = EventLog(1_000)
    log.extend(of("default", 1, 2))
    log.restored({"default": 9, "other": 4})
    assert (log.horizon("default"), log.head("default"), log.horizon("other")) == (9, 9, 4)
    log.extend(of("default", 10))
    assert revisions(log, 9) == [10]
    assert len(log) == 1


def test_a_snapshot_of_the_present_forgets_nothing() -> None:
    log = EventLog(1_000)
    log.extend(of("default", 1, 2))
    log.restored({"default": 2})
    assert (log.horizon("default"), revisions(log, 0), len(log)) == (0, [1, 2], 2)


def test_a_tenant_that_is_not_in_the_snapshot_begins_anew() -> None:
    log = EventLog(1_000)
    log.extend(of("gone", 1, 2))
    log.restored({})
    assert (log.head("gone"), len(log)) == (0, 0)


@pytest.mark.parametrize("revision", [5, 2, 1])
def test_a_revision_that_does_not_follow_moves_the_horizon(revision: int) -> None:
    log = EventLog(1_000)
    log.extend(of("default", 1, 2, 3))
    log.extend(of("default", revision))
    assert (log.horizon("default"), log.head("default")) == (revision - 1, revision)
    assert len(log) == 1
