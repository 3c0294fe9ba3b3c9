"""What is asked of the audit, and what is told of it."""

from typing import Final, Literal, TypeAlias

import msgspec

from tenure_cluster.lease import limits
from tenure_cluster.lease.audit_trail import AuditNote

AUDIT_PAGE_MAX: Final = 1_000
"""Most records of one page."""

KEY_CHARS_MAX: Final = 100
"""So much is told of a key that is too long to be one."""


def within_bounds(note: AuditNote) -> AuditNote:
    """A note whose key is none longer than keys are: what was refused was refused before its key was looked
    at. Before it becomes a command, since all nodes must make the same of that."""
    if len(note.key.encode()) <= limits.KEY_BYTES_MAX:
        return note
    return msgspec.structs.replace(note, key=note.key[:KEY_CHARS_MAX] + "…")


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the requests."""


class ListAuditRequest(_Request, frozen=True, kw_only=True):
    """``after`` is the number of the last record that is known."""

    after: int = 0
    limit: int = 100


class NoteAuditRequest(_Request, frozen=True, kw_only=True):
    """What a node has seen that is no entry of the log. Asked among nodes alone."""

    notes: list[AuditNote]


AuditRequest: TypeAlias = ListAuditRequest | NoteAuditRequest

AUDIT_OPERATIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "list_audit": ListAuditRequest,
    "note_audit": NoteAuditRequest,
}
"""No operations of batches and streams."""


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the answers."""


class AuditRecordBody(_Reply, frozen=True, kw_only=True):
    """One record. ``hash`` is the SHA-256 of all the others but ``at``, as JSON in the order of their names,
    without blanks; ``prev`` is the hash of the record before."""

    seq: int
    at: str
    kind: str
    tenant: str
    actor: str
    origin: str
    key: str
    token: int
    owner: str
    subject: str
    code: str
    detail: str
    count: int
    at_ms: int
    wall_ms: int
    prev: str
    hash: str


class AuditReply(_Reply, frozen=True, kw_only=True):
    """A page of records, oldest first. ``next`` goes into ``after`` for the next page and is null on the
    last; ``head_seq`` and ``head`` are those of the last record that there is; ``first_seq`` is the number of
    the oldest that is kept, one beyond ``head_seq`` if there is none."""

    records: list[AuditRecordBody]
    next: int | None
    first_seq: int
    head_seq: int
    head: str
    recording: bool
    """False while nothing is recorded: the configuration says so, or not every node knows it yet."""


class NotedReply(_Reply, frozen=True, kw_only=True):
    status: Literal["noted"] = "noted"


AuditAnswer: TypeAlias = AuditReply | NotedReply
