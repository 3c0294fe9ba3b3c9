"""The audit as data: its records, their chain, and what is kept of both. auditing.py says what is recorded.

A record's hash is the SHA-256 of its content as JSON: its fields without ``hash``, and ``prev``, the hash of
the record before in hexadecimal, by the order of their names, without blanks. Before the first there are
32 zero bytes. Anybody can compute it who has an export.
"""

import hashlib
from collections import OrderedDict
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from tenure_cluster.lease import limits
from tenure_cluster.lease.memory import NEVER_MS
from tenure_cluster.lease.types import ClusterTime, FencingToken, Key, TenantId

GENESIS: Final = bytes(32)


COMMIT: Final = "commit"
"""The kind of refused commits."""


class AuditNote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is to be recorded. What does not apply is empty or 0."""

    kind: str
    tenant: TenantId
    actor: str
    """The id of the credential that asked; empty where none is needed."""
    origin: str = ""
    """The address that it was asked from; empty for what the cluster does by itself."""
    key: Key = ""
    token: FencingToken = 0
    owner: str = ""
    subject: str = ""
    """What it was done to, or what was asked for, where that is no key."""
    code: str = ""
    """Why it was refused; empty if it was done."""
    detail: str = ""
    count: int = 1


class AuditRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One link of the chain. ``count``: how often the same, since it was recorded last."""

    seq: int
    at_ms: ClusterTime
    wall_ms: int
    kind: str
    tenant: TenantId
    actor: str
    origin: str
    key: Key
    token: FencingToken
    owner: str
    subject: str
    code: str
    detail: str
    count: int
    hash: bytes


class AuditRepeat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A refusal that has been recorded, and how often it has come again since."""

    note: AuditNote
    until_ms: ClusterTime
    """When that is told."""
    count: int


class AuditChain(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How much is kept, and the two ends of what is."""

    records_max: int
    """0: nothing is recorded."""
    keep_ms: int
    last_seq: int = 0
    head: bytes = GENESIS
    """The hash of the last record that ever was."""
    base: bytes = GENESIS
    """The hash of the record before the first that is kept."""


class SetAuditPolicy(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=20):
    """Say how much of the audit is kept, and so begin it."""

    records_max: int
    keep_ms: int
    wall_ms: int


class NoteAudit(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=21):
    """Record what happened outside the log."""

    notes: list[AuditNote]
    wall_ms: int


class Noted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """So many notes were taken in: recorded, or counted with others like them."""

    notes: int


AuditCommand: TypeAlias = SetAuditPolicy | NoteAudit

RepeatKey: TypeAlias = tuple[str, ...]


class AuditTrail:
    """The records that are kept, oldest first, and the refusals that are counted."""

    __slots__ = ("chain", "due_ms", "on", "records", "repeats")

    def __init__(self) -> None:
        self.chain: dict[int, AuditChain] = {}
        """One row, once there has been a policy."""
        self.records: OrderedDict[int, AuditRecord] = OrderedDict()
        self.repeats: OrderedDict[RepeatKey, AuditRepeat] = OrderedDict()
        """In the order of their ends."""
        self.on = False
        """Whether anything is recorded. This and what follows is derived."""
        self.due_ms: ClusterTime = NEVER_MS
        """When the next record is forgotten or the next repetition told."""

    @property
    def present(self) -> AuditChain:
        return self.chain.get(0) or AuditChain(0, 0)

    def rebuild(self) -> None:
        """Set what is derived."""
        chain = self.present
        self.on = chain.records_max > 0
        due_ms = NEVER_MS
        if self.records:
            due_ms = next(iter(self.records.values())).at_ms + chain.keep_ms
        if self.repeats:
            due_ms = min(due_ms, next(iter(self.repeats.values())).until_ms)
        self.due_ms = due_ms

    def set_policy(self, records_max: int, keep_ms: int) -> None:
        """Keep so many for so long. What is beyond that is forgotten at once."""
        self.chain[0] = replace(self.present, records_max=records_max, keep_ms=keep_ms)
        while len(self.records) > records_max:
            self.forget_oldest()
        if not records_max:
            self.repeats.clear()
        self.rebuild()

    def append(self, now_ms: ClusterTime, wall_ms: int, note: AuditNote, count: int) -> None:
        """Add a record; one that is too many goes."""
        chain = self.chain[0]
        record = AuditRecord(
            seq=chain.last_seq + 1,
            at_ms=now_ms,
            wall_ms=wall_ms,
            kind=note.kind,
            tenant=note.tenant,
            actor=note.actor,
            origin=note.origin,
            key=note.key,
            token=note.token,
            owner=note.owner,
            subject=note.subject,
            code=note.code,
            detail=note.detail,
            count=count,
            hash=GENESIS,
        )
        record = replace(record, hash=hash_of(chain.head, record))
        self.records[record.seq] = record
        self.chain[0] = replace(chain, last_seq=record.seq, head=record.hash)
        if len(self.records) > chain.records_max:
            self.forget_oldest()

    def forget_oldest(self) -> None:
        _, record = self.records.popitem(last=False)
        self.chain[0] = replace(self.chain[0], base=record.hash)


def same(note: AuditNote) -> RepeatKey:
    """What two refusals have in common that are counted as one. Where it came from is not part of it, or a
    caller could make as many different ones as it has addresses; and neither is the key of what was refused
    for want of a right."""
    of_guard = (note.key, str(note.token)) if note.kind == COMMIT else ()
    return (note.kind, note.tenant, note.actor, note.subject, note.code, *of_guard)


_CONTENT: Final = sorted({*AuditRecord.__struct_fields__, "prev"} - {"hash"})


def hash_of(prev: bytes, record: AuditRecord) -> bytes:
    """The hash of a record behind the one with the hash ``prev``."""
    content = {name: prev.hex() if name == "prev" else getattr(record, name) for name in _CONTENT}
    return hashlib.sha256(msgspec.json.encode(content)).digest()


def faults(trail: AuditTrail, now_ms: ClusterTime) -> str:
    """What contradicts itself in the audit; empty if nothing does."""
    chain = trail.present
    if not trail.chain and (trail.records or trail.repeats):
        return "there is an audit without a policy"
    if len(trail.records) > chain.records_max or len(trail.repeats) > limits.AUDIT_REPEATS_MAX:
        return "the audit has more than it may"
    prev, at_ms = chain.base, 0
    seq = chain.last_seq - len(trail.records)
    for number, record in trail.records.items():
        seq += 1
        if number != seq or record.seq != seq:
            return f"record {seq} of the audit is missing"
        if not at_ms <= record.at_ms <= now_ms:
            return f"record {seq} of the audit is out of the order of time"
        if record.hash != hash_of(prev, record):
            return f"record {seq} of the audit does not continue the chain"
        prev, at_ms = record.hash, record.at_ms
    if prev != chain.head:
        return "the audit does not end with its last record"
    ends = [repeat.until_ms for repeat in trail.repeats.values()]
    return "repetitions are out of the order of time" if ends != sorted(ends) else ""


def derived_faults(trail: AuditTrail) -> str:
    """What is derived and differs from the state."""
    told = (trail.on, trail.due_ms)
    trail.rebuild()
    return "" if told == (trail.on, trail.due_ms) else "the audit does not know when it is due"
