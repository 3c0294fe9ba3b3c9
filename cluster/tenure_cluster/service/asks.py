"""One operation on its way through the service, and how an attempt at it can end without an answer."""

import enum
from collections.abc import Callable
from typing import Final, TypeAlias

from tenure_cluster.observe.request_context import REQUEST_ID, SPAN
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import Reply
from tenure_cluster.service.requests import AcquireRequest, CommitRequest, Request

Answer: TypeAlias = Reply | Problem


class NoAnswer(enum.Enum):
    """An attempt is over without an answer; whoever made it decides whether to make another."""

    NOT_EXECUTED = 0
    """It left no trace and never will: it can be asked anywhere else."""
    UNKNOWN = 1
    """It may have been executed, or may yet be: only an idempotent operation can be asked again."""


Outcome: TypeAlias = Answer | NoAnswer
Done: TypeAlias = Callable[[Outcome], None]
"""Called exactly once, on the event loop, perhaps before the call that was given it returns."""

READS: Final = frozenset(
    {
        "validate",
        "get_lease",
        "list_leases",
        "queue",
        "get_record",
        "get_session",
        "list_credentials",
        "list_tenants",
        "list_audit",
        "backup_point",
    }
)
"""Operations that only look: answered after a read barrier, never proposed."""

_ALWAYS_IDEMPOTENT: Final = (
    READS
    | {"renew", "release", "abandon", "handover", "park", "unpark", "resize"}
    | {"add_member", "remove_member"}
    | {"entrust", "replace_secret", "revoke_credential", "set_quota", "reset_quota", "note_audit"}
)


class Ask:
    """An operation with its tenant. An acquire always has a request_id here, the caller's or one minted for
    it."""

    __slots__ = (
        "actor",
        "operation",
        "origin",
        "remember",
        "request",
        "request_id",
        "sent",
        "span",
        "tenant",
    )

    def __init__(
        self,
        operation: str,
        tenant: str,
        request: Request,
        *,
        remember: bool = True,
        actor: str = "",
        origin: str = "",
    ) -> None:
        self.operation = operation
        self.tenant = tenant
        self.request = request
        self.actor = actor
        """The id of the credential that asks; empty where none is needed."""
        self.origin = origin
        """The address that it asks from; empty for what the cluster asks by itself."""
        self.remember = remember
        """False for an acquire whose caller gave no request_id, and so can't ask for it again."""
        self.sent = False
        """Whether any attempt may have had an effect."""
        self.request_id = REQUEST_ID.get()
        """Of the HTTP request that it came with, at whatever node."""
        self.span = SPAN.get()
        """What its spans belong to; see observe.request_context."""

    @property
    def idempotent(self) -> bool:
        """Whether asking again after an unknown outcome gives the first effect's answer, or does no harm.

        An acquire and a commit with an op_id are remembered; renewing or releasing twice is what once is, and
        so are handing over to the same session, parking and taking up again, and resizing. The
        rest (a break, a session that is opened) would happen twice.
        """
        if self.operation in _ALWAYS_IDEMPOTENT or self.operation == "acquire":
            return True
        return isinstance(self.request, CommitRequest) and self.request.op_id is not None

    @property
    def wait_ms(self) -> int:
        """How long an acquire asks to wait; 0 for everything else."""
        return self.request.wait_ms if isinstance(self.request, AcquireRequest) else 0
