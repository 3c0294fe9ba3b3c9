"""What is on its way to the replica, on account of quotas: many requests at once must not pass together where
one could, in whatever form they come.

Each operation that may add something has a charge from the moment that it is proposed until it has come to
the replica, which counts it from then on, or to nothing. It is charged with what it seems to become by then:
an acquire of a key that is taken, or that another one under way is about to take, is a waiter and no lease.
Of the commits under way to one key the largest counts, since each replaces the value before it.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from tenure_cluster.lease import limits
from tenure_cluster.lease.room import EXCLUSIVE, PERMIT, Family
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.service.requests import AcquireRequest

K = TypeVar("K")

RequestRef: TypeAlias = tuple[str, str, str]
"""(tenant, session_id or "", request_id)."""


class Under(dict[str, int]):
    """How much of one kind is under way, by tenant."""

    def add(self, tenant: str, count: int) -> None:
        left = self.get(tenant, 0) + count
        if left:
            self[tenant] = left
        else:
            self.pop(tenant, None)


class Charge:
    """What one operation is charged with."""

    __slots__ = ("family", "keys", "leases", "ref", "sessions", "tenant", "value_of", "waiters")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.leases = 0
        self.sessions = 0
        self.waiters = 0
        self.keys: list[str] = []
        """The keys of an acquire."""
        self.family: Family = (EXCLUSIVE, 0)
        self.ref: RequestRef | None = None
        self.value_of: str | None = None
        """The key of a commit that writes a value."""


class _Value:
    """The commits under way that write the value of one key."""

    __slots__ = ("bytes", "commits", "most", "records")

    def __init__(self) -> None:
        self.commits = 0
        self.most = 0
        """Bytes of the largest."""
        self.bytes = 0
        self.records = 0
        """By how much they would make more of either."""


class UnderWay:
    """All charges of this leader."""

    def __init__(self, table: Callable[[], LeaseTable]) -> None:
        self._table = table
        self.leases, self.sessions, self.waiters = Under(), Under(), Under()
        self.records, self.record_bytes = Under(), Under()
        self._values: dict[tuple[str, str], _Value] = {}
        self._families: dict[tuple[str, str], dict[Family, int]] = {}
        """Acquires under way, by their keys."""
        self._requests: dict[RequestRef, int] = {}

    # Acquires

    def acquire(self, tenant: str, request: AcquireRequest, keys: list[str]) -> Charge:
        charge = Charge(tenant)
        charge.keys, charge.family, charge.ref = keys, family_of(request), ref_of(tenant, request)
        if request.wait_ms and not self.is_free(tenant, keys, charge.family):
            charge.waiters = len(keys)
        else:
            charge.leases = len(keys)
        self.leases.add(tenant, charge.leases)
        self.waiters.add(tenant, charge.waiters)
        self._requests[charge.ref] = self._requests.get(charge.ref, 0) + 1
        for key in keys:
            families = self._families.setdefault((tenant, key), {})
            families[charge.family] = families.get(charge.family, 0) + 1
        return charge

    def knows(self, ref: RequestRef) -> bool:
        """Whether an acquire of this request is under way."""
        return ref in self._requests

    def is_free(self, tenant: str, keys: list[str], family: Family) -> bool:
        """Whether an acquire of these keys seems to be granted at once, after all that are under way."""
        return all(self._has_room(tenant, key, family) for key in keys)

    def _has_room(self, tenant: str, key: str, family: Family) -> bool:
        table = self._table()
        state = table.keys.get((tenant, key))
        if table.key_queue(tenant, key) is not None:
            return False
        if state is not None and state.blocked_until_ms > table.time_ms:
            return False
        holder = table.holder(tenant, key)
        coming = self._families.get((tenant, key), {})
        if holder is None and not coming:
            return True
        mode, slots = family
        if mode == EXCLUSIVE or any(other != family for other in coming):
            return False
        if holder is not None and holder.mode != mode:
            return False
        places = slots if mode == PERMIT else limits.HOLDERS_PER_KEY_MAX
        return len(table.leases_of(tenant, key)) + coming.get(family, 0) < places

    # Sessions

    def session(self, tenant: str) -> Charge:
        charge = Charge(tenant)
        charge.sessions = 1
        self.sessions.add(tenant, 1)
        return charge

    # Values

    def commit(self, tenant: str, key: str, size: int) -> Charge:
        charge = Charge(tenant)
        charge.value_of = key
        value = self._values.setdefault((tenant, key), _Value())
        value.commits += 1
        value.most = max(value.most, size)
        self._weigh(tenant, key, value)
        return charge

    def besides(self, tenant: str, key: str) -> tuple[int, int]:
        """(records, bytes) that commits to other keys than this one would add."""
        value = self._values.get((tenant, key))
        records, size = self.records.get(tenant, 0), self.record_bytes.get(tenant, 0)
        return (records, size) if value is None else (records - value.records, size - value.bytes)

    def _weigh(self, tenant: str, key: str, value: _Value) -> None:
        """Say anew by how much the commits of a key would make more, now that one has come or gone."""
        record = self._table().record(tenant, key)
        grows = max(0, value.most - (len(record.value) if record is not None else 0)) if value.commits else 0
        new = 1 if value.commits and record is None else 0
        self.record_bytes.add(tenant, grows - value.bytes)
        self.records.add(tenant, new - value.records)
        value.bytes, value.records = grows, new

    # The end of any

    def end(self, charge: Charge) -> None:
        tenant = charge.tenant
        self.leases.add(tenant, -charge.leases)
        self.sessions.add(tenant, -charge.sessions)
        self.waiters.add(tenant, -charge.waiters)
        for key in charge.keys:
            _less(self._families[tenant, key], charge.family)
            if not self._families[tenant, key]:
                del self._families[tenant, key]
        if charge.ref is not None:
            _less(self._requests, charge.ref)
        if charge.value_of is not None:
            value = self._values[tenant, charge.value_of]
            value.commits -= 1
            self._weigh(tenant, charge.value_of, value)
            if not value.commits:
                del self._values[tenant, charge.value_of]


def family_of(request: AcquireRequest) -> Family:
    return request.mode, (request.slots or 1) if request.mode == PERMIT else 0


def ref_of(tenant: str, request: AcquireRequest) -> RequestRef:
    return tenant, request.session_id or "", request.request_id or ""


def _less(counts: dict[K, int], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
