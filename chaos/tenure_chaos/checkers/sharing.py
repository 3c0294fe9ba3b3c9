"""Keys that more than one hold at a time, and sets of keys that go together."""

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.queues import Waiter
from tenure_chaos.checkers.reading import ENDINGS, Findings, Key, Wrong, key_of, leases_told, place_of


def readers_and_writers_take_turns(facts: Facts) -> Findings:
    """4: along the log a key is held by one writer, or by readers who all have one token, or by permits, and
    never by two kinds of them.
    """
    held: dict[Key, dict[Key, tuple[str, int]]] = {}
    looked = 0
    for n, effect in enumerate(facts.effects):
        for event in effect.events:
            key = key_of(event)
            if key not in facts.crowded:
                continue
            place, kind, now = place_of(event), event["kind"], (event.get("mode", ""), event["token"])
            if kind == "granted":
                looked += 1
                beside = held.setdefault(key, {})
                wrong = next((other for other in beside.values() if not _go_together(now, other)), None)
                if wrong is not None:
                    yield Wrong(
                        f"effect {n} grants {key[1]} as {now[0]} {now[1]} beside {wrong[0]} {wrong[1]}", key
                    )
                beside[place] = now
            elif kind == "unparked":
                held.setdefault(key, {})[place] = now
            elif kind in ENDINGS:
                held.get(key, {}).pop(place, None)
    return looked


def _go_together(one: tuple[str, int], other: tuple[str, int]) -> bool:
    return one[0] == other[0] and (one[0] == "permit" or (one[0] == "shared" and one[1] == other[1]))


def sets_are_granted_whole(facts: Facts) -> Findings:
    """10: all keys of a set are granted in one entry, or none; and whoever asked for it is told of all."""
    seen: set[tuple[int, str, tuple[str, ...]]] = set()
    looked = 0
    for served in facts.served:
        keys = _keys_wanted(facts, served.n, served.waiter, direct=served.direct)
        place = (served.n, served.owner, keys)
        if len(keys) < 2 or not served.sure or place in seen:
            continue
        seen.add(place)
        looked += 1
        events = facts.effects[served.n].events
        got = [
            event["key"] for event in events if (event["kind"], event["owner"]) == ("granted", served.owner)
        ]
        if not set(keys) <= set(got):
            yield Wrong(f"effect {served.n} grants {', '.join(got)} of the set {', '.join(keys)}", served.key)
    for call in facts.answered("acquire"):
        if call.asked.get("keys") and call.answer.get("status") == "granted":
            looked += 1
            told = [lease["key"] for lease in leases_told(call)]
            if told != list(call.asked["keys"]):
                yield Wrong(f"call {call.number} asked for {call.asked['keys']} and was told of {told}")
    return looked


def _keys_wanted(facts: Facts, n: int, waiter: Waiter | None, *, direct: bool) -> tuple[str, ...]:
    if waiter is not None:
        return waiter.keys
    return tuple(facts.effects[n].fields["keys"]) if direct else ()
