"""A state that is put back to a backup: nothing of before is held, and nothing is ever issued again."""

from typing import Any

import pytest
from lease_world import EPOCH_WALL_MS, TENANT, World, expect, grant_in
from test_lease_snapshot import full_world

from tenure_cluster.lease import commands, limits, results, snapshot
from tenure_cluster.lease.audit_trail import AuditRecord, SetAuditPolicy
from tenure_cluster.lease.credentials import CreateCredential
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.quota import Quota, SetQuota
from tenure_cluster.lease.restoration import (
    FLOOR_MAX,
    JUMP,
    PER_SECOND,
    Restoration,
    RestoreImpossible,
    put_back,
)
from tenure_cluster.lease.table import LeaseTable

YEAR_S = 365 * 86_400


def backup(world: World) -> list[bytes]:
    return list(snapshot.dump(world.table))


def restored(chunks: list[bytes], *, made_wall_ms: int = EPOCH_WALL_MS, floor: int = 0) -> World:
    """A new world that begins with a backup, as all its nodes do: from the bytes."""
    world = World()
    world.ids = 1_000_000  # what clients draw now is not what they drew before
    for machine in (world.machine, world.replica):
        table = snapshot.load(chunks)
        put_back(table, made_wall_ms=made_wall_ms, token_floor=floor)
        machine.table = snapshot.load(list(snapshot.dump(table)))
        machine.check()
    world.now_ms = world.table.time_ms
    return world


def stale_commit(world: World, grant: results.Grant, **fields: Any) -> str:
    lease = grant.lease
    asked: dict[str, Any] = {
        "tenant": lease.tenant,
        "key": lease.key,
        "slot": lease.slot,
        "lease_id": lease.lease_id,
        "token": lease.token,
        "mode": "current",
        "seq": None,
        "op_id": None,
        "require_live": False,
        "if_revision": None,
        "value": b"late",
        "binary": False,
        "digest": "",
        "wall_ms": world.wall_ms,
    }
    return expect(results.CommitRefused, world.apply(commands.Commit(**{**asked, **fields}))).code


def test_nothing_of_before_is_held_or_waited_for() -> None:
    world = restored(backup(full_world(World())))
    table = world.table
    assert (len(table.leases), len(table.sessions), len(table.waiters)) == (0, 0, 0)
    for key in ("held", "written", "pool", "read", "of-set", "rests", "handed"):
        assert not table.in_use(TENANT, key) or (TENANT, key) in table.records, key
        world.granted(key, "new")


def test_what_a_lease_was_is_told_to_its_holder() -> None:
    before = full_world(World())
    sessions = [ref[1] for ref, session in before.table.sessions.items() if not session.private]
    leases = [lease for lease in before.table.leases.values() if lease.tenant == TENANT]
    assert sessions
    assert len(leases) > 5
    world = restored(backup(before))
    for lease in leases:
        assert expect(results.Lost, world.renew(lease.lease_id)).reason == "restored"
    for session in sessions:
        assert isinstance(world.renew(session=session), results.SessionExpired)


def test_records_stay_and_what_they_were_written_with_is_over() -> None:
    before = World()
    grant = before.granted("k", "A", ttl_ms=600_000)
    before.commit(grant, mode="current", value=b"kept")
    world = restored(backup(before))
    record = world.table.record(TENANT, "k")
    assert (record.value, record.token) == (b"kept", grant.lease.token)
    assert stale_commit(world, grant) == "stale_token"
    assert stale_commit(world, grant, require_live=True) == "stale_token"
    after = world.granted("k", "B")
    committed = expect(results.Committed, world.commit(after, mode="current", value=b"new"))
    assert committed.revision > record.revision + JUMP


def test_a_holder_that_is_newer_than_the_backup_is_refused_as_well() -> None:
    before = World()
    before.commit(before.granted("k", "A", ttl_ms=1_000), mode="current", value=b"kept")
    chunks = backup(before)
    before.wait(2_000)
    later = before.granted("k", "B", ttl_ms=600_000)
    unknown = before.granted("never in the backup", "B", ttl_ms=600_000)
    world = restored(chunks)
    assert stale_commit(world, later) == "stale_token"
    assert stale_commit(world, unknown) == "stale_token"
    assert world.granted("k", "C").lease.token > later.lease.token


def test_a_shared_phase_and_every_slot_of_a_pool_are_over() -> None:
    before = World()
    shared = before.granted("read", "A", mode="shared", ttl_ms=600_000)
    permit = before.granted("pool", "A", mode="permit", slots=2, ttl_ms=600_000)
    world = restored(backup(before))
    assert [stale_commit(world, grant) for grant in (shared, permit)] == ["stale_token"] * 2


