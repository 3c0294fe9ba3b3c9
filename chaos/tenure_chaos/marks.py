"""Coverage marks: what a batch of seeds must have come across, or it was too tame to prove anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from tenure_chaos.sim.crashes import OPERATIONS
from tenure_chaos.sim.faults.crashing import POINTS
from tenure_chaos.sim.options import FAULTS, WORK
from tenure_cluster.lease.events import EventKind


@dataclass(frozen=True)
class Mark:
    """Reached when the run counted one of ``counts``."""

    name: str
    counts: tuple[str, ...]

    def reached(self, counted: Mapping[str, int]) -> int:
        return sum(counted.get(count, 0) for count in self.counts)


def _same(*names: str) -> tuple[Mark, ...]:
    return tuple(Mark(name, (name,)) for name in names)


CONSENSUS: Final = _same(
    "leader changed",
    "member added",
    "member promoted",
    "member removed",
    "member replaced",
    "removed node told so",
    "name of a removed member refused",
    "every member replaced, from 3 to 5 to 3",
    "change of members refused",
    "leader transfer ended: Transferred",
    "leader transfer ended: TransferFailed",
    "snapshot installed",
    "snapshot restored at a start",
    "torn tail repaired",
    "power loss that lost something",
    "crashed in a sync",
    "crashed while starting",
    "message torn by a reset",
    *(f"crashed before disk operation {operation}" for operation in OPERATIONS),
    *(f"crashed at {point}" for point in POINTS),
)

CLUSTERS: Final = _same(
    *(f"simulated seconds of {nodes} nodes, {lines} lines" for nodes in (3, 5) for lines in ("short", "long"))
)

LEASES: Final = (
    *_same(
        "lease expired by command",
        "waiter granted by a release",
        "waiter granted by an expiry",
        "waiter granted by a break",
        "grant replayed",
        "commit replayed",
        "stale commit refused",
        "forwarded call answered after a leader change",
        "Renewed while a disk is full",
        "Released while a disk is full",
    ),
    Mark("node stopped by a failed sync", ("stopped itself: EIO",)),
    *_same("rot refused", "rot did no harm"),
)

MODES: Final = _same(
    "granted exclusive",
    "granted shared",
    "granted permit",
    "writer among readers granted",
    "writer granted by the last reader",
    "readers granted by a writer",
    "readers granted together",
    "slot handed on",
    "slot handed over",
    "slot parked",
    "slot taken up again",
    "slot granted by a resize",
    "permits out beyond the slots of a resized pool",
    "set left a resized pool",
    "set granted at once",
    "set granted after waiting",
    "set lost",
    "handed over to a waiter",
    "handed over to another client",
    "lease ended without progress",
    "told that it was lost without progress",
    "waiting would close a cycle",
    "chain of several seen",
    "parked lease seen in a chain",
)

NOT_PLAYED: Final = frozenset({"restored"})
"""It begins another log, and with it another history: a seed has one. A story of two worlds tells of it, in
tests/cases, and one of real nodes in tests/integration."""

EVENTS: Final = _same(
    *(
        f"event {kind}{told}"
        for kind in get_args(EventKind)
        if kind not in NOT_PLAYED
        for told in ("", " told")
    )
)

CALLS: Final = tuple(
    Mark(f"call {call}", (f"call {call}",))
    for call in (
        "acquire ok",
        "acquire refused held",
        "acquire refused lost",
        "acquire refused deadlock",
        "acquire refused mode_conflict",
        "acquire unknown",
        "acquire unavailable overloaded",
        "renew ok",
        "renew refused lost",
        "release ok",
        "release refused lost",
        "handover ok",
        "handover refused lost",
        "park ok",
        "park refused lost",
        "unpark ok",
        "unpark refused lost",
        "abandon ok",
        "break ok",
        "resize ok",
        "resize refused not_held",
        "commit ok",
        "commit refused stale_token",
        "commit refused not_live",
        "commit unknown",
        "validate ok",
        "get ok",
        "get refused not_held",
        "queue ok",
        "record ok",
        "record refused no_record",
    )
)

CHECKED: Final = tuple(
    Mark(f"something to check for property {number}", (f"checked for property {number:02}",))
    for number in range(1, 21)
)

WATCHES: Final = (
    *_same("watch begun", "watch resumed", "watcher took no more for a while", "watch refused compacted"),
    *_same(*(f"watch told {kind}" for kind in ("bookmark", "gap", "leader_changed", "shutting_down"))),
)

CLIENTS: Final = _same(
    "cancelled acquire",
    "careful writer stopped",
    "call commit_again ok",
    "call commit_mismatched refused not_live",
    "duplicate request delivered",
    "fault crash client",
    "handle found lost by its own clock",
    "late commit refused stale_token",
    "late register write refused",
    "lost update at the unguarded register",
    "program met LeaseLost",
    "request given up with its connection",
    "session ran out",
)

FAULT_MARKS: Final = tuple(Mark(f"fault {fault}", (f"fault {fault}",)) for fault in FAULTS)

WORK_MARKS: Final = tuple(Mark(f"work {work}", (f"work {work}",)) for work in WORK)

MARKS: Final[tuple[Mark, ...]] = (
    *CONSENSUS,
    *CLUSTERS,
    *LEASES,
    *MODES,
    *EVENTS,
    *CALLS,
    *CHECKED,
    *WATCHES,
    *CLIENTS,
    *WORK_MARKS,
    *FAULT_MARKS,
)


def missing(counted: Mapping[str, int], marks: Sequence[Mark] = MARKS) -> list[str]:
    """The names of those that were not reached."""
    return [mark.name for mark in marks if not mark.reached(counted)]


def table(counted: Mapping[str, int], marks: Sequence[Mark] = MARKS) -> list[str]:
    """A line for each mark, and how often it was reached."""
    return [f"{mark.reached(counted) or 'MISSING':>12}  {mark.name}" for mark in marks]
