"""What happened in a run, seen from outside: calls of clients, entries of the log, faults.

Times are true time in seconds since the run began. Keys are within a tenant. Nothing in here imports the
server or the client. A list that is empty was not recorded: the checks that need it then look at nothing,
and say so.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

DEFAULT_TENANT = "default"

Outcome = Literal["ok", "refused", "unavailable", "unknown", "pending"]
"""ok: answered with the effect. refused: answered without effect, for ``code``. unavailable: certainly not
executed. unknown: may have been executed. pending: the run ended first; counts as unknown.
"""


@dataclass
class CallRecord:
    """One call of a client, with all its attempts.

    ``asked`` is what was asked, by field. Beside what is sent it has ``key`` wherever the call is about one,
    and ``token`` of the lease for a renewal and a release. ``answer`` is the answer, or of a refusal what it
    told: ``holder`` (``{"token": …}``), ``reason``, ``floor``, ``last_token``, ``last_seq``, ``revision``.
    """

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
    """True time at which the attempt that was answered was sent; 0 if no answer says."""
    doubtful: bool = False
    """An earlier attempt of it may still be under way."""
    tenant: str = DEFAULT_TENANT
    session: str = ""
    """Stale reads of one session must not go back; empty: of no session."""


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
    stamped_at: float = -1.0
    """True time at which the leader stamped it; below 0 if that was not recorded."""


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
    tenant: str = DEFAULT_TENANT
    mode: str = "exclusive"
    place: str = ""
    """Where it is alone, if that is not the key: its slot of a pool, or its place among readers."""


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
class Watch:
    """One subscription of a watcher: every event of ``tenant`` whose key begins with ``prefix``, from
    revision ``from_revision`` on (0: from where the stream stood when it began). Another of the same watcher
    is its resumption.
    """

    watcher: str
    began_at: float
    prefix: str = ""
    from_revision: int = 0
    tenant: str = DEFAULT_TENANT
    ended_at: float = float("inf")


@dataclass(frozen=True)
class Watched:
    """One thing that a watcher was told: an event, or (kind "gap") that some may be missing up to here."""

    watcher: str
    at: float
    revision: int
    kind: str
    key: str = ""
    token: int = 0
    place: str = ""
    """Where the lease is alone, if that is not the key: a slot of a pool, or a place among readers."""
    said: str = ""
    """What else it said: owner, mode, slot and detail; empty if that was not recorded."""


@dataclass(frozen=True)
class Elected:
    """A node took office. ``last_index`` is the index of its last entry then; below 0 if not recorded."""

    node: str
    term: int
    at: float
    last_index: int = -1


@dataclass(frozen=True)
class RaftState:
    """Where a node's consensus stood at a moment. ``incarnation`` counts its starts."""

    node: str
    incarnation: int
    at: float
    term: int
    voted_for: str
    commit_index: int
    applied_index: int


@dataclass(frozen=True)
class AppliedEntry:
    """A node applied an entry; ``content`` identifies it."""

    node: str
    index: int
    term: int
    """Of the entry."""
    content: str
    in_term: int = 0
    """In which the node was then: the entry had been committed in this term or an earlier one. 0 if that was
    not recorded."""


@dataclass(frozen=True)
class NodeState:
    """What a healed node has at the end of a run: plain data. A key of another tenant than the default one
    is written as ``named(tenant, key)``.
    """

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
    """(key, or slot of a pool as ``key#slot``, floor) of every guard."""
    watches: int = 0
    """How many watches it still serves."""


def named(tenant: str, key: str) -> str:
    """The one name of a key among those of all tenants."""
    return key if tenant == DEFAULT_TENANT else f"{tenant}::{key}"


@dataclass
class History:
    """``complete`` is false if the run was cut short, so what is known only at its end is not checked."""

    calls: list[CallRecord] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    """In the order of the log, from its first entry on."""
    faults: list[Fault] = field(default_factory=list)
    beliefs: list[Belief] = field(default_factory=list)
    writes: list[RegisterWrite] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)
    """In the order in which each watcher was told."""
    elected: list[Elected] = field(default_factory=list)
    raft: list[RaftState] = field(default_factory=list)
    """In the order in which each node was looked at."""
    applied: list[AppliedEntry] = field(default_factory=list)
    digests: list[tuple[str, int, str]] = field(default_factory=list)
    """(node, applied index, digest), whenever one was taken."""
    final: list[NodeState] = field(default_factory=list)
    quotas: dict[str, dict[str, int]] = field(default_factory=dict)
    """By tenant: the most ``leases`` and ``waiters`` that it may have."""
    healed_at: float = float("inf")
    leader_after_healing_at: float = float("inf")
    complete: bool = False
    duration_s: float = 0.0
    clock_rate_bound: float = 0.0
    rates_kept: bool = True
    """Whether every clock kept within ``clock_rate_bound``: what rests on that is checked only then."""
    leader_bound_s: float = 15.0
    """After healing there is a leader within this."""
    tick_s: float = 1.0
    """While anything lives, the log's time is moved at least so often."""

    def save(self, path: Path) -> None:
        """Write it as JSON lines; see history_file."""
        from tenure_chaos import history_file

        history_file.save(self, path)

    @classmethod
    def load(cls, path: Path) -> "History":
        """Read what ``save`` wrote. Raises history_file.Unreadable, which names the line."""
        from tenure_chaos import history_file

        return history_file.load(path)
