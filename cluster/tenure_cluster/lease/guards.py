"""Guarded writes: which commit still passes, and the record that it leaves.

The floor of a guard is the last token that was minted for its slot. It rises with the grant, not with
the first write, so the write of a superseded holder is refused even while its successor has not
written. Below the floor a token is stale, above it it was never issued: only the floor itself can pass,
and then the mode decides.

A token is no secret, a lease_id is. The guard remembers to whose grant its floor belongs, so a commit that
merely knows the token does not pass, whether the lease is live, over or forgotten.

Shared holders of one phase have one token, and to the guard they are one writer: `once` passes one write a
phase, whoever comes first, and `sequence` is one sequence for all of them. Their commits pass only while
their lease lives, with `require_live` or without. Of a pool each slot has a guard of its own.

A commit never ends a lease and never hands a key on. A refused one changes nothing but what is remembered and
told of it.
"""

import hashlib
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.commands import Commit, DeleteRecord
from tenure_cluster.lease.liveness import lease_live, refresh_idleness
from tenure_cluster.lease.memory import Operation
from tenure_cluster.lease.restoration import token_base
from tenure_cluster.lease.results import (
    CommitRefused,
    Committed,
    GuardConflict,
    Invalid,
    NoRecord,
    RecordDeleted,
    Result,
    RevisionConflict,
)
from tenure_cluster.lease.step import Step
from tenure_cluster.lease.types import Guard, KeyState, Record

RefusalCode: TypeAlias = Literal["stale_token", "token_used", "seq_replayed", "not_live", "revision_conflict"]

NO_GUARD: Final = Guard(0)
"""Stands for a slot that was never granted."""

OP_ID_REUSED: Final = Invalid("op_id was used for another commit")

_CONTENT_BYTES: Final = 16

_encoder = msgspec.msgpack.Encoder()


def commit(step: Step, asked: Commit) -> Result:
    """Pass a write through the guard of its key, or say why not."""
    table = step.table
    if asked.op_id is not None:
        operation = table.operations.get((asked.tenant, asked.key, asked.op_id))
        if operation is not None:
            return operation.result if _same_commit(operation, asked) else OP_ID_REUSED
    fault = _fault(asked)
    if fault is not None:
        return fault
    state = table.key_state(asked.tenant, asked.key)
    guard = state.guards.get(asked.slot, NO_GUARD) if state is not None else NO_GUARD
    refusal = _judge(step, asked, state, guard)
    result: Result
    if refusal is not None:
        code = refusal.code if isinstance(refusal, CommitRefused) else "mode_conflict"
        owner = _owner(step, asked, guard)
        step.emit("commit_refused", asked.tenant, asked.key, owner, asked.token, code, "", asked.slot)
        result = refusal
    else:
        assert state is not None
        result = _accept(step, asked, state, guard)
    if asked.op_id is not None:
        tenant = step.counters(asked.tenant).tenant
        table.remember_operation(
            Operation(
                tenant,
                asked.key,
                asked.op_id,
                result,
                step.now_ms,
                asked.lease_id,
                asked.token,
                _content(asked),
            )
        )
    return result


def _same_commit(operation: Operation, asked: Commit) -> bool:
    """Whether a commit is a retry of the one that is remembered. Another may have taken the same op_id by
    chance, and must not take that answer for its own."""
    return (
        operation.lease_id == asked.lease_id
        and operation.token == asked.token
        and operation.content == _content(asked)
    )


def _content(asked: Commit) -> bytes:
    """A digest of what the commit would write and under which conditions."""
    fields = (
        asked.mode,
        asked.seq,
        asked.slot,
        asked.if_revision,
        asked.require_live,
        asked.value,
        asked.binary,
        asked.digest,
    )
    return hashlib.sha256(_encoder.encode(fields)).digest()[:_CONTENT_BYTES]


def _fault(asked: Commit) -> Invalid | None:
    """What is wrong with the command's shape, if anything."""
    if asked.mode != "sequence":
        if asked.seq is not None:
            return Invalid(f"mode {asked.mode} takes no seq")
    elif asked.seq is None or not 0 <= asked.seq <= limits.SEQ_MAX:
        return Invalid(f"mode sequence needs a seq between 0 and {limits.SEQ_MAX}")
    if asked.value is not None and len(asked.value) > limits.VALUE_BYTES_MAX:
        return Invalid(f"a value has at most {limits.VALUE_BYTES_MAX} bytes")
    return None


