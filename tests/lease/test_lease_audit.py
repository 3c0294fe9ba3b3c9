"""The audit in the replicated state: what is recorded, how it hangs together, what is forgotten."""

import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lease_world import TENANT, World

from tenure_cluster.lease import audit_trail, commands, limits, snapshot
from tenure_cluster.lease.audit_trail import GENESIS, AuditNote, AuditRecord, NoteAudit, Noted, SetAuditPolicy
from tenure_cluster.lease.credentials import CreateCredential, RevokeCredential, RotateCredential
from tenure_cluster.lease.quota import Quota, SetQuota
from tenure_cluster.lease.results import Done, Invalid
from tenure_cluster.lease.step import InvariantBroken

DAY_MS = 86_400_000


def begin(world: World, records_max: int = 100, keep_ms: int = DAY_MS) -> World:
    world.apply(SetAuditPolicy(records_max, keep_ms, world.wall_ms))
    return world


@pytest.fixture
def audited(world: World) -> World:
    return begin(world)


def records(world: World) -> list[AuditRecord]:
    return list(world.table.audit.records.values())


def told(world: World) -> list[tuple[str, str, int]]:
    """(kind, code, count) of each record but the policy's."""
    return [(one.kind, one.code, one.count) for one in records(world) if one.kind != "audit_policy"]


def note(world: World, *notes: AuditNote) -> Any:
    return world.apply(NoteAudit(list(notes), world.wall_ms))


def forbidden(actor: str = "c", count: int = 1, **fields: Any) -> AuditNote:
    return AuditNote("refused", TENANT, actor, code="forbidden", subject="break", count=count, **fields)


def break_key(world: World, key: str, reason: str = "because", **fields: str) -> Any:
    return world.apply(
        commands.Break(TENANT, key, reason, fields.pop("actor", "root"), world.wall_ms, **fields)
    )


def stale(world: World, key: str = "k", **fields: Any) -> None:
    """A commit that is refused, by a holder whose lease was broken."""
    grant = world.granted(key, "A")
    break_key(world, key)
    world.commit(grant, **fields)


# What is recorded


def test_nothing_is_recorded_before_a_policy_is_set(world: World) -> None:
    stale(world)
    assert note(world, forbidden()) == Noted(0)
    assert not world.table.audit.records
    assert not world.table.audit.chain
    world.restart()


def test_the_beginning_is_recorded_itself(audited: World) -> None:
    [first] = records(audited)
    assert (first.seq, first.kind, first.detail) == (
        1,
        "audit_policy",
        "100 records are kept for 86400000 ms",
    )


def test_a_break_tells_who_broke_what_of_whom_from_where_and_why(audited: World) -> None:
    grant = audited.granted("job", "agent-a")
    break_key(audited, "job", "it hangs", actor="c-1", origin="10.0.0.7")
    record = records(audited)[-1]
    assert (record.kind, record.tenant, record.key) == ("break", TENANT, "job")
    assert (record.actor, record.origin, record.detail) == ("c-1", "10.0.0.7", "it hangs")
    assert (record.owner, record.token, record.subject) == ("agent-a", grant.lease.token, "1 holders")
    assert (record.wall_ms, record.code, record.count) == (audited.wall_ms, "", 1)


def test_every_break_is_a_record_of_its_own(audited: World) -> None:
    for _ in range(3):
        audited.granted("job", "agent-a")
        break_key(audited, "job")
    assert told(audited) == [("break", "", 1)] * 3


@pytest.mark.parametrize(
    "code", ["stale_token", "token_used", "seq_replayed", "not_live", "revision_conflict"]
)
def test_every_kind_of_refused_commit_is_recorded_and_accepted_ones_are_not(
    audited: World, code: str
) -> None:
    grant = audited.granted("k", "A", ttl_ms=10_000)
    if code == "stale_token":
        break_key(audited, "k")
    if code == "not_live":
        audited.wait(20_000)
    mode: Any = "sequence" if code == "seq_replayed" else "once" if code == "token_used" else "current"
    numbered = {"seq": 1} if mode == "sequence" else {}
    revision = {"if_revision": 7} if code == "revision_conflict" else {}
    if code in ("token_used", "seq_replayed"):
        audited.commit(grant, mode=mode, **numbered)
    assert not [one for one in records(audited) if one.kind == "commit"]
    audited.commit(grant, mode=mode, **numbered, **revision)
    record = records(audited)[-1]
    assert (record.kind, record.code, record.key, record.token) == ("commit", code, "k", grant.lease.token)
    # After the break its lease is known no more.
    assert record.owner == ("" if code == "stale_token" else "A")


