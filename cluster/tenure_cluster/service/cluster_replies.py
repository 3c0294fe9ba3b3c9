"""Bodies of the answers about who leads and who the members are."""

import msgspec


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of these answers."""


class TransferredReply(_Reply, frozen=True, kw_only=True):
    """``leader`` leads in ``term``; null if the former leader has not heard of a new one yet."""

    leader: str | None
    term: int


class MemberIsBody(_Reply, frozen=True, kw_only=True):
    """A member as an entry of the log says; addresses are empty where each node's configuration has them."""

    id: str
    peer: str
    http: str
    voter: bool
    """False for a learner, which counts in no majority until it has caught up."""


class MembersReply(_Reply, frozen=True, kw_only=True):
    """All members, by the log's entry at ``index``, which is committed."""

    index: int
    members: list[MemberIsBody]
