"""Bodies of the answers about who leads."""

import msgspec


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of these answers."""


class TransferredReply(_Reply, frozen=True, kw_only=True):
    """``leader`` leads in ``term``; null if the former leader has not heard of a new one yet."""

    leader: str | None
    term: int
