"""What a node's process writes down about itself: what it applies, and where its consensus stands.

One record after another, each four bytes of length and then MessagePack, by one ``write`` each, so what was
written before a SIGKILL is there. An entry is written down before anybody is answered. Times are nanoseconds
of CLOCK_MONOTONIC, which all processes of a machine share.
"""

import asyncio
import os
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure_chaos.sim.effects import content_name, plain
from tenure_cluster.lease.commands import decode
from tenure_cluster.raft import Raft
from tenure_cluster.service.replica import Replica

LOOK_S: Final = 0.02
SAY_S: Final = 0.5
"""How often it says where it stands though nothing but indexes has changed."""
DIGEST_EVERY: Final = 50
"""Entries."""

_LENGTH: Final = struct.Struct(">I")
_encode: Final = msgspec.msgpack.Encoder().encode


class Observer:
    """Of one process of one node."""

    def __init__(self, path: Path, node: str, incarnation: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        # A process that was killed in the midst of a record must not have this one's read as its end.
        os.ftruncate(self._file, _whole(path.read_bytes()))
        self._raft: Raft | None = None
        self._term = 0
        self._said: tuple[object, ...] = ()
        self._said_at = 0.0
        self._write({"is": "start", "node": node, "incarnation": incarnation})

    def _write(self, record: dict[str, Any]) -> None:
        data = _encode({"at": time.monotonic_ns(), **record})
        os.write(self._file, _LENGTH.pack(len(data)) + data)

    def begin(self, raft: Raft) -> None:
        """The node has recovered and takes part."""
        self._raft = raft

    def applied(
        self, index: int, commands: Sequence[tuple[int, bytes]], results: Sequence[Any], events: Any
    ) -> None:
        """An entry was applied, with these results and events for each command."""
        effects = []
        content = b""
        for (at_ms, data), result, happened in zip(commands, results, events, strict=True):
            command = decode(data)
            content += data
            effects.append(
                [
                    at_ms,
                    type(command).__name__,
                    plain(command),
                    type(result).__name__,
                    plain(result),
                    [plain(event) for event in happened],
                ]
            )
        self._write({"is": "applied", "index": index, "content": content_name(content), "effects": effects})

    def digest(self, index: int, digest: str) -> None:
        self._write({"is": "digest", "index": index, "digest": digest})

    async def look_for_ever(self) -> None:
        """Say what has changed in consensus."""
        while True:
            self._look()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        raft = self._raft
        journal = None if raft is None else raft._journal
        if raft is None or journal is None:
            return
        status, now = raft.status(), time.monotonic()
        voted_for = journal._log.voted_for or ""
        said = (status.role, status.leader_id, status.term, voted_for)
        if said == self._said and now - self._said_at < SAY_S:
            return
        self._said, self._said_at = said, now
        self._write(
            {
                "is": "raft",
                "role": status.role,
                "leader": status.leader_id or "",
                "term": status.term,
                # A vote that was just asked for may be of the next term already; it is that of this one.
                "voted_for": voted_for if journal._log.term == status.term else "",
                "commit": status.commit_index,
                "applied": status.applied_index,
                "snapshot": status.snapshot_index,
            }
        )


class ObservedReplica(Replica):
    """A replica that has written down what it applies."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer

    def apply(self, index: int, commands: Sequence[tuple[int, bytes]]) -> Sequence[object]:
        machine = self._machine
        asked, results, events, each = [], [], [], []
        for at_ms, data in commands:
            command = decode(data)
            applied = machine.apply(at_ms, command)
            asked.append(command)
            results.append(applied.result)
            events += applied.events
            each.append(applied.events)
        self.applied_index = index
        self._observer.applied(index, commands, results, each)
        if index % DIGEST_EVERY == 0:
            self._observer.digest(index, self.digest())
        if events and self.on_events is not None:
            self.on_events(events)
        if self.on_applied is not None:
            self.on_applied(asked, results, events)
        return results


def _whole(data: bytes) -> int:
    """How many of the bytes are whole records."""
    place = 0
    while place + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        if place + _LENGTH.size + length > len(data):
            break
        place += _LENGTH.size + length
    return place


def records(path: Path) -> Iterator[dict[str, Any]]:
    """What was written down; of a last record that is torn, nothing."""
    data = path.read_bytes()
    decode_record = msgspec.msgpack.Decoder(dict[str, Any]).decode
    place = 0
    while place + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if place + length > len(data):
            return
        yield decode_record(data[place : place + length])
        place += length
