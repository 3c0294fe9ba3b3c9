"""What happened in a run, seen from outside: calls of clients, entries of the log, faults.

Times are true time in seconds since the run began. Nothing in here imports the server or the client.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["ok", "refused", "unavailable", "unknown", "pending"]
"""ok: answered with the effect. refused: answered without effect, for ``code``. unavailable: certainly not
executed. unknown: may have been executed. pending: the run ended first; counts as unknown.
"""


@dataclass
class CallRecord:
    """One call of a client, with all its attempts."""

    number: int
    client: str
    name: str
    asked: dict[str, Any]
    invoked_at: float
    returned_at: float = float("inf")
    outcome: Outcome = "pending"
    code: str = ""
    answer: dict[str, Any] = field(default_factory=dict)
    answered_attempt_at: float = 0.0
    """True time at which the attempt that was answered was sent."""
    doubtful: bool = False
    """An earlier attempt of it may still be under way."""


@dataclass(frozen=True)
class Effect:
    """One command of a committed entry, with what it came to: plain data."""

    index: int
    place: int
    first_applied_at: float
    at_ms: int
    command: str
    fields: dict[str, Any]
    result: str
    result_fields: dict[str, Any]
    events: tuple[dict[str, Any], ...]


@dataclass
class Fault:
    """One fault from its beginning to its end."""

    name: str
    target: str
    began_at: float
    ended_at: float = float("inf")


@dataclass
class History:
    calls: list[CallRecord] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    duration_s: float = 0.0
    clock_rate_bound: float = 0.0
