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
class Belief:
    """A handle of a client that said it holds (HELD or AT_RISK), from when to when it would have said so if
    asked at that instant: paused or not.
    """

    client: str
    key: str
    token: int
    began_at: float
    ended_at: float = float("inf")
    why: str = ""
    """How it ended: released, lost, or run out by the client's own clock."""


@dataclass(frozen=True)
class RegisterWrite:
    """One attempt to replace the value of a register outside the service, in order of arrival there.

    A writer reads the register, computes, and writes; ``read`` is the value it had read, ``found`` the value
    that stood there when the write arrived.
    """

    register: str
    client: str
    token: int
    arrived_at: float
    guarded: bool
    accepted: bool
    read: int
    found: int
    value: int


@dataclass(frozen=True)
class Watched:
    """One thing that a watcher was told: an event, or (kind "gap") that some may be missing up to here."""

    watcher: str
    at: float
    revision: int
    kind: str
    key: str = ""
    token: int = 0


@dataclass(frozen=True)
class NodeState:
    """What a healed node has at the end of a run: plain data."""

    node: str
    applied_index: int
    digest: str
    held: tuple[tuple[str, int], ...] = ()
    """(key, token) of every lease."""
    waiting: tuple[tuple[str, str], ...] = ()
    """(key, request_id) of every waiter."""
    records: tuple[tuple[str, int, str], ...] = ()
    """(key, token, value) of every record."""
    floors: tuple[tuple[str, int], ...] = ()
    """(key, floor) of every guard."""


@dataclass
class History:
    """``complete`` is false if the run was cut short, so what is known only at its end is not checked."""

    calls: list[CallRecord] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    beliefs: list[Belief] = field(default_factory=list)
    writes: list[RegisterWrite] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)
    digests: list[tuple[str, int, str]] = field(default_factory=list)
    """(node, applied index, digest), whenever one was taken."""
    final: list[NodeState] = field(default_factory=list)
    healed_at: float = float("inf")
    leader_after_healing_at: float = float("inf")
    complete: bool = False
    duration_s: float = 0.0
    clock_rate_bound: float = 0.0
