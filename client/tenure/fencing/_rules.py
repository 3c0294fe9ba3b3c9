"""The rules of a guard, as values: what a fence remembers, and what it lets pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from tenure.errors import CommitRefused, InvalidRequest

Mode = Literal["current", "once", "sequence"]

NUMBER_MAX: Final = 2**53 - 1
"""Greatest token and sequence number: exact in JSON, JavaScript and Lua."""

REASONS: Final = {
    "stale_token": "a newer token has armed or written here",
    "token_used": "this token has made its one write",
    "seq_replayed": "this sequence number, or a later one, was accepted already",
    "mode_conflict": "the first write fixed another mode for this key",
}


@dataclass(frozen=True, slots=True)
class Fence:
    """What is remembered of one key: the lowest token that can write, and the last accepted write."""

    floor: int = 0
    last_token: int = 0
    last_seq: int = 0
    mode: str = ""
    """Fixed by the first write; empty before."""

    def refusal(self, token: int, mode: Mode, seq: int) -> str:
        """Why a write is not accepted; empty if it is."""
        if token < self.floor:
            return "stale_token"
        if self.mode not in ("", mode):
            return "mode_conflict"
        if mode == "once" and token <= self.last_token:
            return "token_used"
        if mode == "sequence" and (token, seq) <= (self.last_token, self.last_seq):
            return "seq_replayed"
        return ""

    def armed(self, token: int) -> Fence:
        """With the floor raised. Raises CommitRefused if the token is stale already."""
        if token < self.floor:
            raise refused("stale_token", self)
        return replace(self, floor=token)

    def written(self, token: int, mode: Mode, seq: int) -> Fence:
        """After the write. Raises CommitRefused if it is not accepted."""
        if code := self.refusal(token, mode, seq):
            raise refused(code, self)
        return Fence(token, token, seq, mode)


def refused(code: str, fence: Fence) -> CommitRefused:
    return CommitRefused(code, fence.floor, detail=f"{REASONS[code]}; the floor is {fence.floor}")


def checked_key(key: str) -> str:
    """The key. Raises InvalidRequest for what is none: a database may take any number of rows without one."""
    if not isinstance(key, str) or not key:
        raise InvalidRequest(detail=f"a key is a text, not {key!r}")
    return key


def checked(token: int, mode: Mode = "current", seq: int | None = None) -> int:
    """The sequence number, 0 where the mode has none. Raises InvalidRequest for what can't be meant."""
    if isinstance(token, bool) or not isinstance(token, int) or not 0 < token <= NUMBER_MAX:
        raise InvalidRequest(detail=f"a token is a whole number above 0, not {token!r}")
    if mode not in get_args(Mode):
        raise InvalidRequest(detail=f"mode is one of {', '.join(get_args(Mode))}, not {mode!r}")
    if (seq is not None) != (mode == "sequence"):
        raise InvalidRequest(detail="seq goes with mode 'sequence', and with it alone")
    if seq is None:
        return 0
    if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= NUMBER_MAX:
        raise InvalidRequest(detail=f"seq is a whole number, not {seq!r}")
    return seq
