"""One history out of what clients, nodes and the bench have each written down."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tenure_chaos.history import AppliedEntry, Effect, Elected, History, RaftState
from tenure_chaos.live.node.observer import records


class Observations:
    """What the nodes' processes have written down, of all their incarnations."""

    def __init__(self, began_at: float) -> None:
        """``began_at``: when the run began, by CLOCK_MONOTONIC."""
        self._began_at = began_at
        self._entries: dict[int, tuple[float, list[Any]]] = {}
        self._seen: set[tuple[str, int, str]] = set()
        self._offices: set[tuple[str, int]] = set()
        self.applied: list[AppliedEntry] = []
        self.digests: list[tuple[str, int, str]] = []
        self.raft: list[RaftState] = []
        self.elected: list[Elected] = []
        self.roles: list[tuple[float, str, str, int]] = []
        """(when, node, role, term), whenever a role or term was found changed; "down" before it starts."""
        self.snapshots: dict[str, int] = {}
        """By node: how many different snapshots it was seen with."""
        self.snapshots_at: list[tuple[float, str]] = []
        """(when, node), whenever another snapshot was seen."""

    def read(self, node: str, path: Path) -> None:
        """Take in what one node has written down."""
        incarnation, last, snapshot = 0, ("", 0), 0
        for record in records(path):
            at = record["at"] / 1e9 - self._began_at
            if record["is"] == "start":
                incarnation, last = record["incarnation"], ("", 0)
            elif record["is"] == "applied":
                self._applied(node, at, record)
            elif record["is"] == "digest":
                self.digests.append((node, record["index"], record["digest"]))
            else:
                self._stands(node, incarnation, at, record)
                if (role := (record["role"], record["term"])) != last:
                    self.roles.append((at, node, *role))
                    last = role
                if record["snapshot"] != snapshot:
                    snapshot = record["snapshot"]
                    self.snapshots[node] = self.snapshots.get(node, 0) + 1
                    self.snapshots_at.append((at, node))

    def _applied(self, node: str, at: float, record: dict[str, Any]) -> None:
        index, content = record["index"], record["content"]
        known = self._entries.get(index)
        if known is None or at < known[0]:
            self._entries[index] = (at, record["effects"])
        if (node, index, content) not in self._seen:
            self._seen.add((node, index, content))
            self.applied.append(AppliedEntry(node, index, 0, content))

    def _stands(self, node: str, incarnation: int, at: float, record: dict[str, Any]) -> None:
        self.raft.append(
            RaftState(
                node,
                incarnation,
                at,
                record["term"],
                record["voted_for"],
                record["commit"],
                record["applied"],
            )
        )
        if record["role"] == "leader" and (node, record["term"]) not in self._offices:
            self._offices.add((node, record["term"]))
            self.elected.append(Elected(node, record["term"], at))

    def effects(self) -> list[Effect]:
        """The log, as the node that was first at each entry has applied it."""
        return [
            Effect(index, place, at, at_ms, command, fields, result, result_fields, tuple(events))
            for index, (at, effects) in sorted(self._entries.items())
            for place, (at_ms, command, fields, result, result_fields, events) in enumerate(effects)
        ]


def put_together(of_clients: Iterable[History], seen: Observations, into: History) -> None:
    """All calls in the order in which they were made, with numbers of their own; and the rest beside them."""
    for history in of_clients:
        into.calls += history.calls
        into.beliefs += history.beliefs
        into.watches += history.watches
        into.watched += history.watched
    into.calls.sort(key=lambda call: call.invoked_at)
    for number, call in enumerate(into.calls):
        call.number = number
    into.effects = seen.effects()
    into.applied, into.digests = seen.applied, seen.digests
    into.raft, into.elected = seen.raft, seen.elected