def test_a_retried_commit_that_was_refused_is_recorded_once(audited: World) -> None:
    grant = audited.granted("k", "A")
    break_key(audited, "k")
    for _ in range(3):
        audited.commit(grant, op="o")
    audited.wait(limits.AUDIT_REPEAT_MS)
    audited.tick()
    assert told(audited) == [("break", "", 1), ("commit", "stale_token", 1)]


def test_a_deleted_record_is_recorded(audited: World) -> None:
    grant = audited.granted("k", "A")
    audited.commit(grant, value=b"v")
    audited.apply(commands.DeleteRecord(TENANT, "k", None, audited.wall_ms, "c-1", "10.0.0.7"))
    record = records(audited)[-1]
    assert (record.kind, record.key, record.owner, record.actor) == ("delete_record", "k", "A", "c-1")


def test_changes_of_credentials_and_quotas_are_recorded_and_refused_ones_too(audited: World) -> None:
    def apply(kind: type, *fields: Any) -> None:
        audited.apply(kind(*fields, "root", audited.wall_ms, "10.0.0.7"))

    apply(CreateCredential, "c", "team", "an agent", ["acquire"], ["a/", ""], bytes(32), 0, False)
    apply(RotateCredential, "c", bytes([1]) * 32, 5)
    apply(RevokeCredential, "c")
    apply(RevokeCredential, "c")
    apply(SetQuota, "team", Quota(leases_max=3))
    apply(SetQuota, "team", None)
    assert [(one.kind, one.subject, one.code, one.detail) for one in records(audited)[1:]] == [
        ("create_credential", "c", "", "an agent: acquire; keys '', 'a/'"),
        ("rotate_credential", "c", "", "overlap 5 ms"),
        ("revoke_credential", "c", "", "an agent"),
        ("revoke_credential", "c", "no_credential", ""),
        ("set_quota", "team", "", "leases_max 3"),
        ("set_quota", "team", "", "as configured"),
    ]
    assert {one.actor for one in records(audited)[1:]} == {"root"}
    assert {one.origin for one in records(audited)[1:]} == {"10.0.0.7"}


def test_a_credential_that_is_asked_for_again_is_recorded_once(audited: World) -> None:
    asked = CreateCredential(
        "c", "team", "n", ["acquire"], [""], bytes(32), 0, False, "root", audited.wall_ms
    )
    audited.apply(asked)
    audited.apply(msgspec.structs.replace(asked, wall_ms=audited.wall_ms + 1))
    assert told(audited) == [("create_credential", "", 1)]


def test_what_is_said_is_cut_to_its_bounds(audited: World) -> None:
    long = "x" * 10_000
    note(audited, AuditNote(long, TENANT, "c", long, subject=long, code=long, detail=long, count=-5))
    record = records(audited)[-1]
    assert len(msgspec.msgpack.encode(record)) < 2_500
    assert record.count == 1


def test_of_too_many_notes_the_first_are_recorded(audited: World) -> None:
    done = note(audited, *(forbidden(str(number)) for number in range(limits.AUDIT_NOTES_MAX + 5)))
    assert done == Noted(limits.AUDIT_NOTES_MAX)


# Repetitions


