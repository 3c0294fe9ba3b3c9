"""The audit: who did what to which key, with which token, from where, and why.

Theory of operation. What was done by force or refused by a rule is recorded in the state, by the entry that
did or refused it, so a record is exactly as certain as what it tells of. What is refused before the log (a
right is missing, a credential is not valid) comes by NoteAudit, from the node that refused it.

Records are a chain: each has the hash of its content and of the hash before it. Old ones are forgotten after
a time and beyond a number; the hash before the first that is kept stays, and so does the hash of the last. So
whoever has exported a part can tell whether what follows continues it, and nobody can change, leave out or
add a record without every hash behind it being another.

A refusal that repeats is recorded at once and from then on counted: what comes within AUDIT_REPEAT_MS is told
by one record with a count. So a flood of refusals neither fills the state nor pushes everything else out of
it, and none of it is lost. Refused commits are told apart by key and token, up to a number for each
credential.

Nothing is recorded before SetAuditPolicy has said how much is kept. It is proposed only once every member
knows it (service/versions.py), so nodes of an earlier version, which record nothing, have the same state.
"""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from tenure_cluster.lease import credentials as of
from tenure_cluster.lease import limits, results
from tenure_cluster.lease.audit_trail import (
    COMMIT,
    AuditNote,
    AuditRepeat,
    AuditTrail,
    NoteAudit,
    Noted,
    SetAuditPolicy,
    same,
)
from tenure_cluster.lease.commands import Break, Commit, DeleteRecord
from tenure_cluster.lease.quota import QuotaIs, QuotasFull, SetQuota
from tenure_cluster.lease.rules import EMPTY_BREAKS_COUNTED, REFUSALS_TOLD_APART
from tenure_cluster.lease.step import Step


def observe(step: Step, command: Any, result: object) -> None:
    """Record what a command came to, if it is one of those that are recorded. Called only while the audit is
    on."""
    describe = _DESCRIBE.get(type(command))
    note = describe(step, command, result) if describe is not None else None
    if note is not None:
        _write(step, note)


def sweep_audit(step: Step) -> None:
    """Tell repetitions whose time is over, and forget records whose time is; a bounded number of them."""
    trail = step.table.audit
    keep_ms = trail.present.keep_ms
    for _ in range(limits.AUDIT_SWEEP_MAX):
        if trail.repeats and next(iter(trail.repeats.values())).until_ms <= step.now_ms:
            kind, repeat = trail.repeats.popitem(last=False)
            if repeat.count:
                trail.append(step.now_ms, step.wall_ms, repeat.note, repeat.count)
                trail.repeats[kind] = _counting(step, repeat.note)
        elif trail.records and next(iter(trail.records.values())).at_ms + keep_ms <= step.now_ms:
            trail.forget_oldest()
        else:
            break
    trail.rebuild()


def _write(step: Step, note: AuditNote) -> None:
    trail = step.table.audit
    note = _bounded(step, note)
    if note.code:
        if step.table.rules >= REFUSALS_TOLD_APART:
            note = _told_apart(trail, note)
        kind = same(note)
        repeat = trail.repeats.get(kind)
        if repeat is not None:
            trail.repeats[kind] = replace(repeat, count=min(repeat.count + note.count, limits.SEQ_MAX))
            return
        if len(trail.repeats) >= limits.AUDIT_REPEATS_MAX:
            _, oldest = trail.repeats.popitem(last=False)
            if oldest.count:
                trail.append(step.now_ms, step.wall_ms, oldest.note, oldest.count)
        trail.repeats[kind] = _counting(step, note)
    trail.append(step.now_ms, step.wall_ms, note, note.count)
    trail.rebuild()


def _told_apart(trail: AuditTrail, note: AuditNote) -> AuditNote:
    """The note, or what stands for it if its credential has too many refused commits: a token that was never
    issued is as good as any to be refused with, and each would push something else out of the audit."""
    if note.kind != COMMIT or same(note) in trail.repeats:
        return note
    others = replace(note, key="", token=0, owner="", detail="more refused commits than are told apart")
    if same(others) in trail.repeats:
        return others
    of = (note.tenant, note.actor)
    told = sum(
        1
        for repeat in trail.repeats.values()
        if repeat.note.kind == COMMIT and repeat.note.key and (repeat.note.tenant, repeat.note.actor) == of
    )
    return note if told < limits.AUDIT_COMMITS_MAX else others


def _counting(step: Step, note: AuditNote) -> AuditRepeat:
    return AuditRepeat(note, step.now_ms + limits.AUDIT_REPEAT_MS, 0)


def _bounded(step: Step, note: AuditNote) -> AuditNote:
    tenant = step.table.tenants.get(note.tenant)
    return replace(
        note,
        tenant=tenant.tenant if tenant is not None else note.tenant,
        kind=note.kind[:64],
        code=note.code[:64],
        origin=note.origin[:64],
        subject=note.subject[:256],
        detail=note.detail[: limits.AUDIT_DETAIL_CHARS_MAX],
        count=min(max(note.count, 1), limits.SEQ_MAX),
    )


# Commands of the audit itself


