"""What can go wrong, as exceptions.

    TenureError
     ├── LeaseUnavailable     the key was not acquired: somebody else holds it, or waiting could not end
     ├── LeaseLost            the lease, or the session it belongs to, is over: stop acting
     ├── CommitRefused        the guard did not let the write pass; nothing was written
     ├── NotAuthorized        no valid credential, or one without the right
     ├── QuotaExceeded        a quota of the tenant is used up; not executed
     ├── InvalidRequest       the request itself is wrong; asking again will not help
     ├── ClusterUnavailable   no answer in time; certainly not executed
     └── OutcomeUnknown       no answer in time; may have been executed

The last two are the only ones that say nothing about the lease. Exactly one of all, ``OutcomeUnknown``,
leaves open whether the call had its effect: ask again with the same ``request_id``, or look.

None of them is a ``RuntimeError``, ``OSError``, ``TimeoutError`` or ``ValueError``, so that no handler
meant for something else takes the loss of a lease for a fault that may be ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.answers import Ahead, Holder


class TenureError(Exception):
    """Base of all. ``code`` is the code of the public contract (``held``, ``lost``, ``no_leader`` …),
    ``detail`` one sentence for people, ``request_id`` the server's ``X-Request-Id`` of the answer that said
    so, empty if there was none."""

    code: str = ""
    detail: str = ""
    request_id: str = ""

    def __init__(self, *arguments: object, code: str = "", detail: str = "", request_id: str = "") -> None:
        super().__init__(*arguments)
        self.code = code or self.code
        self.detail = detail or self.detail
        self.request_id = request_id

    def __str__(self) -> str:
        return self.detail or self.code or super().__str__()


class LeaseUnavailable(TenureError):
    """The key was not acquired, and nothing of the try is left behind.

    ``holder`` is who holds it, None where that is not known (a grace period runs, or only waiters are
    before us). ``code`` is ``held``, ``deadlock``, ``mode_conflict``, or ``wait_over`` when the time to
    wait had passed; then ``position`` and ``ahead`` tell the place in the queue that was given up.
    ``reason`` says what is in the way where ``code`` is ``held``: ``held``, or ``grace`` or ``queued``,
    perhaps with room left beside a holder; empty if that is not told.
    ``cycle`` names the owners and keys of a refused deadlock, alternating.
    """

    code = "held"

    def __init__(
        self,
        holder: Holder | None = None,
        *,
        code: str = "",
        detail: str = "",
        request_id: str = "",
        position: int = 0,
        ahead: tuple[Ahead, ...] = (),
        cycle: tuple[str, ...] = (),
        reason: str = "",
    ) -> None:
        super().__init__(holder, code=code, detail=detail, request_id=request_id)
        self.holder = holder
        self.reason = reason
        self.position = position
        self.ahead = ahead
        self.cycle = cycle


class LeaseLost(TenureError):
    """The lease is over. ``reason``: expired, released, broken, handed_over, session_closed, restored,
    abandoned, or unknown when no lease of that id is remembered; session_expired and no_session when the
    session is what is over; parked and taken_up of a handle whose lease was parked, and by then taken up by
    somebody else. ``cause`` is what else is known of the end: the reason that was given for a break,
    or ``no_progress``."""

    code = "lost"

    def __init__(
        self,
        reason: str = "unknown",
        *,
        code: str = "",
        detail: str = "",
        request_id: str = "",
        cause: str = "",
    ) -> None:
        super().__init__(
            reason, code=code, detail=detail or f"the lease is over: {reason}", request_id=request_id
        )
        self.reason = reason
        self.cause = cause


class CommitRefused(TenureError):
    """The write did not pass. ``code``: stale_token, token_used, seq_replayed, not_live, revision_conflict
    or mode_conflict. ``floor`` is the lowest token that can still write, None where the answer does not
    tell; ``revision`` likewise the record's."""

    def __init__(
        self,
        code: str,
        floor: int | None = None,
        *,
        detail: str = "",
        request_id: str = "",
        revision: int | None = None,
    ) -> None:
        super().__init__(code, floor, code=code, detail=detail, request_id=request_id)
        self.floor = floor
        self.revision = revision


class NotAuthorized(TenureError):
    """``code``: unauthenticated or forbidden."""

    code = "forbidden"


class QuotaExceeded(TenureError):
    """A quota of the tenant is used up. ``retry_after`` is in seconds, None if the server named none."""

    code = "quota"

    def __init__(
        self,
        *arguments: object,
        code: str = "",
        detail: str = "",
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(*arguments, code=code, detail=detail, request_id=request_id)
        self.retry_after = retry_after


class InvalidRequest(TenureError):
    """The request is wrong. ``path`` names the faulty field where the server did."""

    code = "invalid"

    def __init__(
        self, *arguments: object, code: str = "", detail: str = "", request_id: str = "", path: str = ""
    ) -> None:
        super().__init__(*arguments, code=code, detail=detail, request_id=request_id)
        self.path = path


class ClusterUnavailable(TenureError):
    """No node could execute the call in the time given. It was certainly not executed."""

    code = "no_leader"


class OutcomeUnknown(TenureError):
    """The call was sent and may have been executed; no answer came in the time given."""

    code = "outcome_unknown"
