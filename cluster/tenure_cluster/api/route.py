"""One call of the interface: what its handler and the OpenAPI document are made from."""

from typing import Any, Final, Literal, TypeAlias

import msgspec

from tenure_cluster.lease.credentials import Right

Source: TypeAlias = Literal["body", "query", "nothing"]
Struct: TypeAlias = type[msgspec.Struct]
Access: TypeAlias = Right | Literal["open", "any"]
"""A right; or `any`: a valid credential with whatever right, as for calls whose parts are looked at one by
one; or `open`: nothing."""


class Link(msgspec.Struct, frozen=True):
    """What an answer can be used for: fields of another call, as runtime expressions of OpenAPI."""

    operation: str
    fields: dict[str, str]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    """A template: at most one ``{name}``, always last, which takes the rest of the path, slashes included."""
    operation: str
    """Name of the service's operation, or of the front's own for the calls that it answers itself."""
    access: Access
    """What its caller must have, once credentials are asked for. It has no default: a route that says nothing
    of it can't be made."""
    summary: str
    description: str = ""
    tag: Literal["leases", "guards", "sessions", "events", "cluster", "credentials", "audit"]
    request: Struct | None = None
    source: Source = "nothing"
    path_field: str | None = None
    """The request's field that ``{name}`` fills."""
    replies: dict[int, tuple[Struct, ...]]
    text: str | None = None
    """Media type of a body that is neither JSON nor MessagePack."""
    streamed: tuple[str, Struct] | None = None
    """Media type of a body that does not end, and what its parts are."""
    problems: tuple[str, ...]
    """Codes that the call can meet, beside those that any call of its source can."""
    example: dict[str, Any] | None = None
    """A request body."""
    links: dict[int, tuple[Link, ...]] = {}
    """By status of the answer."""

    @property
    def prefix(self) -> str:
        """The fixed part of the path."""
        return self.path.partition("{")[0]

    @property
    def long(self) -> bool:
        """Whether its answer goes on until one of the two sides ends it."""
        return self.streamed is not None or 101 in self.replies

    @property
    def parameter(self) -> str | None:
        """Name of the path's parameter."""
        return self.path.partition("{")[2].removesuffix("}") or None


ANY_CALL: Final = ("invalid", "internal")
"""Codes that every call can meet."""
GUARDED_CALL: Final = ("unauthenticated", "forbidden")
"""Codes that every call can meet that needs a credential."""
BODY_CALL: Final = ("too_large", "unsupported_media_type")
"""Codes that every call with a body can meet."""
LEADER_CALL: Final = ("quota", "overloaded", "no_leader", "no_quorum", "shutting_down", "out_of_range")
"""Codes that every call to the replicated state can meet."""
WRITE_CALL: Final = (*LEADER_CALL, "outcome_unknown")
"""Codes that every call that changes the replicated state can meet."""
NEWER_CALL: Final = ("mixed_versions",)
"""Codes that a call can meet, as long as nodes run that don't know it."""
