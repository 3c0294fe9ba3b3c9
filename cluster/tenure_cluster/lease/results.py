"""What the state machine answers. Refusals are values; nothing in here is ever raised.

Deadlines are cluster time; whoever answers a client turns them into what remains by its own
cluster clock.
"""

from typing import Literal, TypeAlias

import msgspec

from tenure_cluster.lease.types import (
    ClusterTime,
    EndReason,
    FencingToken,
    GuardMode,
    Key,
    Lease,
    Record,
    Revision,
    Session,
)


class _Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all results."""


class Grant(_Result, frozen=True, tag=1):
    """A lease and its session, as they stand at this entry."""

    lease: Lease
    session: Session


class Granted(_Result, frozen=True, tag=2):
    """The acquire holds. ``replayed``: this request_id had been granted before, and this is that grant.
    ``claimed`` is false for a grant to a waiter that still has to be claimed."""

    grants: list[Grant]
    replayed: bool
    claimed: bool


class Holder(_Result, frozen=True, tag=3):
    """Who holds a key: what anybody of the tenant may know."""

    key: Key
    owner: str
    token: FencingToken
    mode: str
    slot: int
    deadline_ms: ClusterTime
    granted_wall_ms: int
    metadata: dict[str, str]


class Waiting(_Result, frozen=True, tag=4):
    """Queued. ``position`` counts from 1; ``ahead`` names the owners of the waiters before, at most ten."""

    position: int
    holders: list[Holder]
    ahead: list[str]


class Held(_Result, frozen=True, tag=5):
    """Refused: somebody else holds the key, waits for it, or its grace period runs (``holders`` is then
    empty).
    """

    key: Key
    holders: list[Holder]
    waiters: int
    blocked_until_ms: ClusterTime


class Deadlock(_Result, frozen=True, tag=6):
    """Refused: waiting would close this cycle of owners and keys, ``[owner, key, owner, key, …]``."""

    cycle: list[str]


class ModeConflict(_Result, frozen=True, tag=7):
    """Refused: the key is held or waited for in a mode that goes with no waiting of the asked one, or by the
    asking session itself in another mode. The numbers of slots are 0 unless the mode is permit."""

    present: str
    asked: str
    key: Key = ""
    present_slots: int = 0
    asked_slots: int = 0


class Renewed(_Result, frozen=True, tag=8):
    """The lease's session was renewed."""

    grant: Grant


class SessionIs(_Result, frozen=True, tag=9):
    """A session as it stands after opening or renewing it, with the number of its leases."""

    session: Session
    leases: int


class Released(_Result, frozen=True, tag=10):
    """The lease ended by this release, or had been released before."""

    already: bool


class Lost(_Result, frozen=True, tag=11):
    """Refused: the lease (or the request's grant) is over, for this reason."""

    reason: EndReason
    detail: str = ""


class SessionExpired(_Result, frozen=True, tag=12):
    """Refused: the session named by the call has expired."""


class NoSession(_Result, frozen=True, tag=13):
    """Refused: no such session."""


class SessionClosed(_Result, frozen=True, tag=14):
    """The session was ended, with so many leases."""

    leases: int


class Abandoned(_Result, frozen=True, tag=15):
    """The acquire is gone; ``had`` says whether anything of it was there."""

    had: bool


class BrokenLease(_Result, frozen=True, tag=16):
    """One lease that a break ended."""

    owner: str
    token: FencingToken


class Broken(_Result, frozen=True, tag=17):
    """The key has no holder of before any more."""

    leases: list[BrokenLease]


class Committed(_Result, frozen=True, tag=18):
    """The write passed the guard. ``revision`` is the record's if a value was written, else the commit's
    own.
    """

    revision: Revision


class CommitRefused(_Result, frozen=True, tag=19):
    """The write did not pass. ``floor`` is the guard's (0: no grant of the key or slot is
    known); ``revision`` the record's (0: none)."""

    code: Literal["stale_token", "token_used", "seq_replayed", "not_live", "revision_conflict"]
    floor: FencingToken
    last_token: FencingToken
    last_seq: int
    revision: Revision


class GuardConflict(_Result, frozen=True, tag=20):
    """Refused: the key's guard was fixed in another mode by its first commit."""

    present: GuardMode
    asked: GuardMode


class RecordDeleted(_Result, frozen=True, tag=21):
    """The record is gone."""

    record: Record


class NoRecord(_Result, frozen=True, tag=22):
    """Refused: the key has no record."""


class RevisionConflict(_Result, frozen=True, tag=23):
    """Refused: the record's revision is another (0: none)."""

    revision: Revision


class QueueFull(_Result, frozen=True, tag=24):
    """Refused: the key has WAITERS_PER_KEY_MAX waiters."""

    waiters_max: int


class Invalid(_Result, frozen=True, tag=25):
    """Refused: a command no service of this version would have proposed."""

    detail: str


class Unsupported(_Result, frozen=True, tag=26):
    """Refused: this version's machine does not know the asked mode or feature."""

    detail: str


class Done(_Result, frozen=True, tag=27):
    """An Expire or Tick was applied; ``ended`` counts the items that were ended."""

    ended: int


class TokensExhausted(_Result, frozen=True, tag=28):
    """Refused: the tenant's token counter has reached TOKEN_MAX."""


class HandedOver(_Result, frozen=True, tag=29):
    """The successor's grant. ``replayed``: the handover had been made before."""

    grant: Grant
    replayed: bool


class Parked(_Result, frozen=True, tag=30):
    """The lease is parked."""

    grant: Grant


class Unparked(_Result, frozen=True, tag=31):
    """The lease is in its holder's hands. ``replayed``: it was not parked (any more)."""

    grant: Grant
    replayed: bool


class StaleToken(_Result, frozen=True, tag=32):
    """Refused: the lease has been taken up since with this token, and what was asked is of before."""

    token: FencingToken


class Resized(_Result, frozen=True, tag=33):
    """The pool has so many slots, had ``before``, and has so many holders."""

    slots: int
    before: int
    holders: int


class NotHeld(_Result, frozen=True, tag=34):
    """Nobody holds the key, and nobody waits for it."""


Result: TypeAlias = (
    Granted
    | Waiting
    | Held
    | Deadlock
    | ModeConflict
    | Renewed
    | SessionIs
    | Released
    | Lost
    | SessionExpired
    | NoSession
    | SessionClosed
    | Abandoned
    | Broken
    | Committed
    | CommitRefused
    | GuardConflict
    | RecordDeleted
    | NoRecord
    | RevisionConflict
    | QueueFull
    | Invalid
    | Unsupported
    | Done
    | TokensExhausted
    | HandedOver
    | Parked
    | Unparked
    | StaleToken
    | Resized
    | NotHeld
)
