"""Many leases at once, and counters of the work that is done over them."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from tenure._requests import Request
from tenure_chaos.sim.actor import Actor
from tenure_chaos.sim.node import CLUSTER
from tenure_chaos.sim.stage import Stage
from tenure_cluster.lease.commands import Acquire
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.snapshot import dump
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.raft.journal import Journal
from tenure_cluster.raft.messages import encode_entry
from tenure_cluster.raft.snapshot_file import SnapshotStore
from tenure_cluster.service.replica import Replica

BATCH = 1_000


async def acquire_many(actor: Actor, count: int, *, ttl_ms: int) -> None:
    """Leases of crowd/0, crowd/1, … in as few calls as possible."""
    for first in range(0, count, BATCH):
        operations = [
            {
                "op": "acquire",
                "key": f"crowd/{number}",
                "owner": actor.name,
                "ttl_ms": ttl_ms,
                "request_id": f"crowd-{number}",
            }
            for number in range(first, min(first + BATCH, count))
        ]
        batch = Request("batch", "POST", "/v1/batch", dict[str, Any], False, False, {"ops": operations})
        said = await actor.ask(batch)
        assert said.ok, said
        assert {result["status"] for result in said.answer["results"]} == {200}


@cache
def state_with(count: int, ttl_ms: int) -> list[bytes]:
    """A state in which crowd/0, crowd/1, … are held, as a snapshot's chunks."""
    machine = LeaseMachine()
    for number in range(count):
        machine.apply(
            1,
            Acquire(
                tenant="default",
                keys=[f"crowd/{number}"],
                lease_ids=[f"lease-{number}"],
                owner="crowd",
                session_id=None,
                ttl_ms=ttl_ms,
                request_id=f"crowd-{number}",
                remember=True,
                wait=False,
                mode="exclusive",
                slots=1,
                grace_ms=0,
                if_held="return",
                metadata={},
                wall_ms=1,
            ),
        )
    return list(dump(machine.table))


def begin_with(stage: Stage, count: int, *, ttl_ms: int) -> None:
    """Before the nodes start: let each have a journal, and a snapshot with so many leases, on its disk."""
    for node in stage.world.nodes.values():
        journal = Journal.open(
            node.disk,
            node.clock,
            cluster_id=CLUSTER,
            node_id=node.name,
            segment_bytes=stage.world.options.segment_bytes,
            snapshot=None,
        )
        journal.sync_now()
        journal.close()
        writer = SnapshotStore(node.disk, CLUSTER).writer((encode_entry([]), 2, 0), (encode_entry([]), 1, 0))
        for chunk in state_with(count, ttl_ms):
            writer.append(chunk)
        writer.commit()


class Visits:
    """How many rows of a table were looked at by going through its dictionaries."""

    def __init__(self) -> None:
        self.rows = 0

    def watch(self, table: LeaseTable) -> None:
        """Count from now on."""
        for name in ("sessions", "leases", "keys", "waiters", "records"):
            setattr(table, name, _Watched(getattr(table, name), self))
        for by_tenant in (table.indexes.holders, table.indexes.requests):
            for tenant in list(by_tenant):
                by_tenant[tenant] = _Watched(by_tenant[tenant], self)


class _Watched(dict[Any, Any]):
    def __init__(self, content: dict[Any, Any], visits: Visits) -> None:
        super().__init__(content)
        self._visits = visits

    def __iter__(self) -> Iterator[Any]:
        return self._counted(super().__iter__())

    def keys(self) -> Any:
        return list(self._counted(super().keys()))

    def values(self) -> Any:
        return list(self._counted(super().values()))

    def items(self) -> Any:
        return list(self._counted(super().items()))

    def _counted(self, rows: Iterable[Any]) -> Iterator[Any]:
        for row in rows:
            self._visits.rows += 1
            yield row


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    """How many Python functions were called: the one number in the list, at the end."""
    counted = [0]

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            counted[0] += 1

    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(None)


def watch_dumps(monkeypatch: pytest.MonkeyPatch, stage: Stage) -> Counter[int]:
    """The bytes of snapshots that each callback of the loop has encoded, by its number."""
    encoded: Counter[int] = Counter()
    snapshot = Replica.snapshot

    def watched(self: Replica) -> Iterator[bytes]:
        for chunk in snapshot(self):
            encoded[stage.world.loop.steps] += len(chunk)
            yield chunk

    monkeypatch.setattr(Replica, "snapshot", watched)
    return encoded
