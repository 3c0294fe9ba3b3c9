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

SET_PATIENCE_MS: Final = 10_000
"""For so long a set of keys that waits lets others pass it."""

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


def place_of(said: dict[str, Any], tenant: str | None = None) -> Key:
    """Where there is one holder at a time: of a lease, or an event of one, its key; or its slot of a pool; or
    of a key with many readers the place of this one.
    """
    tenant, key, mode = said["tenant"] if tenant is None else tenant, said["key"], said.get("mode")
    if mode == "permit":
        return (tenant, f"{key}#{said['slot']}")
    if mode == "shared":
        return (tenant, f"{key}@{said['owner']}")
    return (tenant, key)


def guard_of(place: Key) -> Key:
    """Whose tokens are compared with one another: those of a slot, or of all holders of a key."""
    return (place[0], place[1].partition("@")[0])


def called_key(call: CallRecord) -> Key:
    return (call.tenant, call.asked.get("key", ""))


def called_keys(call: CallRecord) -> list[Key]:
    """The keys that an acquire asks for."""
    return [(call.tenant, key) for key in call.asked.get("keys") or [call.asked.get("key", "")]]


def refused_key(call: CallRecord) -> Key:
    """The key because of which an acquire was refused."""
    return (call.tenant, call.answer.get("key") or called_keys(call)[0][1])


def leases_told(call: CallRecord) -> list[dict[str, Any]]:
    """What an acquire was granted, as its answer tells it: one lease, or those of a set."""
    lease = call.answer.get("lease")
    return [lease] if lease is not None else list(call.answer.get("leases") or ())


TELLING: Final = frozenset(("Renewed", "HandedOver", "Parked", "Unparked"))
"""Results that tell one grant."""


def grants_told(effect: Effect) -> list[dict[str, Any]]:
    """The grants in an effect's result: each a lease with its session."""
    if effect.result == "Granted":
        return list(effect.result_fields["grants"])
    return [effect.result_fields["grant"]] if effect.result in TELLING else []


def text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def told_value(record: dict[str, Any]) -> str:
    """The value of a record as an answer tells it, as ``text`` would give it of the bytes."""
    if record.get("value_encoding") == "base64":
        return text(base64.b64decode(record["value"]))
    return text(record["value"])
