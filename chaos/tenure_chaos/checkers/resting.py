"""Leases that change hands, that rest, and that end without progress."""

from tenure_chaos.checkers.facts import Facts, Life
from tenure_chaos.checkers.reading import NEVER, NOT_YET, Findings, Wrong, grants_told, key_of


def a_handover_leaves_no_gap(facts: Facts) -> Findings:
    """4: in the entry of a handover the old token ends and a greater one begins in the same place, of the
    session that was named, before anybody else can have it.
    """
    looked = 0
    for n, effect in enumerate(facts.effects):
        if effect.result != "HandedOver" or effect.result_fields["replayed"]:
            continue
        looked += 1
        [grant] = grants_told(effect)
        lease = grant["lease"]
        key = key_of(lease)
        ends = [place for place, event in enumerate(effect.events) if event["kind"] == "handed_over"]
        pair = effect.events[ends[0] : ends[0] + 2] if ends else ()
        told = [(event["kind"], event["token"]) for event in pair]
        together = [kind for kind, _ in told] == ["handed_over", "granted"]
        if not together or any(
            (key_of(event), event.get("slot", 0)) != (key, lease["slot"]) for event in pair
        ):
            yield Wrong(f"effect {n} is a handover of {key[1]} with {told}", key)
        elif pair[1]["token"] != lease["token"] or lease["session_id"] != effect.fields["to_session_id"]:
            yield Wrong(f"effect {n} hands {key[1]} over to another session than it was asked to", key)
        elif lease["mode"] != "shared" and told[0][1] >= told[1][1]:
            yield Wrong(f"effect {n} hands {key[1]} over with token {told[1][1]} after {told[0][1]}", key)
    return looked


def taking_up_brings_a_new_token(facts: Facts) -> Findings:
    """3: who takes up a parked lease gets a token above the one that it had; and only who named that token is
    given one though it was not parked, or not yet.
    """
    looked = 0
    for life in facts.lives:
        if life.ending != "unparked":
            continue
        looked += 1
        after = next((later for later in facts.by_key[life.key] if later.began == life.ended), None)
        if after is None or after.token <= life.token:
            token = after.token if after is not None else 0
            yield Wrong(f"effect {life.ended} takes up {life.name} with token {token}", life.key)
        elif not life.parked and facts.effects[life.ended].fields.get("token") != life.token:
            yield Wrong(f"effect {life.ended} takes up {life.name}, which was not parked", life.key)
    return looked


def parked_leases_end_at_their_limit(facts: Facts) -> Findings:
    """5: a parked lease keeps its key until its limit, and no longer: from then on it can neither be taken up
    nor parked again. It is parked only by who names the token that it has then, if any is named.
    """
    looked = 0
    for life in facts.lives:
        limits = [(n, facts.now_ms[n] + facts.effects[n].fields["limit_ms"]) for n in life.parked]
        for place, (n, due_ms) in enumerate(limits):
            looked += 1
            told = facts.session_deadline_ms((life.key[0], life.session_at(n)), n)
            until = limits[place + 1][0] if place + 1 < len(limits) else life.ended
            if facts.effects[n].fields.get("token", life.token) not in (None, life.token):
                yield Wrong(f"effect {n} parks {life.name} for a token of before", life.key)
            elif told != due_ms:
                yield Wrong(
                    f"effect {n} parks {life.name} until {due_ms}, and tells that it ends at {told}", life.key
                )
            elif until == NOT_YET:
                continue
            elif facts.now_ms[until] >= due_ms and (place + 1 < len(limits) or life.ending == "unparked"):
                yield Wrong(f"effect {until} finds {life.name} parked, over since {due_ms}", life.key)
            elif life.ending == "expired" and until == life.ended and life.ended_ms < due_ms:
                yield Wrong(f"effect {until} ends {life.name}, parked until {due_ms}", life.key)
    return looked


def leases_end_without_progress(facts: Facts) -> Findings:
    """8: a lease that demands progress ends when none was told in time, whether it is renewed or not; and it
    is said to have ended so only then.
    """
    looked = 0
    for life in facts.lives:
        if not life.progress_ms:
            if life.detail == "no_progress" and life.lease_id:
                yield Wrong(f"{life.name} ended for want of progress, which it need not tell", life.key)
            continue
        looked += 1
        if life.ended == NOT_YET or not life.signs:
            continue
        due_ms = facts.progress_deadline_ms(life, life.ended - 1)
        yield from _ended_in_time(facts, life, due_ms)
    return looked


def _ended_in_time(facts: Facts, life: Life, due_ms: float) -> Findings:
    late = life.ended_ms >= due_ms
    if life.detail == "no_progress" and not late:
        yield Wrong(f"effect {life.ended} ends {life.name} for want of progress, due at {due_ms}", life.key)
    elif late and life.ending != "expired" and life.detail != "session_closed":
        yield Wrong(f"effect {life.ended} finds {life.name} held, without progress since {due_ms}", life.key)
    elif life.ending == "expired" and late and life.detail != "no_progress":
        session_ms = facts.session_deadline_ms((life.key[0], life.session_at(life.ended)), life.ended)
        if session_ms == NEVER or due_ms < session_ms:
            yield Wrong(f"effect {life.ended} ends {life.name} and does not say for want of what", life.key)
    return 0
