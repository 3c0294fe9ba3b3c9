"""Tenants: apart from one another, and within their quotas."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tenure_chaos.checkers.facts import Facts
from tenure_chaos.checkers.reading import ENDINGS, Findings, Wrong, called_key, grants_told, key_of
from tenure_chaos.history import CallRecord, Effect


def commands_touch_their_own_tenant(facts: Facts) -> Findings:
    """19: no command of one tenant has events or results of another."""
    looked = 0
    for n, effect in enumerate(facts.effects):
        tenants = _tenants(effect)
        if not tenants:
            continue
        looked += 1
        told = [event["tenant"] for event in effect.events]
        told += [grant["lease"]["tenant"] for grant in grants_told(effect)]
        others = sorted(set(told) - tenants)
        if others:
            key = key_of(effect.events[0]) if effect.events else None
            yield Wrong(
                f"effect {n}, {effect.command} of {', '.join(sorted(tenants))}, is of {', '.join(others)}",
                key,
            )
    return looked


def _tenants(effect: Effect) -> set[str]:
    if "tenant" in effect.fields:
        return {effect.fields["tenant"]}
    return {item["tenant"] for item in effect.fields.get("items", ())}


def answers_tell_of_their_own_tenant(facts: Facts) -> Findings:
    """19: no answer tells of a lease of another tenant."""
    owners = {lease_id: tenant for tenant, lease_id in facts.by_lease}
    looked = 0
    for call, key_name, token, lease_id in _told(facts):
        looked += 1
        whose = owners.get(lease_id, call.tenant) if lease_id else call.tenant
        if whose != call.tenant or facts.granted_elsewhere((call.tenant, key_name), token):
            yield Wrong(
                f"call {call.number} of {call.tenant} was told {token} of {key_name}, another's",
                called_key(call),
            )
    return looked


def _told(facts: Facts) -> Iterator[tuple[CallRecord, str, int, str]]:
    for call in facts.history.calls:
        key = called_key(call)[1]
        for lease in (call.answer, call.answer.get("lease") or {}, *_items(call.answer, "leases")):
            if isinstance(lease, dict) and "token" in lease and "owner" in lease and "mode" in lease:
                yield call, lease["key"], lease["token"], lease.get("lease_id") or ""
        for holder in (call.answer.get("holder"), *_items(call.answer, "holders")):
            if holder:
                yield call, key, holder["token"], ""


def quotas_hold(facts: Facts) -> Findings:
    """19: at every index a tenant has no more leases and waiters than its quota allows."""
    quotas = facts.history.quotas
    if not quotas:
        return 0
    looked = 0
    counts: Counter[tuple[str, str]] = Counter()
    for n, effect in enumerate(facts.effects):
        for event in effect.events:
            tenant, kind = event["tenant"], event["kind"]
            if kind == "granted":
                counts[tenant, "leases"] += 1
            elif kind in ENDINGS:
                counts[tenant, "leases"] -= 1
            elif kind in ("queue_joined", "queue_left"):
                counts[tenant, "waiters"] += 1 if kind == "queue_joined" else -1
        for tenant in dict.fromkeys(event["tenant"] for event in effect.events):
            for what, most in quotas.get(tenant, {}).items():
                looked += 1
                if counts[tenant, what] > most:
                    yield Wrong(
                        f"after effect {n} {tenant} has {counts[tenant, what]} {what}, the most is {most}"
                    )
    return looked


def _items(answer: dict[str, Any], name: str) -> list[Any]:
    """A list of that name; elsewhere it may be a number."""
    items = answer.get(name)
    return items if isinstance(items, list) else []
