"""Guarded writes: who may still write, in which mode, and what is remembered of it."""

import pytest
from lease_world import TENANT, World, expect

from tenure_cluster.lease import limits, results


def code(result: object) -> str:
    return expect(results.CommitRefused, result).code


def test_the_floor_rises_with_the_grant_before_the_successor_has_written(world: World) -> None:
    first = world.granted("k", "A", ttl_ms=10_000)
    assert isinstance(world.commit(first, value=b"draft"), results.Committed)
    world.wait(10_000)
    second = world.granted("k", "B")
    refused = expect(results.CommitRefused, world.commit(first, require_live=False, value=b"late"))
    assert (refused.code, refused.floor) == ("stale_token", second.lease.token)
    assert world.table.record(TENANT, "k").value == b"draft"


def test_a_refused_commit_is_told_and_changes_nothing_else(world: World) -> None:
    first = world.granted("k", "A", lease="a")
    world.commit(first, value=b"v")
    world.release("a")
    world.granted("k", "B")
    state, record = world.table.key_state(TENANT, "k"), world.table.record(TENANT, "k")
    assert code(world.commit(first, value=b"late")) == "stale_token"
    assert [(event.kind, event.detail, event.token) for event in world.events] == [
        ("commit_refused", "stale_token", first.lease.token)
    ]
    assert world.table.key_state(TENANT, "k") == state
    assert world.table.record(TENANT, "k") == record


def test_a_commit_to_a_key_without_state_is_stale(world: World) -> None:
    grant = world.granted("k")
    refused = expect(results.CommitRefused, world.commit(grant, key="other"))
    assert (refused.code, refused.floor, refused.revision) == ("stale_token", 0, 0)


def test_a_token_that_was_never_issued_for_the_key_or_slot_is_not_live(world: World) -> None:
    grant = world.granted("k")
    other = world.granted("other")
    assert code(world.commit(grant, token=other.lease.token)) == "not_live"
    assert code(world.commit(grant, slot=1)) == "not_live"


def test_once_takes_one_write_for_each_grant(world: World) -> None:
    first = world.granted("k", lease="a")
    assert isinstance(world.commit(first, mode="once"), results.Committed)
    refused = expect(results.CommitRefused, world.commit(first, mode="once"))
    assert (refused.code, refused.last_token) == ("token_used", first.lease.token)
    world.release("a")
    assert isinstance(world.commit(world.granted("k"), mode="once"), results.Committed)


def test_a_sequence_only_rises_and_starts_anew_with_a_later_token(world: World) -> None:
    first = world.granted("k", lease="a")
    for seq, accepted in ((5, True), (5, False), (4, False), (9, True)):
        result = world.commit(first, mode="sequence", seq=seq)
        assert isinstance(result, results.Committed) == accepted
        assert accepted or code(result) == "seq_replayed"
    world.release("a")
    second = world.granted("k")
    assert isinstance(world.commit(second, mode="sequence", seq=0), results.Committed)


def test_the_first_commit_fixes_the_mode_of_the_guard(world: World) -> None:
    grant = world.granted("k")
    world.commit(grant, mode="current")
    assert world.commit(grant, mode="once") == results.GuardConflict("current", "once")
    assert [(event.kind, event.detail) for event in world.events] == [("commit_refused", "mode_conflict")]
    world.delete_record("k")
    assert world.commit(grant, mode="sequence", seq=1) == results.GuardConflict("current", "sequence")


@pytest.mark.parametrize(
    ("mode", "seq"),
    [("sequence", None), ("sequence", -1), ("sequence", limits.SEQ_MAX + 1), ("once", 1), ("current", 0)],
)
def test_a_seq_goes_with_mode_sequence_and_nothing_else(world: World, mode: str, seq: int | None) -> None:
    grant = world.granted("k")
    result = world.commit(grant, mode=mode, seq=seq, op="o")  # type: ignore[arg-type]
    assert isinstance(result, results.Invalid)
    assert world.events == []
    assert world.table.operations == {}


def test_a_value_that_is_too_large_is_invalid(world: World) -> None:
    grant = world.granted("k")
    assert isinstance(world.commit(grant, value=bytes(limits.VALUE_BYTES_MAX + 1)), results.Invalid)
    assert isinstance(world.commit(grant, value=bytes(limits.VALUE_BYTES_MAX)), results.Committed)


def test_a_commit_names_its_own_lease(world: World) -> None:
    grant = world.granted("k", lease="mine")
    world.granted("other", lease="other")
    assert code(world.commit(grant, lease="nobody's")) == "not_live"
    assert code(world.commit(grant, lease="other")) == "not_live"
    assert code(world.commit(grant, lease="other", require_live=False)) == "not_live"
    assert isinstance(world.commit(grant), results.Committed)


def test_an_expired_lease_does_not_write_though_nobody_has_met_its_expiry(world: World) -> None:
    grant = world.granted("k", ttl_ms=10_000)
    world.wait(10_000)
    assert code(world.commit(grant)) == "not_live"
    assert world.kinds() == ["commit_refused"]


