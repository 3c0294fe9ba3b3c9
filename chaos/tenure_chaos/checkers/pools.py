"""Pools of permits: how many are out, in which slots, and what an administrator makes of their number."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.queues import Queues
from tenure_chaos.checkers.reading import ENDINGS, Findings, Key, Wrong, key_of, place_of, refused_key
from tenure_chaos.history import CallRecord, Effect

NOT_IN_USE: Final = 0
"""The number of slots of a pool that nobody holds and nobody waits for."""


def pools_keep_to_their_slots(facts: Facts) -> Findings:
    """4: along the log no more permits of a pool are granted than it has slots, each gets a slot below their
    number, and that number stays as it is while one is out, unless an administrator changes it. A handover
    keeps its slot.
    """
    asked = {(served.n, served.place): served.waiter for served in facts.served}
    held: dict[Key, dict[Key, None]] = {}
    slots: dict[Key, int] = {}
    looked = 0
    for n, effect in enumerate(facts.effects):
        for event in effect.events:
            key, place = key_of(event), place_of(event)
            if event.get("mode") != "permit" or key not in facts.pools:
                continue
            if event["kind"] in ENDINGS:
                held.get(key, {}).pop(place, None)
            elif event["kind"] == "resized":
                slots[key] = int(event["detail"])
            elif event["kind"] == "granted":
                looked += 1
                out = held.setdefault(key, {})
                waiter = asked.get((n, place))
                if effect.command == "Handover" and waiter is None:
                    if not _was_ended(effect, place):
                        yield Wrong(f"effect {n} hands slot {event['slot']} of {key[1]} over, not held", key)
                    out[place] = None
                    continue
                wanted = waiter.slots if waiter is not None else effect.fields.get("slots")
                if wanted is None:
                    continue  # To a waiter that isn't known.
                if out and wanted != slots.get(key, wanted):
                    yield Wrong(f"effect {n} makes {wanted} slots of {slots[key]} of {key[1]}, held", key)
                elif len(out) >= wanted or not 0 <= event["slot"] < wanted:
                    yield Wrong(f"effect {n} grants slot {event['slot']} of the {wanted} of {key[1]}", key)
                slots[key] = wanted
                out[place] = None
    return looked


def _was_ended(effect: Effect, place: Key) -> bool:
    return any(event["kind"] == "handed_over" and place_of(event) == place for event in effect.events)


def a_pool_is_resized_as_it_is_told(facts: Facts) -> Findings:
    """4: only a pool in use gets another number of slots, from the number that it had, and nobody loses a
    permit by it; only a pool that is not in use is said not to be.
    """
    looked = 0
    numbers = _Numbers()
    for n, effect in enumerate(facts.effects):
        if effect.command != "Resize":
            if any(event["kind"] == "resized" for event in effect.events):
                yield Wrong(f"effect {n}, {effect.command}, resizes a pool", key_of(effect.events[0]))
            numbers.apply(n, effect)
            continue
        looked += 1
        key = (effect.fields["tenant"], effect.fields["key"])
        before = numbers.of(key)
        numbers.apply(n, effect)
        if effect.result == "NotHeld" and numbers.of(key) != NOT_IN_USE:
            yield Wrong(
                f"effect {n} says that {key[1]} is not in use, which has {numbers.of(key)} slots", key
            )
        elif effect.result == "Resized":
            what = _untrue(effect, before, numbers.of(key), len(numbers.out.get(key, ())))
            if what:
                yield Wrong(f"effect {n} resizes {key[1]}: {what}", key)
    return looked


def _untrue(effect: Effect, before: int, now: int, out: int) -> str:
    """What is wrong with a number that was changed; empty if nothing is."""
    asked, told = effect.fields["slots"], effect.result_fields
    details = [event["detail"] for event in effect.events if event["kind"] == "resized"]
    lost = [event for event in effect.events if event["kind"] in ENDINGS - {"expired"}]
    if before == NOT_IN_USE:
        return "it was not in use"
    if told["before"] != before:
        return f"it had {before} slots, and not {told['before']}"
    if told["slots"] != asked or now not in (asked, NOT_IN_USE):
        return f"{asked} slots were asked for, and it has {now}"
    if details != ([str(asked)] if before != asked else []):
        return f"it had {before} slots, and watchers are told of {details}"
    if told["holders"] != out:
        return f"{out} permits are out, and not {told['holders']}"
    return f"token {lost[0]['token']} was {lost[0]['kind']} by it" if lost else ""


def conflicts_name_the_number_in_force(facts: Facts) -> Findings:
    """11: an acquire of a permit is refused for the number of slots that it names only while the pool has the
    number that is told.
    """
    refused = [call for call in facts.refused("acquire", "mode_conflict") if "present_slots" in call.answer]
    if not refused or not facts.effects:
        return 0
    timelines = _timelines(facts)
    for call in refused:
        key, (first, last) = refused_key(call), facts.window(call)
        told = call.answer["present_slots"]
        if told == call.asked.get("slots") or told not in _between(timelines.get(key, []), first, last):
            yield Wrong(f"call {call.number} was told that {key[1]} has {told} slots, at no time of it", key)
    return len(refused)


def guard_was_forgotten(facts: Facts, call: CallRecord) -> bool:
    """Whether a commit may have been refused as stale for want of a guard: when a pool that nobody holds
    begins anew with another number of slots, the guards of its other slots are forgotten.
    """
    if call.code != "stale_token" or call.answer.get("floor") != 0:
        return False
    own = facts.life(facts.place(call), call.asked["token"])
    if own is None or own.raw not in facts.pools:
        return False
    last = facts.window(call)[1]
    return any(
        own.began < life.began <= last
        and not any(other.holds(life.began - 1) for other in facts.by_raw[own.raw])
        for life in facts.by_raw[own.raw]
    )


def _timelines(facts: Facts) -> dict[Key, list[tuple[int, int]]]:
    """By pool: (effect, number of slots from there on)."""
    numbers = _Numbers()
    timelines: dict[Key, list[tuple[int, int]]] = {}
    for n, effect in enumerate(facts.effects):
        numbers.apply(n, effect)
        for key in dict.fromkeys(key_of(event) for event in effect.events):
            if key in facts.pools:
                timelines.setdefault(key, []).append((n, numbers.of(key)))
    return timelines


def _between(timeline: list[tuple[int, int]], first: int, last: int) -> Iterator[int]:
    """The numbers that were in force after some effect from first to last."""
    place = bisect_right(timeline, first, key=lambda item: item[0])
    yield from (number for n, number in timeline[max(place - 1, 0) :] if n <= last)


class _Numbers:
    """How many slots each pool has along the log: as its holders have it, else as who waits first."""

    def __init__(self) -> None:
        self.out: dict[Key, dict[Key, int]] = {}
        """By pool and place: of how many slots it was granted, or as many as there are since."""
        self._queues = Queues()

    def apply(self, n: int, effect: Effect) -> None:
        if not effect.events:
            return
        served = {one.place: one.waiter for one in self._queues.apply(n, effect)}
        handed_over = NOT_IN_USE
        for event in effect.events:
            if event.get("mode") != "permit":
                continue
            place, kind = place_of(event), event["kind"]
            out = self.out.setdefault(key_of(event), {})
            if kind == "granted":
                waiter = served.get(place)
                out[place] = waiter.slots if waiter else effect.fields.get("slots") or handed_over
            elif kind == "resized":
                self.out[key_of(event)] = dict.fromkeys(out, int(event["detail"]))
            elif kind in ENDINGS:
                handed_over = out.pop(place, NOT_IN_USE)

    def of(self, key: Key) -> int:
        out = self.out.get(key)
        if out:
            return next(iter(out.values()))
        waiting = self._queues.queues.get(key, ())
        return next((waiter.slots for waiter in waiting if waiter.mode == "permit"), NOT_IN_USE)
