"""What happened: the vocabulary of the event stream.

Every event has its own revision; a tenant's revisions are consecutive, in the order of the log, and go on
above all that were told before when the state is put back to a backup. A grant's
life is told as one `granted`, any number of `renewed`, `progress`, `parked` and `unparked`, and one of
`released`, `expired`, `broken` and `handed_over`. A handover tells `handed_over` of the lease that ends, then
`granted` of its successor's. `unparked` carries the new token of the lease.

    granted         a lease begins; the successor's too, after a handover
    renewed         it was renewed, by its lease_id or by a session of at most RENEWED_TOLD_MAX leases; told
                    of a lease at most once in a second of cluster time
    progress        its holder told how far it is; detail is the note's step
    parked          it is kept without heartbeats until a limit
    unparked        it is back in its holder's hands
    released        it ended by its holder's wish; detail is empty, `abandoned` or `session_closed`
    expired         it ended by time; detail is empty, or `no_progress` where progress was demanded
    broken          it ended by force; detail is the reason that was given
    handed_over     it ended in favour of another session; detail is the successor's owner
    committed       a write passed the guard
    commit_refused  a write did not pass; detail is the code
    record_deleted  a record was removed
    resized         a pool in use got another number of slots; owner is who asked for it, detail the number
    queue_joined    an acquire waits from now on; one event for each key
    queue_left      it does not wait any more and was not granted; detail says why
    restored        the state was put back to a backup: all leases, sessions and waiters of before are over,
                    and tokens go on above this one. It has no key, and is told to all who watch the tenant
"""

from typing import Final, Literal, TypeAlias

import msgspec

from tenure_cluster.lease.types import ClusterTime, FencingToken, Key, Revision, TenantId

EventKind: TypeAlias = Literal[
    "granted",
    "renewed",
    "released",
    "expired",
    "broken",
    "committed",
    "commit_refused",
    "record_deleted",
    "queue_joined",
    "queue_left",
    "progress",
    "parked",
    "unparked",
    "handed_over",
    "restored",
    "resized",
]

ENDS: Final[frozenset[EventKind]] = frozenset({"released", "expired", "broken", "handed_over"})
"""The kinds that end a lease; of each lease there is exactly one."""


TOLD_TO_ALL: Final[frozenset[EventKind]] = frozenset({"restored"})
"""The kinds that are about no key, and concern all who watch the tenant."""


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that happened to one key. ``detail`` is the reason, the refusal's code or empty. ``mode`` is
    empty where no lease or waiter is spoken of. ``since_ms`` is when a lease began that ends here, else 0."""

    tenant: TenantId
    revision: Revision
    kind: EventKind
    key: Key
    owner: str
    token: FencingToken
    at_ms: ClusterTime
    wall_ms: int
    detail: str = ""
    mode: str = ""
    slot: int = 0
    since_ms: ClusterTime = 0