def test_fencing_alone_lets_the_last_holder_write_until_the_next_grant(world: World) -> None:
    grant = world.granted("k", ttl_ms=10_000)
    world.wait(10_000)
    world.expire()
    assert isinstance(world.commit(grant, require_live=False, value=b"v"), results.Committed)
    world.granted("k", "B")
    assert code(world.commit(grant, require_live=False)) == "stale_token"


def test_if_revision_compares_with_the_record_and_zero_means_none(world: World) -> None:
    grant = world.granted("k")
    assert code(world.commit(grant, if_revision=1, value=b"v")) == "revision_conflict"
    written = expect(results.Committed, world.commit(grant, if_revision=0, value=b"v"))
    assert world.table.record(TENANT, "k").revision == written.revision
    refused = expect(results.CommitRefused, world.commit(grant, if_revision=0, value=b"w"))
    assert (refused.code, refused.revision) == ("revision_conflict", written.revision)
    assert isinstance(world.commit(grant, if_revision=written.revision, value=b"w"), results.Committed)


def test_a_commit_without_a_value_leaves_the_record(world: World) -> None:
    grant = world.granted("k")
    world.commit(grant, value=b"v")
    record = world.table.record(TENANT, "k")
    later = expect(results.Committed, world.commit(grant))
    assert later.revision > record.revision
    assert world.table.record(TENANT, "k") == record


def test_the_record_says_who_wrote_it_under_which_token(world: World) -> None:
    grant = world.granted("k", "agent-a")
    written = expect(results.Committed, world.commit(grant, value=b"v"))
    record = world.table.record(TENANT, "k")
    assert (record.owner, record.token) == ("agent-a", grant.lease.token)
    assert (record.revision, record.committed_wall_ms) == (written.revision, world.wall_ms)


def test_a_retried_commit_returns_its_first_answer_accepted_or_refused(world: World) -> None:
    grant = world.granted("k", lease="a")
    first = world.commit(grant, mode="once", op="write", value=b"v")
    assert world.commit(grant, mode="once", op="write", value=b"v") == first
    assert world.events == []
    refused = world.commit(grant, mode="once", op="again", value=b"w")
    assert code(refused) == "token_used"
    world.release("a")
    world.granted("k", "B")
    assert world.commit(grant, mode="once", op="again", value=b"w") == refused
    world.restart()
    assert world.commit(grant, mode="once", op="write", value=b"v") == first


def test_an_op_id_belongs_to_its_key_and_is_forgotten_after_a_minute(world: World) -> None:
    one, two = world.granted("one", ttl_ms=300_000), world.granted("two", ttl_ms=300_000)
    first = world.commit(one, op="o")
    assert world.commit(two, op="o") != first
    world.wait(limits.REQUEST_MEMORY_MS - 1)
    assert world.commit(one, op="o") == first
    world.wait(1)
    assert world.commit(one, op="o") != first


def test_deleting_a_record_leaves_the_guard(world: World) -> None:
    grant = world.granted("k", lease="a")
    world.commit(grant, mode="once", value=b"v")
    record = world.table.record(TENANT, "k")
    assert world.delete_record("k", if_revision=record.revision + 1) == results.RevisionConflict(
        record.revision
    )
    assert world.delete_record("k", if_revision=record.revision) == results.RecordDeleted(record)
    assert world.kinds() == ["record_deleted"]
    assert world.delete_record("k") == results.NoRecord()
    assert code(world.commit(grant, mode="once")) == "token_used"


def test_a_guard_that_was_written_keeps_its_history_through_later_grants(world: World) -> None:
    first = world.granted("k", lease="a")
    world.commit(first, mode="sequence", seq=3)
    world.release("a")
    second = world.granted("k", lease="b")
    guard = world.table.key_state(TENANT, "k").guards[0]
    assert (guard.floor, guard.last_token, guard.last_seq) == (second.lease.token, first.lease.token, 3)


def test_key_state_outlives_its_last_use_by_a_day(world: World) -> None:
    first = world.granted("k", lease="a")
    world.commit(first)
    world.release("a")
    world.wait(limits.KEY_MEMORY_MS - 1)
    world.tick()
    assert world.floor() == first.lease.token
    world.wait(1)
    world.tick()
    assert world.table.key_state(TENANT, "k") is None
    assert code(world.commit(first, require_live=False)) == "stale_token"
    assert world.granted("k").lease.token > first.lease.token


def test_a_record_keeps_its_key_for_ever(world: World) -> None:
    first = world.granted("k", lease="a")
    world.commit(first, value=b"v")
    world.release("a")
    world.wait(10 * limits.KEY_MEMORY_MS)
    world.tick()
    assert world.table.record(TENANT, "k").value == b"v"
    assert world.floor() == first.lease.token
    world.delete_record("k")
    world.wait(limits.KEY_MEMORY_MS)
    world.tick()
    assert world.table.key_state(TENANT, "k") is None