def test_a_refusal_that_repeats_is_told_at_once_and_then_by_its_number(audited: World) -> None:
    for _ in range(50):
        note(audited, forbidden(count=2))
    assert told(audited) == [("refused", "forbidden", 2)]
    audited.wait(limits.AUDIT_REPEAT_MS - 1)
    audited.tick()
    assert told(audited) == [("refused", "forbidden", 2)]
    audited.wait(1)
    audited.tick()
    assert told(audited) == [("refused", "forbidden", 2), ("refused", "forbidden", 98)]
    # And it goes on being counted, until there has been nothing for so long.
    note(audited, forbidden())
    audited.wait(limits.AUDIT_REPEAT_MS)
    audited.tick()
    audited.wait(limits.AUDIT_REPEAT_MS)
    audited.tick()
    assert told(audited)[2:] == [("refused", "forbidden", 1)]
    assert not audited.table.audit.repeats
    note(audited, forbidden())
    assert told(audited)[3:] == [("refused", "forbidden", 1)]


def test_another_actor_or_another_reason_is_another_refusal(audited: World) -> None:
    note(audited, forbidden("a"), forbidden("b"), msgspec.structs.replace(forbidden("a"), subject="commit"))
    assert len(told(audited)) == 3


def test_neither_addresses_nor_keys_make_a_refusal_another_one(audited: World) -> None:
    note(audited, *(forbidden(origin=f"10.0.0.{n}", key=f"k/{n}") for n in range(50)))
    assert told(audited) == [("refused", "forbidden", 1)]


def test_a_stale_holder_that_hammers_is_counted_by_its_token(audited: World) -> None:
    old = audited.granted("k", "A")
    break_key(audited, "k")
    new = audited.granted("k", "B")
    break_key(audited, "k")
    for _ in range(20):
        audited.commit(old)
        audited.commit(new)
    assert [one.token for one in records(audited) if one.kind == "commit"] == [
        old.lease.token,
        new.lease.token,
    ]


def made_up(world: World, token: int, actor: str = "c") -> None:
    """A commit with a token that nobody was given."""
    world.apply(
        commands.Commit(
            tenant=TENANT,
            key="k",
            slot=0,
            lease_id="no-lease",
            token=token,
            mode="current",
            seq=None,
            op_id=None,
            require_live=True,
            if_revision=None,
            value=None,
            binary=False,
            digest="",
            wall_ms=world.wall_ms,
            actor=actor,
        )
    )


def test_tokens_that_are_made_up_push_nothing_out_of_the_audit(world: World) -> None:
    audited = begin(world, records_max=2 * limits.AUDIT_COMMITS_MAX)
    break_key(audited, "evidence")
    for number in range(1, 20 * limits.AUDIT_COMMITS_MAX):
        made_up(audited, number)
    commits = [one for one in records(audited) if one.kind == "commit"]
    assert len(commits) == limits.AUDIT_COMMITS_MAX + 1
    assert (commits[-1].key, commits[-1].token, commits[-1].actor) == ("", 0, "c")
    assert [one.key for one in records(audited) if one.kind == "break"] == ["evidence"]
    made_up(audited, 7, actor="another")
    assert [(one.actor, one.token) for one in records(audited)][-1] == ("another", 7)


def test_breaks_of_what_nobody_holds_push_nothing_out_of_the_audit(world: World) -> None:
    audited = begin(world, records_max=10)
    audited.granted("held", "A")
    break_key(audited, "held")
    for number in range(100):
        break_key(audited, f"k{number}")
    assert told(audited) == [("break", "", 1), ("break", "not_held", 1)]
    audited.wait(limits.AUDIT_REPEAT_MS)
    audited.tick()
    assert told(audited)[2:] == [("break", "not_held", 99)]


def test_refused_commits_that_are_counted_together_are_told_and_outlive_a_restart(world: World) -> None:
    audited = begin(world, records_max=1_000)
    asked = 3 * limits.AUDIT_COMMITS_MAX
    for number in range(1, asked + 1):
        made_up(audited, number)
        if number % 50 == 0:
            audited.restart()
    for _ in range(20):
        audited.wait(limits.AUDIT_REPEAT_MS)
        audited.tick()
    assert sum(one.count for one in records(audited) if one.kind == "commit") == asked
    assert not audited.table.audit.repeats
    made_up(audited, asked + 1)
    assert records(audited)[-1].token == asked + 1, "after a quiet time they are told apart again"


