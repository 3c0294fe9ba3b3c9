"""What watchers are told: filtered, in order, once each, without a gap that is not said."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import ENDINGS, NEVER, Findings, Key, Wrong, key_of
from tenure_chaos.history import Watch, Watched

GAP = "gap"

WHILE_HELD = frozenset(("renewed", "progress", "parked"))


def revisions_are_consecutive(facts: Facts) -> Findings:
    """15: every event of a tenant has its own revision, and they follow one another without a gap."""
    last: dict[str, int] = {}
    looked = 0
    for n, effect in enumerate(facts.effects):
        for event in effect.events:
            tenant, revision = event["tenant"], event["revision"]
            looked += 1
            if tenant in last and revision != last[tenant] + 1:
                yield Wrong(f"effect {n}: revision {revision} follows {last[tenant]}", key_of(event))
            last[tenant] = revision
    return looked


def watchers_are_told_in_order(facts: Facts) -> Findings:
    """15: a subscription is told revisions that rise, from the one that it asked for on: each once."""
    looked = 0
    for watch, told in _subscriptions(facts):
        looked += len(told)
        last = watch.from_revision - 1
        for item in told:
            gap = item.kind == GAP
            if item.revision < last + (not gap):
                yield Wrong(
                    f"{watch.watcher} was told revision {item.revision} after {last}", _key(watch, item)
                )
            last = max(last, item.revision)
    return looked


def watchers_are_told_what_happened(facts: Facts) -> Findings:
    """15: what a watcher is told is an event of its tenant and prefix, as in the log to the last word, after
    it happened.
    """
    if not facts.effects:
        return 0
    events = _events(facts)
    looked = 0
    for watch, told in _subscriptions(facts):
        for item in told:
            if item.kind == GAP:
                continue
            looked += 1
            real = events.get(watch.tenant, {}).get(item.revision)
            if not item.key.startswith(watch.prefix):
                yield Wrong(f"{watch.watcher} asked for {watch.prefix}* and was told of {item.key}")
            elif real is None or real[:3] != (item.kind, item.key, item.token) or _differs(item, real):
                yield Wrong(f"{watch.watcher} was told {item}, but the log has {real}", _key(watch, item))
            elif real[3] > item.at:
                yield Wrong(f"{watch.watcher} was told {item} before it happened", _key(watch, item))
    return looked


def watchers_miss_nothing(facts: Facts) -> Findings:
    """15: from where a subscription began it misses no event of its prefix, unless a gap is said; one that is
    still open at the end has been told everything in time.
    """
    if not facts.effects:
        return 0
    history = facts.history
    events = _events(facts)
    looked = 0
    for watch, told in _subscriptions(facts):
        due = [
            revision
            for revision, (_, key, *_) in events.get(watch.tenant, {}).items()
            if key.startswith(watch.prefix)
        ]
        due.sort()
        at = bisect_left(due, watch.from_revision) if watch.from_revision else None
        for item in told:
            looked += 1
            if item.kind == GAP:
                at = max(at or 0, bisect_right(due, item.revision))
                continue
            place = bisect_left(due, item.revision)
            if at is not None and place > at:
                yield Wrong(
                    f"{watch.watcher} was told revision {item.revision} without {due[at]}", _key(watch, item)
                )
            at = max(at or 0, place + 1)
        if history.complete and watch.ended_at == NEVER and at is not None:
            late = history.duration_s - history.leader_bound_s
            real = events.get(watch.tenant, {})
            missed = next(
                (revision for revision in due[at:] if watch.began_at < real[revision][3] < late), None
            )
            if missed is not None:
                yield Wrong(f"{watch.watcher} was never told revision {missed}, though it still watches")
    return looked


def leases_live_in_order_for_a_watcher(facts: Facts) -> Findings:
    """15: per key, slot or reader a watcher sees granted, then renewed, parked and taken up any number of
    times, or told of progress, then ended, and again granted.
    """
    looked = 0
    for watcher in dict.fromkeys(item.watcher for item in facts.history.watched):
        held: dict[str, int | None] = {}
        for watch, told in _subscriptions(facts, watcher):
            if not watch.from_revision:
                held.clear()
            for item in told:
                looked += 1
                if item.kind == GAP:
                    held.clear()
                    continue
                place = item.place or item.key
                known, now = place in held, held.get(place)
                if item.kind == "granted":
                    bad = known and now is not None
                    held[place] = item.token
                elif item.kind == "unparked":
                    bad = known and (now is None or now >= item.token)
                    held[place] = item.token
                elif item.kind in ENDINGS:
                    bad = known and now != item.token
                    held[place] = None
                else:
                    bad = item.kind in WHILE_HELD and known and now != item.token
                if bad:
                    holder = f"token {now} held" if now is not None else "nobody held"
                    yield Wrong(
                        f"{watcher} was told of {item.key} that {item.token} was {item.kind} while {holder}",
                        _key(watch, item),
                    )
    return looked


Told = tuple[str, str, int, float, str]


def _differs(item: Watched, real: Told) -> bool:
    """Whether it was told in other words than in the log's."""
    return bool(item.said) and item.said != real[4]


def _events(facts: Facts) -> dict[str, dict[int, Told]]:
    """By tenant and revision: kind, key and token, when it was first applied, and what else it says."""
    by_revision: dict[str, dict[int, Told]] = {}
    for effect in facts.effects:
        for event in effect.events:
            by_revision.setdefault(event["tenant"], {})[event["revision"]] = (
                event["kind"],
                event["key"],
                event["token"],
                effect.first_applied_at,
                said_of(event),
            )
    return by_revision


def said_of(event: Mapping[str, Any]) -> str:
    """What an event says beside its kind, key and token, in one word."""
    return "/".join(str(event.get(name, "")) for name in ("owner", "mode", "slot", "detail", "at_ms"))


def _subscriptions(facts: Facts, watcher: str | None = None) -> Iterator[tuple[Watch, list[Watched]]]:
    """Every subscription with what it was told."""
    told: dict[str, list[Watched]] = {}
    for item in facts.history.watched:
        told.setdefault(item.watcher, []).append(item)
    begun: dict[str, list[Watch]] = {}
    for watch in facts.history.watches:
        begun.setdefault(watch.watcher, []).append(watch)
    for name, items in told.items() if watcher is None else ((watcher, told.get(watcher, [])),):
        watches = sorted(begun.get(name, ()), key=lambda watch: watch.began_at) or [Watch(name, 0.0)]
        parts: list[list[Watched]] = [[] for _ in watches]
        for item in items:
            place = bisect_right(watches, item.at, key=lambda watch: watch.began_at) - 1
            parts[max(place, 0)].append(item)
        yield from zip(watches, parts, strict=True)


def _key(watch: Watch, item: Watched) -> Key | None:
    return (watch.tenant, item.key) if item.key else None
