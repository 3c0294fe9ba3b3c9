"""Operating errors: typed values, and the one table from them to HTTP.

``outcome_unknown`` is the only one that the service gives for an operation that may have been executed; every
other says for certain that it was not. ``internal`` is a bug that was met on the way to an answer: it says
nothing of what had been done by then, and clients take it as unknown.
"""

from typing import Any, Final

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """A refusal or failure on its way to the caller.

    ``detail`` is one sentence that names the fault and, where there is one, the bound. ``extra`` are
    members of the problem document beside the standard ones (``holder``, ``reason``, ``floor``, ``path``
    …).
    """

    code: str
    detail: str
    extra: dict[str, Any] = {}
    retry_after_s: float | None = None

    @property
    def status(self) -> int:
        return CODES[self.code][0]

    @property
    def title(self) -> str:
        return CODES[self.code][1]


CODES: Final[dict[str, tuple[int, str]]] = {
    "invalid": (400, "The request is not valid"),
    "unsupported": (400, "This server does not support what was asked"),
    "unauthenticated": (401, "No valid credential"),
    "forbidden": (403, "The credential lacks the right"),
    "not_held": (404, "The key is not held"),
    "no_record": (404, "The key has no record"),
    "no_session": (404, "No such session"),
    "no_credential": (404, "No such credential"),
    "no_member": (404, "No such member"),
    "no_route": (404, "No such route"),
    "method_not_allowed": (405, "The route does not take this method"),
    "held": (409, "The key is held"),
    "deadlock": (409, "Waiting would close a cycle"),
    "mode_conflict": (409, "The key is in use in another mode"),
    "member_exists": (409, "The name or address is taken"),
    "change_refused": (409, "The members can't be changed so now"),
    "not_transferred": (409, "The leader keeps its office"),
    "lost": (410, "The lease is over"),
    "session_expired": (410, "The session has expired"),
    "compacted": (410, "The revision is no longer kept"),
    "stale_token": (412, "A newer fencing token has been granted"),
    "token_used": (412, "The fencing token has been used"),
    "seq_replayed": (412, "The sequence number has been used"),
    "not_live": (412, "The lease has ended"),
    "revision_conflict": (412, "The record has another revision"),
    "too_large": (413, "The request is too large"),
    "unsupported_media_type": (415, "The media type is not supported"),
    "out_of_range": (422, "A value is out of range"),
    "quota": (429, "A quota is exceeded"),
    "overloaded": (429, "The server is overloaded"),
    "internal": (500, "The server failed"),
    "no_leader": (503, "No leader is known"),
    "no_quorum": (503, "The leader cannot reach a quorum"),
    "shutting_down": (503, "The server is shutting down"),
    "mixed_versions": (503, "Not every node knows this yet"),
    "outcome_unknown": (504, "The outcome is unknown"),
}
"""code -> (HTTP status, title)"""
