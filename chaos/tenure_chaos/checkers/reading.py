"""How the plain data of a history is read."""

import base64
from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeAlias

from tenure_chaos.history import CallRecord, Effect

Key: TypeAlias = tuple[str, str]
"""(tenant, key)"""

NEVER: Final = float("inf")

NOT_YET: Final = 2**63
"""The number of an effect that is not in the log."""

CLAIM_WINDOW_MS: Final = 5_000
"""How long a grant to a waiter stays open until it must have been claimed."""

MEMORY_MS: Final = 60_000
"""How long what a request_id or an op_id came to is remembered."""

ENDINGS: Final = frozenset(("released", "expired", "broken", "handed_over"))


class Wrong(NamedTuple):
    """What breaks a property, and the key that it is about if it is about one."""

    what: str
    key: Key | None = None


Findings: TypeAlias = Generator[Wrong, None, int]
"""What a property's function yields; it returns how many things it looked at."""


def key_of(said: dict[str, Any]) -> Key:
    return (said["tenant"], said["key"])


def called_key(call: CallRecord) -> Key:
    return (call.tenant, call.asked.get("key", ""))


def grants_told(effect: Effect) -> list[dict[str, Any]]:
    """The grants in an effect's result: each a lease with its session."""
    if effect.result == "Granted":
        return list(effect.result_fields["grants"])
    return [effect.result_fields["grant"]] if effect.result == "Renewed" else []


def text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def told_value(record: dict[str, Any]) -> str:
    """The value of a record as an answer tells it, as ``text`` would give it of the bytes."""
    if record.get("value_encoding") == "base64":
        return text(base64.b64decode(record["value"]))
    return text(record["value"])
