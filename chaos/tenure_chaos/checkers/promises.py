"""What a renewal and a release promise."""

import itertools

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import ENDINGS, Findings, Wrong, called_key, key_of, place_of


def a_renewal_is_of_the_current_grant(facts: Facts) -> Findings:
    """8: along the log a lease is renewed only while it is the current grant and its deadline lies ahead."""
    looked = 0
    for n, effect in enumerate(facts.effects):
        if effect.result != "Renewed":
            continue
        looked += 1
        lease = effect.result_fields["grant"]["lease"]
        key = place_of(lease)
        life = facts.life(key, lease["token"])
        if effect.fields["lease_id"] is not None and lease["lease_id"] != effect.fields["lease_id"]:
            yield Wrong(f"effect {n} renews another lease than it was asked to: {lease['lease_id']}", key)
        elif life is None or not life.holds(n):
            yield Wrong(f"effect {n} renews token {lease['token']} of {key[1]}, which does not hold", key)
        elif facts.deadline_ms(life, n - 1) <= facts.now_ms[n]:
            before = facts.deadline_ms(life, n - 1)
            yield Wrong(f"effect {n} at {facts.now_ms[n]} renews {life.name}, over since {before}", key)
    return looked


def a_renewal_never_shortens(facts: Facts) -> Findings:
    """8: along the log the deadline of a session, and so of its leases, never moves back."""
    looked = 0
    for (tenant, session_id), given in facts.deadlines.items():
        looked += len(given) - 1
        for (earlier, before), (n, deadline_ms) in itertools.pairwise(given):
            if deadline_ms < before:
                life = facts.by_lease.get((tenant, session_id))
                yield Wrong(
                    f"effect {n} moves the deadline of {life.name if life else session_id} back from "
                    f"{before}, which effect {earlier} told, to {deadline_ms}",
                    life.key if life else None,
                )
    return looked


def a_renewal_answers_the_same_grant(facts: Facts) -> Findings:
    """8: a renewal is ok only for a lease that had not ended when it was asked for, and tells its token."""
    looked = 0
    for call in facts.answered("renew"):
        lease = call.answer.get("lease")
        if lease is None:
            continue
        looked += 1
        key = (call.tenant, lease["key"])
        lives = facts.lives_of_lease(call.tenant, call.asked.get("lease_id", ""))
        life = lives[-1] if lives else None
        token = call.asked.get("token", life.token if life is not None else lease["token"])
        taken_up = any(life.token == lease["token"] > token for life in lives)
        if (lease["token"] != token and not taken_up) or called_key(call) not in (key, (call.tenant, "")):
            yield Wrong(
                f"call {call.number} renewed token {token} of {called_key(call)[1]}, but was answered token "
                f"{lease['token']} of {key[1]}",
                key,
            )
        elif life is not None and life.ended_at < call.invoked_at:
            yield Wrong(f"call {call.number} renewed {life.name}, which had {life.ending}", key)
    return looked


def a_release_ends_its_own_lease_alone(facts: Facts) -> Findings:
    """9: along the log a release ends the lease that it names, if that holds, or all that is left of its set,
    and nothing else. A stale one changes nothing; only that leases had expired may be found by it.
    """
    looked = 0
    for n, effect in enumerate(facts.effects):
        if effect.command != "Release":
            continue
        looked += 1
        life = facts.life_of_lease(effect.fields["tenant"], effect.fields["lease_id"], n)
        released = effect.result == "Released" and not effect.result_fields["already"]
        endings = [event for event in effect.events if event["kind"] in ENDINGS]
        for event in endings:
            own = life is None or (life.key, life.token) == (place_of(event), event["token"])
            found_over = event["kind"] == "expired" or event["detail"] == "session_closed"
            if not own and life is not None and (found_over or effect.fields.get("whole_set")):
                other = facts.life(place_of(event), event["token"])
                if found_over or (other is not None and other.request_id == life.request_id):
                    continue
            if event["kind"] == "released" and not released:
                yield Wrong(f"effect {n} is a stale release and ends token {event['token']}", key_of(event))
            elif not own or (life is not None and life.ended < n):
                yield Wrong(
                    f"effect {n} releases {effect.fields['lease_id']}, and ends {event}", key_of(event)
                )
        if released and not any(event["kind"] == "released" for event in endings):
            key = life.key if life is not None else None
            yield Wrong(f"effect {n} is a release that is said to have been done, and ends nothing", key)
    return looked


def what_was_released_keeps_nobody_out(facts: Facts) -> Findings:
    """9: after a release was acknowledged no acquire is refused because of that lease."""
    looked = 0
    for call in facts.refused("acquire", "held"):
        holder = call.answer.get("holder")
        if not holder:
            continue
        looked += 1
        by = facts.released_before(call, holder["token"])
        if by is not None:
            yield Wrong(
                f"call {call.number} was refused because of token {holder['token']}, which call {by.number} "
                "had released",
                called_key(call),
            )
    return looked