def test_tokens_and_revisions_rise_above_all_that_could_have_been() -> None:
    """T66: nothing that was issued after the backup can be issued again."""
    before = World()
    before.granted("k", "A")
    counters = before.table.tenants[TENANT]
    world = restored(backup(before))
    granted = world.granted("k", "B").lease
    assert granted.token > counters.last_token + JUMP
    assert granted.token > EPOCH_WALL_MS // 1000 * PER_SECOND
    assert granted.revision > counters.revision + JUMP
    assert granted.token < limits.TOKEN_MAX // 2


def test_a_tenant_that_the_backup_does_not_know_begins_above_all_too() -> None:
    before = World()
    before.granted("k", "A")
    world = restored(backup(before))
    granted = world.granted("k", "B", tenant="made after the backup").lease
    assert granted.token > EPOCH_WALL_MS // 1000 * PER_SECOND
    assert granted.revision > EPOCH_WALL_MS // 1000 * PER_SECOND


def test_the_same_backup_again_rises_above_its_first_use() -> None:
    before = World()
    before.granted("k", "A")
    chunks = backup(before)
    first = restored(chunks)
    used = [first.granted(f"k{number}", "B").lease for number in range(50)][-1]
    second = restored(chunks)
    second.now_ms += 1_000
    again = second.granted("k", "C").lease
    assert again.token > used.token
    assert again.revision > used.revision


def test_a_holder_of_the_first_use_is_stale_in_the_second() -> None:
    before = World()
    before.commit(before.granted("k", "A"), mode="current", value=b"kept")
    chunks = backup(before)
    first = restored(chunks)
    grant = first.granted("k", "B", ttl_ms=600_000)
    second = restored(chunks)
    second.now_ms += 1_000
    second.apply(commands.Tick(second.wall_ms))
    assert stale_commit(second, grant) == "stale_token"


