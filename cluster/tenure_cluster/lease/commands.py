"""What the state machine can be asked. Encoded as tagged MessagePack arrays; fields are only added at the
end.

Everything random (ids) was drawn by the leader and is part of the command; nothing in here was timed by a
client. ``wall_ms`` is the leader's wall clock in Unix milliseconds, kept for people.

A command is checked for shape and bounds before it is proposed; the machine still answers any value of
these types without raising.
"""

from typing import Literal, TypeAlias

import msgspec

from tenure_cluster.lease.audit_trail import AuditCommand
from tenure_cluster.lease.credentials import CredentialCommand
from tenure_cluster.lease.quota import SetQuota
from tenure_cluster.lease.rules import AdoptRules
from tenure_cluster.lease.types import GuardMode, Key, LeaseId, Mode, RequestId, SessionId, TenantId


class _Command(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all commands."""


class Acquire(_Command, frozen=True, tag=1):
    """Grant ``keys`` to a session, or queue, or say who holds. Asked again with the same request_id it is a
    poll.

    Without ``session_id`` a private session with ``ttl_ms`` is opened, whose id is ``lease_ids[0]``.
    ``lease_ids`` are fresh ids, one per key; a replay or poll ignores them. ``request_id`` is never empty;
    if ``remember`` is false the caller did not supply it and its outcome need not be remembered after the
    lease has ended.
    """

    tenant: TenantId
    keys: list[Key]
    lease_ids: list[LeaseId]
    owner: str
    session_id: SessionId | None
    ttl_ms: int | None
    request_id: RequestId
    remember: bool
    wait: bool
    mode: Mode
    slots: int
    grace_ms: int
    if_held: Literal["return", "conflict"]
    metadata: dict[str, str]
    wall_ms: int
    progress_ms: int = 0


class Claim(_Command, frozen=True, tag=2):
    """Confirm a grant that was made to a waiter: its full TTL counts from here. Answers like its Acquire."""

    tenant: TenantId
    lease_id: LeaseId
    wall_ms: int


class ProgressNote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a holder is, in its own words."""

    step: str
    text: str
    counter: int


class Renew(_Command, frozen=True, tag=3):
    """Renew by ``lease_id`` or by ``session_id`` (exactly one is set). ``ttl_ms`` None keeps the session's
    TTL; a value becomes it, and the deadline never moves back. ``progress`` goes with a lease_id.
    """

    tenant: TenantId
    lease_id: LeaseId | None
    session_id: SessionId | None
    ttl_ms: int | None
    wall_ms: int
    progress: ProgressNote | None = None


class Release(_Command, frozen=True, tag=4):
    """End a lease by its id and hand its key on in the same entry; with ``whole_set`` all that is left of the
    set that it was granted in."""

    tenant: TenantId
    lease_id: LeaseId
    wall_ms: int
    whole_set: bool = False


class Abandon(_Command, frozen=True, tag=5):
    """Give up an acquire: leave the queue, or release what it was granted. ``session_id`` None: private
    session.

    With ``poll_deadline_ms`` it only leaves the queue, and only if the waiter has not polled since it had
    that deadline: the service's way of clearing up behind a closed connection. The request may then be asked
    anew.
    """

    tenant: TenantId
    request_id: RequestId
    session_id: SessionId | None
    wall_ms: int
    poll_deadline_ms: int | None = None


class Break(_Command, frozen=True, tag=6):
    """End every lease of a key, with a reason, on behalf of ``actor``."""

    tenant: TenantId
    key: Key
    reason: str
    actor: str
    wall_ms: int
    origin: str = ""
    """The address that it was asked from, as far as it is known."""


class Commit(_Command, frozen=True, tag=7):
    """A guarded write. ``seq`` is required for mode ``sequence`` and absent otherwise; ``value`` None
    leaves the record. With an ``op_id`` the same commit again is answered as it was at first, and another one
    is invalid.
    """

    tenant: TenantId
    key: Key
    slot: int
    lease_id: LeaseId
    token: int
    mode: GuardMode
    seq: int | None
    op_id: str | None
    require_live: bool
    if_revision: int | None
    value: bytes | None
    binary: bool
    digest: str
    wall_ms: int
    actor: str = ""
    origin: str = ""


class DeleteRecord(_Command, frozen=True, tag=8):
    """Remove a key's record; with ``if_revision`` only if its revision is that."""

    tenant: TenantId
    key: Key
    if_revision: int | None
    wall_ms: int
    actor: str = ""
    origin: str = ""


class OpenSession(_Command, frozen=True, tag=9):
    """Open a session. Asked again with the same ``session_id`` (minted by the leader) it answers the
    present one.
    """

    tenant: TenantId
    session_id: SessionId
    owner: str
    ttl_ms: int
    metadata: dict[str, str]
    wall_ms: int


class CloseSession(_Command, frozen=True, tag=10):
    """End a session, its leases and its waiters."""

    tenant: TenantId
    session_id: SessionId
    wall_ms: int


class ExpireItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that seems due. It is ended only if it still exists with exactly this deadline and the
    deadline is not later than the entry's stamp."""

    kind: Literal["session", "claim", "waiter", "grace", "progress"]
    tenant: TenantId
    id: str
    """session_id; lease_id; request key (see LeaseTable.waiters); key; lease_id"""
    deadline_ms: int


class Expire(_Command, frozen=True, tag=11):
    """The reaper's batch, at most EXPIRE_BATCH_MAX items."""

    items: list[ExpireItem]
    wall_ms: int


class Tick(_Command, frozen=True, tag=12):
    """Moves cluster time and sweeps memories that are over; changes nothing else."""

    wall_ms: int


class Handover(_Command, frozen=True, tag=13):
    """Give a lease to another session: in one entry the old lease and its token end, and a new one is granted
    under ``new_lease_id``, with the same metadata and progress."""

    tenant: TenantId
    lease_id: LeaseId
    to_session_id: SessionId
    new_lease_id: LeaseId
    wall_ms: int


class Park(_Command, frozen=True, tag=14):
    """Keep a lease without heartbeats for ``limit_ms`` from now, outside of its session. It keeps its id and
    its token, and does not count as live for commits. With ``token`` only if that is the lease's still."""

    tenant: TenantId
    lease_id: LeaseId
    limit_ms: int
    wall_ms: int
    token: int | None = None


class Unpark(_Command, frozen=True, tag=15):
    """Take up a parked lease again, with a new token: in an explicit session, or by itself with ``ttl_ms``,
    or with the TTL that it had. With ``token``, that of the lease when it was parked, nothing that was asked
    under that token takes effect later: a lease that has it, and is not parked, gets a new one too."""

    tenant: TenantId
    lease_id: LeaseId
    session_id: SessionId | None
    ttl_ms: int | None
    wall_ms: int
    token: int | None = None


class Resize(_Command, frozen=True, tag=32):
    """Give a pool of permits that is in use another number of slots, on behalf of ``actor``."""

    tenant: TenantId
    key: Key
    slots: int
    actor: str
    wall_ms: int


Command: TypeAlias = (
    Acquire
    | Claim
    | Renew
    | Release
    | Abandon
    | Break
    | Commit
    | DeleteRecord
    | OpenSession
    | CloseSession
    | Expire
    | Tick
    | Handover
    | Park
    | Unpark
    | Resize
)
"""What is asked about leases and what goes with them."""

AnyCommand: TypeAlias = Command | CredentialCommand | SetQuota | AuditCommand | AdoptRules
"""Every command of the machine. Those about credentials have tags from 16 to 18, SetQuota has 19, those of
the audit 20 and 21, and AdoptRules has 36; see rules.py for which numbers come next."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyCommand)


def encode(command: AnyCommand) -> bytes:
    """The command's one encoding, carried as bytes to the journal, the peers and the machine."""
    return _encoder.encode(command)


def decode(data: bytes) -> AnyCommand:
    """Inverse of encode(). Raises msgspec.DecodeError (ValidationError for a wrong shape)."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(
            f"a command that this version does not know, of a later one perhaps: {error}"
        ) from error
    except RecursionError as error:
        raise msgspec.DecodeError("a command that is nested too deeply") from error
