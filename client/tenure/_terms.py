"""What is asked for when a lease is acquired, checked once."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tenure.errors import InvalidRequest

Mode = Literal["exclusive", "shared", "permit"]

TTL_S: Final = 30.0
"""TTL of a lease for which none is given."""

FOREVER_S: Final = 3.0e8
"""Ten years, for those who wait until they get it."""


def default_owner() -> str:
    """Host and process: a label for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


def milliseconds(seconds: float, name: str) -> int:
    """The duration as it is sent. Raises InvalidRequest that names it."""
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or seconds < 0:
        raise InvalidRequest(
            detail=f"{name} must be a number of seconds that is not negative, not {seconds!r}"
        )
    return round(seconds * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """One lease as it is to be acquired, any number of times."""

    keys: tuple[str, ...]
    is_set: bool
    owner: str
    ttl_ms: int
    wait_s: float
    mode: Mode
    slots: int | None
    grace_ms: int
    progress_ms: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    shared_session: bool = True

    @classmethod
    def of(
        cls,
        key: str | Sequence[str],
        *,
        ttl: float,
        owner: str | None,
        wait: float,
        mode: Mode,
        slots: int | None,
        grace: float,
        progress: float | None,
        metadata: Mapping[str, str] | None,
        own_session: bool,
    ) -> Terms:
        """Durations in seconds. Raises InvalidRequest."""
        keys = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Iterable) else ()
        if not keys or not all(isinstance(one, str) and one for one in keys) or len(set(keys)) != len(keys):
            detail = f"a lease needs a key, or several different keys, which are texts; not {key!r}"
            raise InvalidRequest(detail=detail, path="$.key")
        if not (owner is None or isinstance(owner, str)):
            raise InvalidRequest(detail=f"owner is a text, not {owner!r}", path="$.owner")
        if not (metadata is None or isinstance(metadata, Mapping)):
            raise InvalidRequest(detail=f"metadata maps texts to texts, not {metadata!r}", path="$.metadata")
        return cls(
            keys=keys,
            is_set=not isinstance(key, str),
            owner=default_owner() if owner is None else owner,
            ttl_ms=milliseconds(ttl, "ttl"),
            wait_s=milliseconds(wait, "wait") / 1000,
            mode=mode,
            slots=slots,
            grace_ms=milliseconds(grace, "grace"),
            progress_ms=milliseconds(progress or 0.0, "progress"),
            metadata=dict(metadata or {}),
            shared_session=not own_session,
        )

    def body(self, session_id: str, if_held: Literal["conflict", "return"] = "conflict") -> dict[str, Any]:
        """The body of the acquire in that session. ``if_held`` is for a lease that the session may have been
        given already."""
        asked: dict[str, Any] = {"keys": list(self.keys)} if self.is_set else {"key": self.keys[0]}
        return {
            **asked,
            "owner": self.owner,
            "session_id": session_id,
            "if_held": if_held,
            "metadata": dict(self.metadata) or None,
            "grace_ms": self.grace_ms or None,
            "progress_ms": self.progress_ms or None,
            "mode": None if self.mode == "exclusive" else self.mode,
            "slots": self.slots,
        }