def test_the_same_backup_again_rises_even_if_its_numbers_are_ahead_of_the_clock() -> None:
    before = World()
    put_back(before.table, made_wall_ms=EPOCH_WALL_MS, token_floor=FLOOR_MAX // 2)
    chunks = backup(before)
    tokens = []
    for passed_ms in (10_000, 20_000):
        world = restored(chunks)
        world.now_ms += passed_ms
        tokens.append(world.granted("k", "A").lease.token)
    assert tokens[1] >= tokens[0] + 10 * PER_SECOND


def test_a_clock_that_was_set_back_lowers_nothing_and_a_floor_helps() -> None:
    before = World()
    before.granted("k", "A")
    last = before.table.tenants[TENANT].last_token
    chunks = backup(before)
    world = restored(chunks)
    low = grant_in(world.acquire("k", "B", wall_ms=1)).lease.token
    assert low == last + JUMP + 1
    floored = restored(chunks, floor=10**15)
    assert grant_in(floored.acquire("k", "B", wall_ms=1)).lease.token == 10**15 + 1


def test_a_clock_of_another_age_uses_no_more_than_half_of_the_tokens() -> None:
    world = restored(backup(World()))
    wall_ms = 1_000 * YEAR_S * 1_000
    assert grant_in(world.acquire("k", "B", wall_ms=wall_ms)).lease.token == FLOOR_MAX + 1


def test_the_first_entry_tells_every_tenant_and_no_later_one_does() -> None:
    before = World()
    before.granted("k", "A")
    before.granted("k", "A", tenant="other")
    world = restored(backup(before))
    assert world.table.has_live_sessions(), "or nobody would tick"
    world.apply(commands.Tick(world.wall_ms))
    assert [(e.tenant, e.kind, e.key) for e in world.events] == [
        (TENANT, "restored", ""),
        ("other", "restored", ""),
    ]
    assert all(event.detail == "2 leases ended" for event in world.events)
    told = world.events[0]
    granted = world.granted("k", "B").lease
    assert "restored" not in world.kinds()
    world.release(granted.lease_id)
    assert not world.table.has_live_sessions()
    assert (granted.token, granted.revision) == (told.token + 1, told.revision + 1)


def test_a_retried_commit_has_its_answer_still_and_a_retried_acquire_is_not_granted_anew() -> None:
    before = World()
    grant = before.granted("k", "A", request="r", ttl_ms=600_000)
    first = before.commit(grant, mode="once", op="o", value=b"v")
    world = restored(backup(before))
    assert world.commit(grant, mode="once", op="o", value=b"v") == first
    assert expect(results.Lost, world.acquire("k", "A", request="r")).reason == "restored"


def test_the_state_is_bytes_and_back_and_its_digest_knows_of_it() -> None:
    chunks = backup(full_world(World()))
    world = restored(chunks)
    plain = snapshot.load(chunks)
    assert snapshot.digest(world.table) != snapshot.digest(plain)
    world.restart()
    world.granted("k", "A")
    world.restart()
    assert isinstance(world.table.restoration, Restoration)
    assert world.table.restoration.settled


def test_a_restored_state_can_be_backed_up_and_put_back_again() -> None:
    world = restored(backup(full_world(World())))
    token = world.granted("k", "A").lease.token
    again = restored(backup(world), made_wall_ms=world.wall_ms)
    again.ids *= 2
    assert again.granted("k", "B").lease.token >= token + JUMP
    assert again.granted("k", "B", tenant="fresh").lease.token >= token + JUMP - 100


def test_a_floor_that_leaves_no_tokens_is_refused() -> None:
    for floor in (-1, FLOOR_MAX + 1):
        with pytest.raises(RestoreImpossible, match="a token floor is"):
            put_back(LeaseTable(), made_wall_ms=0, token_floor=floor)


def test_a_version_that_does_not_know_of_restoring_would_refuse_the_state() -> None:
    """It compares the format's name, which is another one here."""
    world = restored(backup(World()))
    assert b"tenure-lease-table-restored" in backup(world)[0]


def test_a_state_that_counts_as_if_nothing_had_been_put_back_is_damaged() -> None:
    world = World()
    world.granted("k", "A")
    machine = LeaseMachine(world.table)
    world.table.restoration = Restoration(0, JUMP, JUMP, 0, True)
    with pytest.raises(Exception, match="as if nothing had been put back"):
        machine.check()


def test_credentials_and_quotas_are_kept() -> None:
    before = World()
    create = CreateCredential(
        credential_id="c",
        tenant=TENANT,
        name="admin",
        rights=["admin"],
        prefixes=[""],
        digest=b"d" * 32,
        lifetime_ms=0,
        first=True,
        actor="",
        wall_ms=before.wall_ms,
    )
    for machine in (before.machine, before.replica):
        machine.apply(before.now_ms, create)
        machine.apply(before.now_ms, SetQuota(TENANT, Quota(leases_max=3), "c", before.wall_ms))
    world = restored(backup(before))
    assert world.table.credentials == before.table.credentials != {}
    assert world.table.quotas == before.table.quotas != {}


def audited(records_max: int) -> World:
    world = World()
    world.apply(SetAuditPolicy(records_max, YEAR_S * 1_000, world.wall_ms))
    return world


def of_restore(world: World) -> list[AuditRecord]:
    found = [record for record in world.table.audit.records.values() if record.kind.startswith("restore")]
    assert {record.wall_ms for record in found} <= {EPOCH_WALL_MS}
    return found


def test_every_lease_that_is_ended_is_in_the_audit_with_holder_key_and_token() -> None:
    before = audited(100)
    job = before.granted("job", "agent-a", ttl_ms=600_000)
    pool = before.granted("pool", "agent-b", mode="permit", slots=2, ttl_ms=600_000)
    before.release(before.granted("over", "agent-c").lease.lease_id)
    known = len(before.table.audit.records)
    world = restored(backup(before))
    [restore, *leases] = of_restore(world)
    assert (restore.seq, restore.subject) == (known + 1, "2 leases ended")
    assert [(one.owner, one.key, one.token, one.subject, one.tenant) for one in leases] == [
        ("agent-a", "job", job.lease.token, "exclusive", TENANT),
        ("agent-b", "pool", pool.lease.token, "permit", TENANT),
    ]
    world.granted("job", "agent-d")
    world.restart()


def test_the_audit_of_a_restore_leaves_half_of_what_is_kept_to_the_rest() -> None:
    before = audited(10)
    for number in range(12):
        before.granted(f"k{number}", "A", ttl_ms=600_000)
    world = restored(backup(before), floor=JUMP * 2)
    [restore, *leases] = of_restore(world)
    assert restore.subject == "12 leases ended"
    assert f"token floor {JUMP * 2}" in restore.detail
    assert [one.key for one in leases] == [f"k{number}" for number in range(7, 12)]
    assert next(iter(world.table.audit.records.values())).kind == "audit_policy"


def test_where_there_was_no_audit_a_restore_begins_none() -> None:
    before = World()
    before.granted("job", "A", ttl_ms=600_000)
    assert not restored(backup(before)).table.audit.chain