def test_when_too_many_are_counted_the_oldest_is_told_early(
    audited: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AUDIT_REPEATS_MAX", 2)
    for actor in ("a", "b"):
        note(audited, forbidden(actor), forbidden(actor), forbidden(actor))
    note(audited, forbidden("c"))
    assert [(one.actor, one.count) for one in records(audited)[1:]] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("c", 1),
    ]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(1, 4), st.sampled_from([0, 1, 59_999, 60_000]), st.booleans()
        ),
        max_size=30,
    )
)
def test_no_refusal_is_lost_whatever_is_restarted_between(
    steps: list[tuple[str, int, int, bool]],
) -> None:
    world = begin(World(), records_max=1_000)
    for actor, count, pause_ms, restart in steps:
        note(world, forbidden(actor, count))
        world.wait(pause_ms)
        if restart:
            world.restart()
    for _ in range(2):
        world.wait(limits.AUDIT_REPEAT_MS)
        world.tick()
    for name in "abc":
        recorded = sum(one.count for one in records(world) if one.actor == name)
        assert recorded == sum(count for actor, count, _, _ in steps if actor == name)
    assert not world.table.audit.repeats


# The chain


def hash_by_hand(prev: str, record: AuditRecord) -> str:
    """As somebody does who has an export and the description of it."""
    content = {**msgspec.structs.asdict(record), "prev": prev}
    del content["hash"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_chain_can_be_verified_by_its_description_alone(audited: World) -> None:
    grant = audited.granted('ключ/\u2028"\\\n\x01\x7f/é', "o\tn")
    break_key(audited, grant.lease.key, "¿porqué? \u0000 \U0001f512 </script>")
    stale(audited)
    prev = GENESIS.hex()
    assert len(records(audited)) == 4
    for record in records(audited):
        assert record.hash.hex() == hash_by_hand(prev, record)
        prev = record.hash.hex()
    assert audited.table.audit.present.head.hex() == prev


def test_the_oldest_go_beyond_the_number_and_the_chain_stays_whole(world: World) -> None:
    begin(world, records_max=5)
    hashes = [GENESIS]
    for number in range(12):
        note(world, forbidden(str(number)))
        hashes.append(records(world)[-1].hash)
    chain = world.table.audit.present
    assert [one.seq for one in records(world)] == [9, 10, 11, 12, 13]
    assert (chain.last_seq, chain.head, chain.base) == (13, hashes[12], hashes[7])
    world.restart()
    assert world.table.audit.present == chain
    note(world, forbidden("more"))
    assert records(world)[-1].hash.hex() == hash_by_hand(chain.head.hex(), records(world)[-1])


def test_records_go_when_their_time_is_over_though_nothing_is_recorded(world: World) -> None:
    begin(world, keep_ms=DAY_MS)
    world.wait(DAY_MS - 1)
    note(world, forbidden("late"))
    world.wait(1)
    world.tick()
    assert [one.actor for one in records(world)] == ["late"]
    world.wait(DAY_MS)
    world.tick()
    assert records(world) == []
    chain = world.table.audit.present
    assert chain.base == chain.head != GENESIS
    world.restart()
    assert world.table.audit.present == chain


def test_many_that_are_over_go_in_bounded_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(world)
    note(world, *(forbidden(str(number)) for number in range(20)))
    monkeypatch.setattr(limits, "AUDIT_SWEEP_MAX", 8)
    world.wait(DAY_MS)
    left = []
    for _ in range(7):
        world.tick()
        left.append(len(records(world)) + len(world.table.audit.repeats))
    assert left == [33, 25, 17, 9, 1, 0, 0]


def test_less_is_kept_as_soon_as_the_policy_says_so_and_nothing_when_it_is_off(audited: World) -> None:
    note(audited, *(forbidden(str(number)) for number in range(20)))
    audited.apply(SetAuditPolicy(5, DAY_MS, audited.wall_ms))
    assert [one.seq for one in records(audited)] == [18, 19, 20, 21, 22]
    audited.apply(SetAuditPolicy(0, DAY_MS, audited.wall_ms))
    head = audited.table.audit.present.head
    assert not records(audited)
    note(audited, forbidden())
    stale(audited)
    assert not records(audited)
    audited.restart()
    begin(audited)
    [record] = records(audited)
    assert (record.seq, record.hash.hex()) == (23, hash_by_hand(head.hex(), record))


def test_the_same_policy_again_changes_nothing(audited: World) -> None:
    assert audited.apply(SetAuditPolicy(100, DAY_MS, audited.wall_ms)) == Done(0)
    assert len(records(audited)) == 1


@pytest.mark.parametrize("policy", [(-1, 1), (limits.AUDIT_RECORDS_MAX + 1, 1), (1, -1)])
def test_a_policy_that_cannot_be_is_refused(world: World, policy: tuple[int, int]) -> None:
    assert isinstance(world.apply(SetAuditPolicy(*policy, world.wall_ms)), Invalid)
    assert not world.table.audit.on


# Damage


def damaged(world: World, what: str) -> None:
    """Somebody changes the state past the machine."""
    trail = world.table.audit
    numbers = list(trail.records)
    middle = trail.records[numbers[len(numbers) // 2]]
    if what == "changed":
        trail.records[middle.seq] = msgspec.structs.replace(middle, owner="somebody else")
    elif what == "left out":
        del trail.records[middle.seq]
    elif what == "cut off":
        trail.records.popitem()
    elif what == "begins later":
        trail.records.popitem(last=False)
    elif what == "counted less":
        trail.records[middle.seq] = msgspec.structs.replace(middle, count=7)
    else:
        trail.chain[0] = msgspec.structs.replace(trail.present, head=bytes(32))


@pytest.mark.parametrize("what", ["changed", "left out", "cut off", "begins later", "counted less", "head"])
def test_damage_is_found_by_the_check_and_in_a_snapshot(audited: World, what: str) -> None:
    note(audited, *(forbidden(str(number)) for number in range(6)))
    audited.machine.check()
    damaged(audited, what)
    with pytest.raises(InvariantBroken, match="audit"):
        audited.machine.check()
    with pytest.raises(snapshot.SnapshotDamaged, match="audit"):
        snapshot.load(list(snapshot.dump(audited.table)))


def test_whoever_rewrites_all_that_follows_gives_another_head(audited: World) -> None:
    note(audited, *(forbidden(str(number)) for number in range(6)))
    trail = audited.table.audit
    head = trail.present.head
    prev = trail.records[3].hash
    for seq in range(4, 8):
        record = msgspec.structs.replace(trail.records[seq], owner="x" if seq == 4 else "")
        trail.records[seq] = msgspec.structs.replace(record, hash=audit_trail.hash_of(prev, record))
        prev = trail.records[seq].hash
    trail.chain[0] = msgspec.structs.replace(trail.present, head=prev)
    audited.machine.check()
    assert trail.present.head != head


# Versions


def test_without_an_audit_snapshots_are_of_a_version_that_older_nodes_read(world: World) -> None:
    world.table.rules = world.replica.table.rules = 0
    stale(world)
    header = msgspec.msgpack.decode(next(iter(snapshot.dump(world.table))))
    assert header[1] == 2
    begin(world)
    header = msgspec.msgpack.decode(next(iter(snapshot.dump(world.table))))
    assert header[1] == 4


class BreakOfBefore(msgspec.Struct, array_like=True, tag=6):
    tenant: str
    key: str
    reason: str
    actor: str
    wall_ms: int


def test_a_break_with_its_origin_is_a_break_to_nodes_of_before() -> None:
    new = commands.Break("t", "k", "r", "a", 7, "10.0.0.7")
    assert msgspec.msgpack.decode(commands.encode(new), type=BreakOfBefore).wall_ms == 7
    old = commands.decode(msgspec.msgpack.encode(BreakOfBefore("t", "k", "r", "a", 7)))
    assert old == commands.Break("t", "k", "r", "a", 7)
