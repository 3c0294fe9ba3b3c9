"""What a leader lets each tenant have: how many leases, sessions, waiters and records, and how much a second.

Refused is what would go beyond, before anything of it exists, and with what was exceeded. Never refused are
renewals and releases, and whatever else gives something up: a tenant that is over a quota, because it was
lowered, keeps what it has.

Held against a quota are the tenant's counts of the replica and what is under way to it (under_way.py), so
that many requests at once can't pass together where one could. A waiter was let in as a waiter; that it is
granted later is no request of its own, so a tenant can come to have leases_max and as many again as it had
waiters. A set that waits is as many waiters as it has keys.

The rate is a bucket that holds what a tenant may do in BURST_S seconds.
"""

import math
from collections.abc import Callable
from typing import Final

from tenure_cluster.lease.quota import UNBOUNDED, Quota
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.service.asks import Ask
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.requests import (
    AcquireRequest,
    CommitRequest,
    OpenSessionRequest,
    RenewRequest,
    UnparkRequest,
)
from tenure_cluster.service.under_way import Charge, UnderWay, family_of, ref_of

BURST_S: Final = 2.0

NEVER_REFUSED: Final = frozenset(
    {"renew", "release", "abandon", "close_session", "revoke_credential", "note_audit"}
)
"""What keeps or gives up what a tenant has, and what the cluster asks of itself."""

RETRY_S: Final = 5.0
"""What is told of when to ask again where only the tenant itself can make room."""


class _Bucket:
    """How many operations a tenant may do now."""

    __slots__ = ("at_s", "left")

    def __init__(self, left: float, at_s: float) -> None:
        self.left = left
        self.at_s = at_s


class Quotas:
    """Decides for the operations that come to this leader."""

    def __init__(
        self, default: Quota, table: Callable[[], LeaseTable], monotonic: Callable[[], float]
    ) -> None:
        """``default`` is for tenants that have no quota of their own."""
        self._default = UNBOUNDED if default == UNBOUNDED else default
        self._table = table
        self._monotonic = monotonic
        self._buckets: dict[str, _Bucket] = {}
        self._under_way = UnderWay(table)
        self.refused = 0

    def of(self, tenant: str) -> Quota:
        """What the tenant may have."""
        own = self._table().quotas.get(tenant)
        return self._default if own is None else own.quota

    def bounds(self, tenant: str) -> bool:
        """Whether the tenant is bounded in anything, so that its operations have to be looked at."""
        return self.of(tenant) is not UNBOUNDED

    def refusal(self, ask: Ask) -> Problem | None:
        """None if the operation may go on. Of one that may, tell `begin`."""
        quota = self.of(ask.tenant)
        if quota is UNBOUNDED:
            return None
        if ask.operation in NEVER_REFUSED:
            return _range_of_renewal(ask, quota)
        refused = self._rate(ask.tenant, quota) or self._held(ask, quota)
        if refused is not None:
            self.refused += 1
        return refused

    def begin(self, ask: Ask) -> Charge | None:
        """The operation is about to be proposed. What it is charged with, if anything: to be given to `end`
        once it is in the replica, or has come to nothing."""
        quota = self.of(ask.tenant)
        if quota is UNBOUNDED:
            return None
        request = ask.request
        if type(request) is AcquireRequest:
            bounded = quota.leases_max or quota.waiters_max
            if not bounded or self._asked_before(ask.tenant, request):
                return None
            return self._under_way.acquire(ask.tenant, request, _keys(request))
        if type(request) is OpenSessionRequest and quota.sessions_max:
            return self._under_way.session(ask.tenant)
        bounded = quota.records_max or quota.record_bytes_max
        if type(request) is CommitRequest and request.value is not None and bounded:
            return self._under_way.commit(ask.tenant, request.key, _value_bytes(request))
        return None

    def end(self, charge: Charge) -> None:
        self._under_way.end(charge)

    def stale_refusal(self, tenant: str) -> Problem | None:
        """None if the tenant may have one more stale read, which each node answers by itself and counts by
        itself."""
        quota = self.of(tenant)
        refused = None if quota is UNBOUNDED else self._rate(tenant, quota)
        self.refused += refused is not None
        return refused

    def watch_refusal(self, tenant: str, watches: int) -> Problem | None:
        """None if the tenant may open one more watch on this node beside those that it has."""
        most = self.of(tenant).watches_max
        return _exceeded("watches", watches, most) if most and watches >= most else None

    # Rates

    def _rate(self, tenant: str, quota: Quota) -> Problem | None:
        rate = quota.operations_per_s
        if not rate:
            return None
        now_s, most = self._monotonic(), max(1.0, rate * BURST_S)
        bucket = self._buckets.get(tenant)
        if bucket is None:
            bucket = self._buckets[tenant] = _Bucket(most, now_s)
        bucket.left = min(most, bucket.left + (now_s - bucket.at_s) * rate)
        bucket.at_s = now_s
        if bucket.left < 1:
            wait_s = math.ceil((1 - bucket.left) / rate * 1000) / 1000
            detail = f"the tenant may do {rate} operations a second"
            return Problem("quota", detail, {"quota": "operations_per_s", "max": rate}, wait_s)
        bucket.left -= 1
        return None

    # What is held

    def _held(self, ask: Ask, quota: Quota) -> Problem | None:
        request = ask.request
        if type(request) is AcquireRequest:
            return _ttl(request.ttl_ms, quota) or self._acquire(ask, request, quota)
        if type(request) is OpenSessionRequest:
            have = self._table().usage.look(ask.tenant).sessions + self._under_way.sessions.get(ask.tenant, 0)
            over = quota.sessions_max and have >= quota.sessions_max
            return _ttl(request.ttl_ms, quota) or (
                _exceeded("sessions", have, quota.sessions_max) if over else None
            )
        if type(request) is CommitRequest and request.value is not None:
            return self._commit(ask.tenant, request, quota)
        if type(request) is UnparkRequest:
            return _ttl(request.ttl_ms, quota)
        return None

    def _acquire(self, ask: Ask, request: AcquireRequest, quota: Quota) -> Problem | None:
        if not (quota.leases_max or quota.waiters_max) or self._asked_before(ask.tenant, request):
            return None
        tenant, under_way = ask.tenant, self._under_way
        usage, keys = self._table().usage.look(tenant), _keys(request)
        have = usage.leases + under_way.leases.get(tenant, 0)
        if quota.leases_max and have + len(keys) > quota.leases_max:
            return _exceeded("leases", have, quota.leases_max)
        have = usage.waiters + under_way.waiters.get(tenant, 0)
        if not quota.waiters_max or not request.wait_ms or have + len(keys) <= quota.waiters_max:
            return None
        if under_way.is_free(tenant, keys, family_of(request)):
            return None
        return _exceeded("waiters", have, quota.waiters_max)

    def _asked_before(self, tenant: str, request: AcquireRequest) -> bool:
        """Whether it is a poll or a replay, or finds what its session has: nothing is added by it then."""
        table, ref = self._table(), ref_of(tenant, request)
        if ref in table.waiters or ref in table.sets or self._under_way.knows(ref):
            return True
        if table.indexes.fate(*ref) is not None:
            return True
        scope = request.session_id
        if not scope or request.key is None:
            return False
        return any(lease.session_id == scope for lease in table.leases_of(tenant, request.key))

    def _commit(self, tenant: str, request: CommitRequest, quota: Quota) -> Problem | None:
        table = self._table()
        usage, record = table.usage.look(tenant), table.record(tenant, request.key)
        records, record_bytes = self._under_way.besides(tenant, request.key)
        have = usage.records + records
        if quota.records_max and record is None and have >= quota.records_max:
            return _exceeded("records", have, quota.records_max)
        if not quota.record_bytes_max:
            return None
        size, before = _value_bytes(request), len(record.value) if record is not None else 0
        have = usage.record_bytes + record_bytes
        if size > before and have - before + size > quota.record_bytes_max:
            return _exceeded("record_bytes", have, quota.record_bytes_max)
        return None