def _set_policy(step: Step, asked: SetAuditPolicy) -> results.Result:
    if not 0 <= asked.records_max <= limits.AUDIT_RECORDS_MAX or asked.keep_ms < 0:
        return results.Invalid(f"records_max must be 0 to {limits.AUDIT_RECORDS_MAX}, keep_ms not negative")
    trail: AuditTrail = step.table.audit
    present = trail.present
    if (present.records_max, present.keep_ms) == (asked.records_max, asked.keep_ms):
        return results.Done(0)
    trail.set_policy(asked.records_max, asked.keep_ms)
    if trail.on:
        detail = f"{asked.records_max} records are kept for {asked.keep_ms} ms"
        _write(step, AuditNote("audit_policy", "", "", detail=detail))
    return results.Done(1)


def _note(step: Step, asked: NoteAudit) -> Noted:
    if not step.table.audit.on:
        return Noted(0)
    notes = asked.notes[: limits.AUDIT_NOTES_MAX]
    for note in notes:
        _write(step, note)
    return Noted(len(notes))


HANDLERS: Final[dict[type, Callable[[Step, Any], results.Result | Noted]]] = {
    SetAuditPolicy: _set_policy,
    NoteAudit: _note,
}


# What is recorded of other commands


def _break(step: Step, asked: Break, result: object) -> AuditNote | None:
    """One that found nobody is counted when it comes again, as refusals are: it ends nothing, and so can be
    asked without end."""
    if not isinstance(result, results.Broken):
        return None
    latest = max(result.leases, key=lambda lease: lease.token, default=None)
    counted = not result.leases and step.table.rules >= EMPTY_BREAKS_COUNTED
    return AuditNote(
        "break",
        asked.tenant,
        asked.actor,
        asked.origin,
        asked.key,
        latest.token if latest is not None else 0,
        latest.owner if latest is not None else "",
        f"{len(result.leases)} holders",
        code="not_held" if counted else "",
        detail=asked.reason,
    )


def _commit(step: Step, asked: Commit, result: object) -> AuditNote | None:
    """Refusals alone, and not what is remembered of one."""
    told = step.events[-1] if step.events else None
    if told is None or told.kind != "commit_refused":
        return None
    floor = result.floor if isinstance(result, results.CommitRefused) else 0
    return AuditNote(
        COMMIT,
        asked.tenant,
        asked.actor,
        asked.origin,
        asked.key,
        asked.token,
        told.owner,
        code=told.detail,
        detail=f"the floor is {floor}" if floor else "",
    )


def _delete_record(step: Step, asked: DeleteRecord, result: object) -> AuditNote | None:
    if not isinstance(result, results.RecordDeleted):
        return None
    record = result.record
    return AuditNote(
        "delete_record",
        asked.tenant,
        asked.actor,
        asked.origin,
        asked.key,
        record.token,
        record.owner,
        detail=f"revision {record.revision}",
    )


_REFUSED: Final[dict[type, str]] = {
    of.NoCredential: "no_credential",
    of.LastAdministrator: "last_administrator",
    of.NotFirst: "not_first",
    of.CredentialsFull: "quota",
    QuotasFull: "quota",
    results.Invalid: "invalid",
}


def _create(step: Step, asked: of.CreateCredential, result: object) -> AuditNote | None:
    if isinstance(result, of.CredentialIs) and result.credential.created_wall_ms != asked.wall_ms:
        return None  # it was there already: the same was asked again
    detail = f"{asked.name}: {', '.join(asked.rights)}; keys {', '.join(map(repr, sorted(asked.prefixes)))}"
    return _of_credential("create_credential", asked, asked.tenant, detail, result)


def _rotate(step: Step, asked: of.RotateCredential, result: object) -> AuditNote | None:
    if isinstance(result, of.CredentialIs) and result.credential.rotated_wall_ms != asked.wall_ms:
        return None
    tenant = result.credential.tenant if isinstance(result, of.CredentialIs) else ""
    return _of_credential("rotate_credential", asked, tenant, f"overlap {asked.overlap_ms} ms", result)


def _revoke(step: Step, asked: of.RevokeCredential, result: object) -> AuditNote | None:
    gone = result.credential if isinstance(result, of.CredentialRevoked) else None
    return _of_credential(
        "revoke_credential", asked, gone.tenant if gone else "", gone.name if gone else "", result
    )


def _of_credential(kind: str, asked: Any, tenant: str, detail: str, result: object) -> AuditNote:
    return AuditNote(
        kind,
        tenant,
        asked.actor,
        asked.origin,
        subject=asked.credential_id,
        code=_REFUSED.get(type(result), ""),
        detail=detail,
    )


def _set_quota(step: Step, asked: SetQuota, result: object) -> AuditNote | None:
    quota = result.quota if isinstance(result, QuotaIs) else asked.quota
    bounds = [(name, getattr(quota, name)) for name in quota.__struct_fields__] if quota is not None else []
    said = ", ".join(f"{name} {bound}" for name, bound in bounds if bound)
    return AuditNote(
        "set_quota",
        asked.tenant,
        asked.actor,
        asked.origin,
        subject=asked.tenant,
        code=_REFUSED.get(type(result), ""),
        detail="as configured" if quota is None else said or "no bounds",
    )


_DESCRIBE: Final[dict[type, Callable[[Step, Any, object], AuditNote | None]]] = {
    Break: _break,
    Commit: _commit,
    DeleteRecord: _delete_record,
    of.CreateCredential: _create,
    of.RotateCredential: _rotate,
    of.RevokeCredential: _revoke,
    SetQuota: _set_quota,
}
