"""The audit in a cluster: begun by the leader, told by any node, bounded whatever comes."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from service_cluster import TENANT, Cluster, Part, acquired, ask, cluster, request, until

from tenure.audit import verify
from tenure_cluster.lease import limits
from tenure_cluster.lease.audit_trail import AuditNote, AuditTrail, NoteAudit, SetAuditPolicy
from tenure_cluster.lease.commands import Break
from tenure_cluster.service import audit
from tenure_cluster.service.audit_messages import (
    AuditRecordBody,
    AuditReply,
    ListAuditRequest,
    NoteAuditRequest,
    NotedReply,
)
from tenure_cluster.service.errors import Problem
from tenure_cluster.settings import Audit

FORBIDDEN = Problem("forbidden", "The credential lacks the right force, which break needs")


async def listed(part: Part, after: int = 0, limit: int = 100) -> AuditReply:
    reply = await part.service.call("list_audit", TENANT, ListAuditRequest(after=after, limit=limit))
    assert isinstance(reply, AuditReply), reply
    return reply


async def begun(running: Cluster) -> None:
    """The leader has set the policy, and every node has it."""
    await until(
        lambda: all(part.replica.table.audit.on for part in running.parts.values()), "the audit's beginning"
    )


async def recorded(part: Part, count: int) -> list[AuditRecordBody]:
    """Records beside the beginning, as soon as there are so many."""
    for _ in range(1_000):
        found = [one for one in (await listed(part, limit=500)).records if one.kind != "audit_policy"]
        if len(found) >= count:
            assert len(found) == count
            return found
        await asyncio.sleep(0.02)
    raise TimeoutError(f"waited for {count} records, there are {len(found)}")


def refuse(part: Part, operation: str = "break", actor: str = "c", **fields: str) -> None:
    told: dict[str, Any] = {"tenant": TENANT, "origin": "10.0.0.7", "key": "job", **fields}
    part.service.refused(FORBIDDEN, operation, actor=actor, **told)


def commands_of(part: Part) -> list[Any]:
    """All commands that the node applies from now on."""
    seen: list[Any] = []
    part.replica.on_applied = lambda commands, results, events: seen.extend(commands)
    return seen


async def test_a_break_is_recorded_with_who_and_whence_at_every_node(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, audit=Audit()) as running:
        await begun(running)
        follower = await running.follower()
        lease = await acquired(follower, "job")
        asked = request("break", key="job", reason="it hangs")
        answer = await follower.service.call("break", TENANT, asked, "cred-1", "10.0.0.7")
        assert not isinstance(answer, Problem)
        for part in running.parts.values():
            [record] = await recorded(part, 1)
            assert (record.kind, record.key, record.token) == ("break", "job", lease.token)
            assert (record.actor, record.origin, record.detail) == ("cred-1", "10.0.0.7", "it hangs")


async def test_what_any_node_refuses_is_told_once_with_a_count(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, audit=Audit()) as running:
        await begun(running)
        follower = await running.follower()
        seen = commands_of(await running.leader())
        for number in range(5_000):
            refuse(follower, origin=f"10.0.{number % 250}.7", key=f"job/{number}")
        [record] = await recorded(follower, 1)
        assert (record.kind, record.code, record.subject) == ("refused", "forbidden", "break")
        assert (record.actor, record.key, record.origin) == ("c", "job/0", "10.0.0.7")
        assert record.count == 5_000
        assert len([one for one in seen if isinstance(one, NoteAudit)]) == 1


async def test_more_kinds_of_refusals_than_are_told_apart_are_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, audit=Audit()) as running:
        await begun(running)
        leader = await running.leader()
        seen = commands_of(leader)
        many = 3 * limits.AUDIT_NOTES_MAX
        for number in range(many):
            refuse(leader, actor=f"c{number}")
        records = await recorded(leader, limits.AUDIT_NOTES_MAX)
        assert records[-1].code == "others"
        assert sum(record.count for record in records) == many
        assert len([one for one in seen if isinstance(one, NoteAudit)]) == 1


async def test_without_a_valid_credential_all_are_alike(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, audit=Audit()) as running:
        await begun(running)
        leader = await running.leader()
        problem = Problem("unauthenticated", "Show a valid credential")
        for number, operation in enumerate(["acquire", "break", "list_audit"] * 100):
            leader.service.refused(
                problem, operation, tenant="", actor="", origin=f"10.0.0.{number % 200}", key=""
            )
        [record] = await recorded(leader, 1)
        assert (record.code, record.subject, record.count) == ("unauthenticated", "", 300)


async def test_notes_wait_for_a_leader_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PERIOD_S", 0.05)
    async with cluster(tmp_path, 3, audit=Audit()) as running:
        await begun(running)
        follower = await running.follower()
        running.isolate(follower)
        await until(lambda: follower.service.leadership.reachable is None, "the follower to be cut off")
        for _ in range(3):
            refuse(follower)
            await asyncio.sleep(0.1)
        running.heal()
        # Some may have been told already when the others come: those are counted. So are those, once more,
        # whose answer was lost with the connection that the healed one has replaced.
        trail = follower.replica.table.audit
        await until(lambda: told_of(trail) >= 3, "all three")
        await recorded(follower, 1)


def told_of(trail: AuditTrail) -> int:
    """How many refusals are in the audit, recorded or counted."""
    recorded = sum(record.count for record in trail.records.values() if record.kind == "refused")
    return recorded + sum(repeat.count for repeat in trail.repeats.values())


async def test_the_audit_goes_on_under_another_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, audit=Audit()) as running:
        await begun(running)
        leader = await running.leader()
        await acquired(leader, "job")
        await ask(leader, "break", key="job", reason="one")
        before = await listed(leader)
        running.isolate(leader)
        successor = await running.leader(but=leader)
        await acquired(successor, "job")
        await ask(successor, "break", key="job", reason="two")
        after = await listed(successor)
        assert after.records[: len(before.records)] == before.records
        assert [record.detail for record in after.records[-2:]] == ["one", "two"]
        assert len([record for record in after.records if record.kind == "audit_policy"]) == 1
        running.heal()
        await until(lambda: leader.replica.table.audit.present.last_seq == after.head_seq, "the old leader")
        leader.replica._machine.check()


async def test_pages_are_continuous(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, audit=Audit()) as running:
        await begun(running)
        leader = await running.leader()
        notes = [AuditNote("member", "", "c", subject=f"n{number}") for number in range(10)]
        for note in notes:
            assert isinstance(await leader.service.audit.record(note), NotedReply)
        whole = (await listed(leader)).records
        assert [record.subject for record in whole[1:]] == [note.subject for note in notes]
        pages: list[AuditRecordBody] = []
        after: int | None = 0
        while after is not None:
            page = await listed(leader, after, limit=3)
            pages += page.records
            after = page.next
        assert pages == whole
        assert [record.prev for record in whole[1:]] == [record.hash for record in whole[:-1]]
        assert (page.head_seq, page.head, page.first_seq) == (11, whole[-1].hash, 1)
        beyond = await listed(leader, after=500)
        assert (beyond.records, beyond.next) == ([], None)


async def test_of_what_is_forgotten_the_last_hash_stays(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, audit=Audit(records_max=4)) as running:
        await begun(running)
        leader = await running.leader()
        for number in range(10):
            await leader.service.audit.record(AuditNote("member", "", "c", subject=f"n{number}"))
        page = await listed(leader, limit=2)
        assert (page.first_seq, page.head_seq, len(page.records)) == (8, 11, 2)
        rest = await listed(leader, after=page.next or 0)
        assert page.records[0].prev != "0" * 64
        assert [record.prev for record in (*page.records[1:], *rest.records)] == [
            record.hash for record in (*page.records, *rest.records)
        ][:-1]


async def test_where_it_is_off_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PERIOD_S", 0.02)
    async with cluster(tmp_path, 1, audit=Audit(records_max=0)) as running:
        leader = await running.leader()
        seen = commands_of(leader)
        await acquired(leader, "job")
        refuse(leader)
        await ask(leader, "break", key="job", reason="r")
        await asyncio.sleep(0.2)
        page = await listed(leader)
        assert (page.records, page.recording, page.head_seq) == ([], False, 0)
        assert any(isinstance(one, Break) for one in seen)
        assert not any(isinstance(one, SetAuditPolicy | NoteAudit) for one in seen)


async def test_nothing_is_recorded_beside_a_node_that_does_not_know_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PERIOD_S", 0.02)
    async with cluster(tmp_path, 3, audit=Audit()) as running:
        older = await running.follower()
        leader = await running.leader()
        await begun(running)
        # A new cluster begins at once; what holds for the first policy holds for every later one.
        older.raft._transport.admission.knows = (0, "")
        for link in running.around(older):
            link.cut()
        running.heal()
        await until(lambda: leader.raft.told_by(older.node_id) == (0, ""), "the older node's word")
        seen = commands_of(leader)
        answer = await leader.service.audit.record(AuditNote("member", "", "c"))
        assert isinstance(answer, Problem)
        assert answer.code == "mixed_versions"
        refuse(leader)
        await acquired(leader, "job")
        assert seen
        assert not any(isinstance(one, SetAuditPolicy | NoteAudit) for one in seen)


async def test_what_is_told_can_be_verified_by_the_client(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, audit=Audit()) as running:
        await begun(running)
        leader = await running.leader()
        for text in ("plain", '\u2028 \\ " \x00 \x7f é \U0001f512'):
            await leader.service.audit.record(AuditNote("member", "", "c", subject=text))
        page = await listed(leader)
        plain = [msgspec.to_builtins(record) for record in page.records]
        assert verify(plain) == (page.head_seq, page.head)


async def test_a_key_that_another_node_did_not_cut_is_cut_by_the_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, audit=Audit()) as running:
        await begun(running)
        leader = await running.leader()
        note = AuditNote("refused", TENANT, "c", key="k" * 200_000, subject="break", code="forbidden")
        fits = msgspec.structs.replace(note, key="k" * limits.KEY_BYTES_MAX, actor="d")
        reply = await leader.service.call("note_audit", "", NoteAuditRequest(notes=[note, fits]))
        assert isinstance(reply, NotedReply)
        cut, whole = await recorded(leader, 2)
        assert (cut.key, whole.key) == ("k" * 100 + "…", fits.key)
