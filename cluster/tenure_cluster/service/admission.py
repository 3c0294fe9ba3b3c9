"""What a leader takes in. Under load it sheds reads and acquires first and renewals last.

The measure of load is the number of operations that were proposed and have not come back. Each operation has
its share of that number; above it, it is refused before anything of it exists. When disk space runs low, what
would add to the state is refused first; renewals and releases go on from the reserve.
"""

from typing import Final

from tenure_cluster.service.answers import RETRY_S
from tenure_cluster.service.errors import Problem
from tenure_cluster.settings import Admission as AdmissionSettings

SHARES: Final = {
    "get_lease": 0.4,
    "list_leases": 0.4,
    "queue": 0.4,
    "get_record": 0.4,
    "get_session": 0.4,
    "validate": 0.5,
    "acquire": 0.6,
    "open_session": 0.6,
    "break": 0.75,
    "resize": 0.75,
    "handover": 0.75,
    "park": 0.9,
    "unpark": 0.75,
    "commit": 0.75,
    "delete_record": 0.75,
    "close_session": 0.9,
    "release": 0.9,
    "abandon": 0.9,
    "renew": 1.0,
}
"""The part of admission.pending_max up to which each operation is admitted."""

_CREDENTIAL_SHARES: Final = {
    "list_credentials": 0.4,
    "entrust": 0.75,
    "replace_secret": 0.75,
    "revoke_credential": 0.9,
    "list_tenants": 0.4,
    "backup_point": 0.4,
    "set_quota": 0.75,
    "reset_quota": 0.75,
    "list_audit": 0.4,
    "note_audit": 0.75,
}
"""The same for operations on credentials, tenants and the audit."""

_NEED_SPACE: Final = {"acquire": 1.0, "open_session": 1.0, "commit": 0.5, "break": 0.5, "delete_record": 0.5}
"""The part of admission.disk_reserve_bytes that must be free for an operation that isn't listed last."""


class Admission:
    """Decides, and keeps what the decision needs: nothing but the two limits as plain numbers."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self._settings = settings
        self._pending_max = {
            name: int(share * settings.pending_max) for name, share in (SHARES | _CREDENTIAL_SHARES).items()
        }
        self._short_of_space: frozenset[str] = frozenset()
        self.refused = 0

    def note_free_bytes(self, free_bytes: int) -> None:
        """Say how much space the data directory's file system has left."""
        reserve = self._settings.disk_reserve_bytes
        self._short_of_space = frozenset(
            name for name, part in _NEED_SPACE.items() if free_bytes < part * reserve
        )

    def refusal(self, operation: str, pending: int) -> Problem | None:
        """None if `operation` is admitted while `pending` others are under way."""
        if pending >= self._pending_max[operation]:
            self.refused += 1
            detail = f"the leader has {pending} operations under way, {operation} is admitted below "
            return Problem("overloaded", f"{detail}{self._pending_max[operation]}", {}, RETRY_S)
        if operation in self._short_of_space:
            self.refused += 1
            return Problem("overloaded", "the leader is short of disk space", {}, 5 * RETRY_S)
        return None

    def poll_refusal(self, polls: int) -> Problem | None:
        """None if one more waiting acquire may be connected beside `polls` others."""
        if polls < self._settings.polls_max:
            return None
        self.refused += 1
        return Problem(
            "overloaded", f"{polls} acquires wait on this leader, the most it takes", {}, 5 * RETRY_S
        )
