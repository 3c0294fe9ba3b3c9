"""What the lease table holds: immutable values, replaced and never changed.

Because nothing is changed in place, a shallow copy of the table's dictionaries is a consistent
snapshot. All values are encoded as arrays; a field is only ever added at the end, with a default.

Times named ``*_ms`` without ``wall`` are cluster time: integer milliseconds stamped by the leader's
monotonic clock. ``*_wall_ms`` are Unix milliseconds, for people; they decide nothing.
"""

from typing import Final, Literal, TypeAlias

import msgspec

ClusterTime: TypeAlias = int
FencingToken: TypeAlias = int
Revision: TypeAlias = int
TenantId: TypeAlias = str
Key: TypeAlias = str
SessionId: TypeAlias = str
LeaseId: TypeAlias = str
RequestId: TypeAlias = str

Mode: TypeAlias = Literal["exclusive", "shared", "permit"]
GuardMode: TypeAlias = Literal["current", "once", "sequence"]
EndReason: TypeAlias = Literal[
    "expired", "released", "broken", "handed_over", "session_closed", "restored", "abandoned", "unknown"
]
"""Why a lease is over. ``unknown``: no lease of that id is remembered. ``abandoned``: the acquire that it
came from was given up.
"""


ALONE: Final = 0
OF_SET: Final = 1
OF_PRIVATE_SET: Final = 2
"""Whether a lease was granted alone, or in a set of keys, in an explicit session or in a private one."""


class Session(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The unit of liveness. It has expired iff ``deadline_ms <= t`` at the entry that asks.

    A private session belongs to one acquire without a session_id and ends with its last lease; its id is
    the first lease's own id. While its acquire is queued, its deadline is the waiter's poll deadline.
    """

    tenant: TenantId
    session_id: SessionId
    owner: str
    ttl_ms: int
    deadline_ms: ClusterTime
    private: bool
    metadata: dict[str, str]
    opened_wall_ms: int
    renewed_wall_ms: int
    closed: bool = False
    """It was closed, and what it had is more than one entry may end; its deadline was then. The reaper ends
    the rest."""


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a holder says it is, and since when it has said so."""

    step: str
    text: str
    counter: int
    at_ms: ClusterTime
    wall_ms: int


class LeaseLife(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What only some leases have: notes of progress and the demand for them, and being parked."""

    progress_ms: int = 0
    """Within so long the holder must tell of progress; 0: it need not."""
    progress_deadline_ms: ClusterTime = 0
    """0 while none runs: nothing is demanded, the grant is unclaimed, or it is parked."""
    progress: Progress | None = None
    parked_ttl_ms: int = 0
    """Above 0 while parked: the TTL that the lease had before and will have again."""
    scope: str | None = None
    """The scope of the request that made the lease, if it is not that of its present session."""
    parked_from: SessionId | None = None
    """The explicit session that it was parked from, while it is parked: that one would wait for itself."""
    reached: dict[str, int] | None = None
    """The greatest counter that was told of each of the last steps, PROGRESS_STEPS_MAX at most."""


NO_LIFE: Final = LeaseLife()


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A grant of one key to one session. ``claim_deadline_ms`` is 0 once the grant was claimed."""

    tenant: TenantId
    lease_id: LeaseId
    key: Key
    mode: Mode
    slot: int
    session_id: SessionId
    owner: str
    token: FencingToken
    grace_ms: int
    metadata: dict[str, str]
    request_id: RequestId
    claim_deadline_ms: ClusterTime
    granted_ms: ClusterTime
    granted_wall_ms: int
    revision: Revision
    in_set: int = ALONE
    life: LeaseLife | None = None

    @property
    def parked(self) -> bool:
        """Whether it is kept without heartbeats until a limit."""
        return self.life is not None and self.life.parked_ttl_ms > 0

    @property
    def scope(self) -> str:
        """The scope of its request: the session in which it was asked for, or empty."""
        if self.life is not None and self.life.scope is not None:
            return self.life.scope
        return "" if self.private else self.session_id

    @property
    def private(self) -> bool:
        """Whether its session is a private one."""
        return self.session_id == self.lease_id or self.in_set == OF_PRIVATE_SET


class EndedLease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is remembered of a lease for REQUEST_MEMORY_MS after its end."""

    tenant: TenantId
    lease_id: LeaseId
    key: Key
    session_id: SessionId
    """Empty for a private session: its requests are remembered by tenant and request_id alone."""
    request_id: RequestId
    token: FencingToken
    reason: EndReason
    ended_ms: ClusterTime
    in_set: bool = False
    detail: str = ""
    """What else is known of the end: the reason given for a break, or ``no_progress``."""


class KeySet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The grant of a set of keys: which leases it made, in the order of the keys. Kept for as long as any of
    them is there or remembered."""

    tenant: TenantId
    scope: str
    """The session's id, or empty for a private session."""
    request_id: RequestId
    keys: list[Key]
    lease_ids: list[LeaseId]


class Waiter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A queued acquire. ``ticket`` orders the queue of each key; it is unique in the whole table."""

    tenant: TenantId
    request_id: RequestId
    session_id: SessionId
    private: bool
    keys: list[Key]
    lease_ids: list[LeaseId]
    mode: Mode
    slots: int
    owner: str
    ttl_ms: int
    grace_ms: int
    metadata: dict[str, str]
    ticket: int
    poll_deadline_ms: ClusterTime
    queued_ms: ClusterTime
    queued_wall_ms: int
    progress_ms: int = 0


class Guard(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The floor of one slot of a key, the grant that it was minted for, and the last write that passed it.

    ``lease_id`` and ``owner`` are those of the grant, present or over. They are empty for a floor that a
    break minted: nobody got that token, so nothing passes.
    """

    floor: FencingToken
    last_token: FencingToken = 0
    last_seq: int = 0
    lease_id: LeaseId = ""
    owner: str = ""


class KeyState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept for a key beside its holders and waiters.

    ``mode`` and ``slots`` describe the present phase of holding; ``guard_mode`` is fixed by the key's first
    commit; ``blocked_until_ms`` is the end of a grace period; ``idle_since_ms`` is -1 while the key has a
    holder, a waiter or a record.
    """

    tenant: TenantId
    key: Key
    mode: Mode
    slots: int
    guards: dict[int, Guard]
    guard_mode: GuardMode | None
    blocked_until_ms: ClusterTime
    idle_since_ms: ClusterTime


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The value last accepted for a key through its guard."""

    tenant: TenantId
    key: Key
    value: bytes
    binary: bool
    """True if the caller sent the value as bytes (base64 in JSON), false if as text."""
    digest: str
    token: FencingToken
    owner: str
    revision: Revision
    committed_wall_ms: int


class Tenant(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Counters of a tenant: the last token issued and the revision of its last event."""

    tenant: TenantId
    last_token: FencingToken
    revision: Revision
