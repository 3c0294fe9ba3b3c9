"""Guarded writes: to the service's own records, and to registers outside it."""

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import Findings, Key, Wrong, guard_of, key_of, place_of
from tenure_chaos.history import RegisterWrite


def accepted_tokens_never_fall(facts: Facts) -> Findings:
    """7: at a guarded register accepted tokens never fall, even with paused writers."""
    greatest: dict[str, RegisterWrite] = {}
    looked = 0
    for write in facts.history.writes:
        if not write.guarded or not write.accepted:
            continue
        looked += 1
        before = greatest.setdefault(write.register, write)
        if write.token < before.token:
            yield Wrong(
                f"{write.register} accepted token {write.token} of {write.client} "
                f"at {write.arrived_at:.3f} s after token {before.token} of {before.client}"
            )
        else:
            greatest[write.register] = write
    return looked


def no_update_is_lost(facts: Facts) -> Findings:
    """7: no acknowledged update of a guarded register is lost. A write that is accepted finds what it had
    read, or what the same holder has written since; and what was accepted stands until the next is.
    """
    last: dict[str, RegisterWrite] = {}
    looked = 0
    for write in facts.history.writes:
        if not write.guarded:
            continue
        looked += 1
        before = last.get(write.register)
        if before is not None and write.found != before.value:
            yield Wrong(
                f"{write.register} had {write.found} at {write.arrived_at:.3f} s, but {before.value} of "
                f"{before.client} had been accepted last"
            )
        elif write.accepted and write.read != write.found and not _own(before, write):
            yield Wrong(
                f"{write.client} with token {write.token} had read {write.read} of {write.register} "
                f"and replaced {write.found} at {write.arrived_at:.3f} s"
            )
        if write.accepted:
            last[write.register] = write
    return looked


def _own(before: RegisterWrite | None, write: RegisterWrite) -> bool:
    return before is not None and (before.client, before.token) == (write.client, write.token)


def commits_obey_the_floor(facts: Facts) -> Findings:
    """7: along the log no commit is accepted with a token below that of a grant before it, in a pool of one
    of the same slot, nor, once the key was broken, with that of any grant before.
    """
    floor: dict[Key, int] = {}
    granted: dict[Key, int] = {}
    looked = 0
    for n, effect in enumerate(facts.effects):
        if effect.result == "Broken":
            broken = (effect.fields["tenant"], effect.fields["key"])
            for key in granted:
                if key[0] == broken[0] and key[1].partition("#")[0] == broken[1]:
                    floor[key] = granted[key] + 1
        for event in effect.events:
            kind, token = event["kind"], event["token"]
            key = facts.guard_written(effect) if kind == "committed" else guard_of(place_of(event))
            if kind in ("granted", "unparked"):
                floor[key] = granted[key] = max(granted.get(key, 0), token)
            elif kind == "committed":
                looked += 1
                if token < floor.get(key, 0):
                    yield Wrong(f"effect {n} accepts token {token}, and the floor was above it", key)
    return looked


def commits_obey_their_mode(facts: Facts) -> Findings:
    """7: along the log a guard of mode once accepts one write a token, one of mode sequence only writes in
    order, and the mode of a key's guard stays as its first commit fixed it.
    """
    last: dict[tuple[Key, int], tuple[int, int]] = {}
    modes: dict[Key, str] = {}
    looked = 0
    for n, effect in enumerate(facts.effects):
        for event in effect.events:
            if event["kind"] != "committed":
                continue
            looked += 1
            key, mode = key_of(event), effect.fields["mode"]
            place = (key, effect.fields["slot"])
            write = (event["token"], effect.fields["seq"] or 0)
            before = last.get(place, (0, -1))
            if modes.setdefault(key, mode) != mode:
                yield Wrong(f"effect {n} commits in mode {mode}, the guard's is {modes[key]}", key)
            elif mode == "once" and write[0] <= before[0]:
                yield Wrong(f"effect {n} accepts token {write[0]} again", key)
            elif mode == "sequence" and write <= before:
                yield Wrong(f"effect {n} accepts {write} after {before}", key)
            last[place] = max(before, write)
    return looked


def live_commits_are_of_live_leases(facts: Facts) -> Findings:
    """7: along the log a commit that requires a live lease is accepted only while that lease holds, and is
    not parked.
    """
    looked = 0
    for n, effect in enumerate(facts.effects):
        if not effect.fields.get("require_live"):
            continue
        for event in effect.events:
            if event["kind"] != "committed":
                continue
            looked += 1
            key = key_of(event)
            life = facts.life_of_lease(key[0], effect.fields["lease_id"], n)
            if life is None or life.token != event["token"]:
                life = facts.life(facts.guard_written(effect), event["token"])
            if life is None or not life.holds(n) or facts.over(life, n) or life.rests(n):
                yield Wrong(f"effect {n} accepts token {event['token']}, whose lease does not live", key)
    return looked