def _range_of_renewal(ask: Ask, quota: Quota) -> Problem | None:
    """A renewal is never refused for want of quota; but one can't have a TTL that no lease may have."""
    request = ask.request
    if type(request) is not RenewRequest or request.ttl_ms is None:
        return None
    fault = _ttl(request.ttl_ms, quota)
    if fault is None:
        return None
    return Problem("out_of_range", fault.detail, {"path": "$.ttl_ms", **_range(quota)})


def _exceeded(what: str, have: int, most: int) -> Problem:
    detail = f"the tenant may have {most} {what.replace('_', ' ')}, and has {have}"
    return Problem("quota", detail, {"quota": what, "max": most, "used": have}, RETRY_S)


def _range(quota: Quota) -> dict[str, int]:
    bounds = {"min": quota.ttl_min_ms, "max": quota.ttl_max_ms}
    return {name: bound for name, bound in bounds.items() if bound}


def _ttl(ttl_ms: int | None, quota: Quota) -> Problem | None:
    if ttl_ms is None:
        return None
    if quota.ttl_min_ms and ttl_ms < quota.ttl_min_ms:
        detail = f"the tenant's TTLs are at least {quota.ttl_min_ms} ms, and this is {ttl_ms}"
    elif quota.ttl_max_ms and ttl_ms > quota.ttl_max_ms:
        detail = f"the tenant's TTLs are at most {quota.ttl_max_ms} ms, and this is {ttl_ms}"
    else:
        return None
    return Problem("quota", detail, {"quota": "ttl_ms", "path": "$.ttl_ms", **_range(quota)}, RETRY_S)


def _keys(request: AcquireRequest) -> list[str]:
    return [request.key] if request.key is not None else request.keys or []


def _value_bytes(request: CommitRequest) -> int:
    value = request.value or ""
    if request.value_encoding == "base64":
        return len(value) // 4 * 3 - value[-2:].count("=")
    return len(value) if value.isascii() else len(value.encode())