def _judge(
    step: Step, asked: Commit, state: KeyState | None, guard: Guard
) -> CommitRefused | GuardConflict | None:
    """Why the commit does not pass; None if it does. The order of the checks is part of the contract."""

    def refused(code: RefusalCode) -> CommitRefused:
        record = step.table.records.get((asked.tenant, asked.key))
        revision = record.revision if record is not None else 0
        return CommitRefused(
            code, max(guard.floor, token_base(step.table)), guard.last_token, guard.last_seq, revision
        )

    if state is None or asked.token < guard.floor or asked.token <= token_base(step.table):
        return refused("stale_token")
    if asked.token > guard.floor or not _of_the_floor(step, asked, state, guard):
        return refused("not_live")
    if state.guard_mode is not None and state.guard_mode != asked.mode:
        return GuardConflict(state.guard_mode, asked.mode)
    if asked.mode == "once" and asked.token <= guard.last_token:
        return refused("token_used")
    if asked.mode == "sequence" and (asked.token, asked.seq or 0) <= (guard.last_token, guard.last_seq):
        return refused("seq_replayed")
    if asked.require_live and not _live(step, asked):
        return refused("not_live")
    if asked.if_revision is not None:
        refusal = refused("revision_conflict")
        if refusal.revision != asked.if_revision:
            return refusal
    return None


def _of_the_floor(step: Step, asked: Commit, state: KeyState, guard: Guard) -> bool:
    """Whether the lease that the commit names is one that the floor was minted for. Of a shared phase the
    guard knows no lease: those that live are known by themselves, the others can't be told from anybody."""
    if guard.lease_id:
        return asked.lease_id == guard.lease_id
    return state.mode == "shared" and _live(step, asked)


def _live(step: Step, asked: Commit) -> bool:
    """Whether the lease that the commit names has been claimed, is not parked and has not ended."""
    lease = step.table.leases.get((asked.tenant, asked.lease_id))
    return (
        lease is not None
        and lease.key == asked.key
        and lease.slot == asked.slot
        and lease.token == asked.token
        and not lease.claim_deadline_ms
        and not lease.parked
        and lease_live(step, lease)
    )


def _owner(step: Step, asked: Commit, guard: Guard) -> str:
    """Whose commit it seems to be, for those who watch; empty if its lease is not known here."""
    if guard.lease_id and asked.lease_id == guard.lease_id:
        return guard.owner
    lease = step.table.leases.get((asked.tenant, asked.lease_id))
    return lease.owner if lease is not None else ""


def _accept(step: Step, asked: Commit, state: KeyState, guard: Guard) -> Committed:
    table = step.table
    owner = _owner(step, asked, guard)
    revision = step.emit("committed", asked.tenant, asked.key, owner, asked.token, "", "", asked.slot)
    written = replace(guard, last_token=asked.token, last_seq=asked.seq or 0)
    guards = {**state.guards, asked.slot: written}
    table.put_key_state(replace(state, guards=guards, guard_mode=asked.mode))
    if asked.value is not None:
        record = Record(
            state.tenant,
            state.key,
            asked.value,
            asked.binary,
            asked.digest,
            asked.token,
            owner,
            revision,
            step.wall_ms,
        )
        table.put_record(record)
        refresh_idleness(step, state.tenant, state.key)
    return Committed(revision)


def delete_record(step: Step, asked: DeleteRecord) -> Result:
    """Remove a key's record. Its guard stays."""
    ref = (asked.tenant, asked.key)
    record = step.table.records.get(ref)
    if record is None:
        return NoRecord()
    if asked.if_revision is not None and record.revision != asked.if_revision:
        return RevisionConflict(record.revision)
    step.table.remove_record(record)
    refresh_idleness(step, asked.tenant, asked.key)
    step.emit("record_deleted", asked.tenant, asked.key, record.owner, record.token)
    return RecordDeleted(record)
