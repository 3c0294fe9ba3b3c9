"""After healing: what must come does come, within its time."""

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import CLAIM_WINDOW_MS, NEVER, NOT_YET, Findings, Wrong


def a_leader_comes_after_healing(facts: Facts) -> Findings:
    """20: a healed cluster has a leader within the bound."""
    history = facts.history
    if history.healed_at == NEVER:
        return 0
    took_s = (
        min(history.leader_after_healing_at, max(history.duration_s, history.healed_at)) - history.healed_at
    )
    if took_s > history.leader_bound_s or (history.leader_after_healing_at == NEVER and history.complete):
        yield Wrong(f"no leader for {took_s:.1f} s after healing; the bound is {history.leader_bound_s} s")
    return 1


def abandoned_leases_come_free(facts: Facts) -> Findings:
    """20: in a healed cluster a lease that is not renewed is free within its TTL, a tick, and the time that
    an election may take.
    """
    history = facts.history
    if history.leader_after_healing_at == NEVER or not history.complete:
        return 0
    looked = 0
    for life in facts.lives:
        if life.ended_at < history.leader_after_healing_at:
            continue
        looked += 1
        given = facts.deadlines.get((life.key[0], life.session_at(life.ended)), [])
        signs = [n for n, _ in given if life.began <= n < life.ended]
        sign_at = facts.applied_at[signs[-1]] if signs else life.began_at
        ttl_s = (life.ttl_ms or CLAIM_WINDOW_MS) / 1000 / (1 - history.clock_rate_bound)
        due_at = (
            max(sign_at, history.leader_after_healing_at) + ttl_s + history.tick_s + history.leader_bound_s
        )
        if life.ended == NOT_YET and history.duration_s > due_at:
            yield Wrong(f"{life.name} was due to end at {due_at:.3f} s, and never did", life.key)
        elif life.ending == "expired" and life.ended_at > due_at:
            yield Wrong(
                f"{life.name} was due to end at {due_at:.3f} s, and expired at {life.ended_at:.3f} s",
                life.key,
            )
    return looked


def nothing_is_left_behind(facts: Facts) -> Findings:
    """20: at the end no node has a waiter for a key that is free, or serves a watch that nobody has open."""
    history = facts.history
    if not history.complete:
        return 0
    watches_open = sum(watch.ended_at == NEVER for watch in history.watches)
    for node in history.final:
        held = {key for key, _ in node.held}
        # Who waits for a set waits for another of its keys.
        held_up = {request_id for key, request_id in node.waiting if key in held}
        for key, request_id in node.waiting:
            if request_id not in held_up and not any(life.grace_ms for life in facts.by_name.get(key, ())):
                yield Wrong(f"at the end {request_id} waits at {node.node} for {key}, which is free")
        if node.watches > watches_open:
            yield Wrong(f"at the end {node.node} serves {node.watches} watches, {watches_open} are open")
    return len(history.final)
