"""Whose commit it is: a token alone does not write, and an op_id answers only the commit that took it."""

import pytest
from lease_world import TENANT, World, expect

from tenure_cluster.lease import limits, results

REUSED = results.Invalid("op_id was used for another commit")


def code(result: object) -> str:
    return expect(results.CommitRefused, result).code


def test_knowing_the_holders_token_is_not_enough_to_write(world: World) -> None:
    grant = world.granted("k", "A", lease="a")
    assert (
        code(world.commit(grant, lease="bogus", mode="once", require_live=False, value=b"evil")) == "not_live"
    )
    assert [(event.kind, event.owner) for event in world.events] == [("commit_refused", "")]
    assert world.table.record(TENANT, "k") is None
    assert isinstance(world.commit(grant, mode="once", require_live=False, value=b"mine"), results.Committed)


def test_a_stranger_is_told_of_nothing_but_the_numbers(world: World) -> None:
    grant = world.granted("k", lease="a")
    world.commit(grant, mode="once")
    assert code(world.commit(grant, mode="once", require_live=False)) == "token_used"
    assert code(world.commit(grant, lease="bogus", mode="once", require_live=False)) == "not_live"
    assert code(world.commit(grant, lease="bogus", mode="current", require_live=False)) == "not_live"


def test_the_last_holder_is_known_for_as_long_as_the_key_is(world: World) -> None:
    """Neither the end of the lease nor its being forgotten lets another write under its token."""
    grant = world.granted("k", "A", lease="a", ttl_ms=10_000)
    world.wait(10_000)
    world.expire()
    for _ in range(2):
        assert code(world.commit(grant, lease="bogus", require_live=False)) == "not_live"
        assert isinstance(world.commit(grant, require_live=False, value=b"v"), results.Committed)
        world.wait(limits.REQUEST_MEMORY_MS)
        world.tick()
        assert world.table.ended == {}
        world.restart()
    assert world.table.record(TENANT, "k").owner == "A"


def test_a_lease_of_another_key_does_not_lend_its_id(world: World) -> None:
    grant = world.granted("k", lease="a")
    other = world.granted("other", "B", lease="b")
    assert code(world.commit(other, key="k", token=grant.lease.token, require_live=False)) == "not_live"
    assert [event.owner for event in world.events] == ["B"]


@pytest.mark.parametrize("held", [True, False])
def test_the_floor_that_a_break_minted_is_nobodys(world: World, held: bool) -> None:
    grant = world.granted("k", "A", lease="a")
    world.commit(grant, value=b"v")
    if not held:
        world.release("a")
    world.break_key()
    floor = world.floor()
    assert floor > grant.lease.token
    assert code(world.commit(grant, require_live=False)) == "stale_token"
    for lease in ("a", "", "bogus"):
        assert code(world.commit(grant, lease=lease, token=floor, require_live=False)) == "not_live"
        world.restart()
    assert world.table.record(TENANT, "k").token == grant.lease.token


def test_the_record_names_its_writer_though_the_lease_is_over(world: World) -> None:
    grant = world.granted("k", "agent-a", lease="a")
    world.release("a")
    assert isinstance(world.commit(grant, require_live=False, value=b"v"), results.Committed)
    assert [(event.kind, event.owner) for event in world.events] == [("committed", "agent-a")]
    assert world.table.record(TENANT, "k").owner == "agent-a"


def test_an_op_id_does_not_answer_the_next_holder(world: World) -> None:
    """Names of steps are natural op_ids, and the next holder goes through the same steps."""
    first = world.granted("k", "A", lease="a")
    accepted = world.commit(first, op="step-1", value=b"A")
    world.release("a")
    second = world.granted("k", "B", lease="b")
    assert world.commit(second, op="step-1", value=b"B") == REUSED
    assert world.events == []
    assert world.table.record(TENANT, "k").value == b"A"
    assert world.commit(first, op="step-1", value=b"A") == accepted
    assert isinstance(world.commit(second, op="step-1b", value=b"B"), results.Committed)


@pytest.mark.parametrize(
    "changed",
    [
        {"lease": "bogus"},
        {"token": 0},
        {"mode": "current", "seq": None},
        {"seq": 2},
        {"slot": 1},
        {"if_revision": 0},
        {"require_live": False},
        {"value": b"other"},
        {"value": None},
        {"digest": "sha256:0"},
        {"binary": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_commit_that_differs_in_anything_is_no_retry(world: World, changed: dict[str, object]) -> None:
    grant = world.granted("k", lease="a")
    asked = {"mode": "sequence", "seq": 1, "op": "o", "value": b"v"}
    first = expect(results.Committed, world.commit(grant, **asked))
    state, record = world.table.key_state(TENANT, "k"), world.table.record(TENANT, "k")
    world.restart()
    assert world.commit(grant, **{**asked, **changed}) == REUSED
    assert world.events == []
    assert world.table.key_state(TENANT, "k") == state
    assert world.table.record(TENANT, "k") == record
    assert world.commit(grant, **asked) == first


def test_a_refused_commit_is_remembered_with_what_it_asked(world: World) -> None:
    grant = world.granted("k", lease="a")
    refused = world.commit(grant, op="o", if_revision=7, value=b"v")
    assert code(refused) == "revision_conflict"
    assert world.commit(grant, op="o", if_revision=0, value=b"v") == REUSED
    assert world.commit(grant, op="o", if_revision=7, value=b"v") == refused
