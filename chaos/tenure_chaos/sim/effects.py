"""What the log did, seen at the replica that applied each entry first; and that all replicas agree."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from tenure_chaos.history import Effect, History
from tenure_chaos.sim.node import SimNode
from tenure_cluster.lease.commands import decode
from tenure_cluster.service.replica import Replica


class Observer(Protocol):
    """Who is told."""

    history: History

    def violation(self, rule: str, what: str) -> None: ...
    def note(self, text: str) -> None: ...
    def count(self, what: str, by: int = 1) -> None: ...
    def now(self) -> float: ...


class WatchedReplica(Replica):
    """A replica that tells what it applies."""

    def __init__(self, effects: "Effects", node: SimNode) -> None:
        super().__init__()
        self._effects = effects
        self._node = node

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
        self._effects.applied(self._node, self, index, commands, results, each)
        if events and self.on_events is not None:
            self.on_events(events)
        if self.on_applied is not None:
            self.on_applied(asked, results, events)
        return results

    def restore(self, chunks: Any, index: int) -> None:
        super().restore(chunks, index)
        if self._node.starting:
            self._effects.world.count("snapshot restored at a start")


class Effects:
    """Writes down the effects of every command, once, in the order of the log."""

    def __init__(self, world: Observer, digest_every: int) -> None:
        self.world = world
        self.digest_every = digest_every
        self.last_index = 0
        self._digests: dict[int, tuple[str, str]] = {}
        self._stamped: dict[tuple[int, bytes], float] = {}

    def stamped(self, at_ms: int, command: bytes) -> None:
        """A leader has stamped a command and proposed it."""
        self._stamped.setdefault((at_ms, command), self.world.now())

    def applied(
        self,
        node: SimNode,
        replica: WatchedReplica,
        index: int,
        commands: Sequence[tuple[int, bytes]],
        results: Sequence[Any],
        events: Sequence[Sequence[Any]],
    ) -> None:
        """A node has applied an entry that holds commands."""
        if index > self.last_index:
            self.last_index = index
            for place, (command, result, happened) in enumerate(zip(commands, results, events, strict=True)):
                self._record(node, index, place, *command, result, happened)
        if index % self.digest_every == 0:
            digest = replica.digest()
            self.world.history.digests.append((node.name, index, digest))
            first = self._digests.setdefault(index, (node.name, digest))
            if first[1] != digest:
                self.world.violation("equal digests", f"{first[0]} and {node.name} differ at {index}")

    def _record(
        self, node: SimNode, index: int, place: int, at_ms: int, data: bytes, result: Any, events: Any
    ) -> None:
        world, command = self.world, decode(data)
        effect = Effect(
            index=index,
            place=place,
            first_applied_at=world.now(),
            at_ms=at_ms,
            command=type(command).__name__,
            fields=plain(command),
            result=type(result).__name__,
            result_fields=plain(result),
            events=tuple(plain(event) for event in events),
            stamped_at=self._stamped.pop((at_ms, data), -1.0),
        )
        world.history.effects.append(effect)
        world.count(f"result {effect.command} {effect.result}")
        told = "".join(f", {event['kind']} {event['key']} {event['token']}" for event in effect.events)
        world.note(f"log {index}.{place} at {at_ms} ms: {effect.command} {effect.result}{told}")
        for event in effect.events:
            world.count(f"event {event['kind']}")
            if event["kind"] == "granted":
                world.count(f"granted {event['mode']}")
        for mark, reached in _MARKS.items():
            if reached(effect):
                world.count(mark)
        if node.short_of_space and (effect.command, effect.result) in _FROM_THE_RESERVE:
            world.count(f"{effect.result} while a disk is full")


_FROM_THE_RESERVE = (("Renew", "Renewed"), ("Release", "Released"))


def _grants(effect: Effect) -> int:
    return len(effect.result_fields["grants"]) if effect.result == "Granted" else 0


def _count(effect: Effect, kind: str, mode: str = "") -> int:
    return sum(event["kind"] == kind and mode in ("", event["mode"]) for event in effect.events)


def _follows(effect: Effect, kind: str, mode: str, next_mode: str) -> bool:
    """Whether the end of a lease made room for a waiter on its key."""
    ended = [event["key"] for event in effect.events if (event["kind"], event["mode"]) == (kind, mode)]
    return any(
        event["kind"] == "granted" and event["mode"] == next_mode and event["key"] in ended
        for event in effect.events
    )


def _handed_to_waiter(effect: Effect) -> bool:
    """Whether it is answered to a request that waited, whose id is not the lease's."""
    if effect.result != "HandedOver" or effect.result_fields["replayed"]:
        return False
    return bool(effect.result_fields["grant"]["lease"]["request_id"] != effect.fields["new_lease_id"])


def _has(effect: Effect, kind: str) -> bool:
    return any(event["kind"] == kind for event in effect.events)


_MARKS: dict[str, Callable[[Effect], bool]] = {
    "lease expired by command": lambda effect: effect.command == "Expire" and _has(effect, "expired"),
    "waiter granted by a release": lambda effect: effect.command == "Release" and _has(effect, "granted"),
    "waiter granted by an expiry": lambda effect: effect.command == "Expire" and _has(effect, "granted"),
    "waiter granted by a break": lambda effect: effect.command == "Break" and _has(effect, "granted"),
    "grant replayed": lambda effect: bool(effect.result_fields.get("replayed")),
    "commit replayed": lambda effect: effect.result == "Committed" and not _has(effect, "committed"),
    "stale commit refused": lambda effect: effect.result_fields.get("code") == "stale_token",
    "set granted at once": lambda effect: effect.command == "Acquire" and _grants(effect) > 1,
    "set granted after waiting": lambda effect: effect.command == "Claim" and _grants(effect) > 1,
    "set lost": lambda effect: _count(effect, "expired") > 1 and len(effect.fields.get("items", ())) == 1,
    "readers granted together": lambda effect: _count(effect, "granted", "shared") > 1,
    "writer granted by the last reader": lambda effect: _follows(effect, "released", "shared", "exclusive"),
    "readers granted by a writer": lambda effect: _follows(effect, "released", "exclusive", "shared"),
    "slot handed on": lambda effect: _follows(effect, "released", "permit", "permit"),
    "slot handed over": lambda effect: _count(effect, "handed_over", "permit") > 0,
    "slot parked": lambda effect: _count(effect, "parked", "permit") > 0,
    "slot taken up again": lambda effect: _count(effect, "unparked", "permit") > 0,
    "slot granted by a resize": lambda effect: effect.result == "Resized" and _has(effect, "granted"),
    "permits out beyond the slots of a resized pool": lambda effect: (
        effect.result == "Resized" and effect.result_fields["holders"] > effect.result_fields["slots"]
    ),
    "set left a resized pool": lambda effect: effect.result == "Resized" and _has(effect, "queue_left"),
    "handed over to a waiter": lambda effect: _handed_to_waiter(effect),
    "lease ended without progress": lambda effect: any(
        event["detail"] == "no_progress" for event in effect.events
    ),
    "waiting would close a cycle": lambda effect: effect.result == "Deadlock",
}


def content_name(command: bytes) -> str:
    """A short name of an entry's content."""
    return hashlib.sha256(command).hexdigest()[:8]


def plain(value: Any) -> Any:
    """A struct of the machine, and all within, as plain data: a dictionary by field."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
