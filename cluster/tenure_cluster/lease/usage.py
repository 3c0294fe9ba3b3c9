"""How much each tenant has: counted beside the table, derived from it, and no part of a snapshot."""

from typing import TYPE_CHECKING

from tenure_cluster.lease.types import Record, TenantId

if TYPE_CHECKING:
    from tenure_cluster.lease.table import LeaseTable


class Usage:
    """What one tenant has."""

    __slots__ = ("leases", "record_bytes", "records", "sessions", "waiters")

    def __init__(self) -> None:
        self.leases = 0
        self.sessions = 0
        """Explicit ones: a private session is counted as its lease or its waiter."""
        self.waiters = 0
        """A set is one for each of its keys."""
        self.records = 0
        self.record_bytes = 0
        """Of the values."""

    def counts(self) -> tuple[int, ...]:
        return (self.leases, self.sessions, self.waiters, self.records, self.record_bytes)


class UsageCounts:
    """The usage of all tenants. Those that have had something and have nothing any more are kept: there are
    no more of them than tenants."""

    def __init__(self) -> None:
        self._of: dict[TenantId, Usage] = {}

    def of(self, tenant: TenantId) -> Usage:
        """The tenant's counts, to be read or to be changed by the table."""
        usage = self._of.get(tenant)
        if usage is None:
            usage = self._of[tenant] = Usage()
        return usage

    def look(self, tenant: TenantId) -> Usage:
        """The same for reading alone: a tenant that is not known stays so."""
        return self._of.get(tenant) or Usage()

    def tenants(self) -> list[TenantId]:
        """Those that have or have had anything."""
        return list(self._of)

    def put_record(self, record: Record, before: Record | None) -> None:
        usage = self.of(record.tenant)
        usage.record_bytes += len(record.value)
        if before is None:
            usage.records += 1
        else:
            usage.record_bytes -= len(before.value)

    def remove_record(self, record: Record) -> None:
        usage = self.of(record.tenant)
        usage.records -= 1
        usage.record_bytes -= len(record.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UsageCounts) and self._plain() == other._plain()

    def _plain(self) -> dict[TenantId, tuple[int, ...]]:
        return {tenant: usage.counts() for tenant, usage in self._of.items() if any(usage.counts())}


def count_usage(table: "LeaseTable") -> UsageCounts:
    """The usage that follows from the primary state."""
    counts = UsageCounts()
    for lease in table.leases.values():
        counts.of(lease.tenant).leases += 1
    for session in table.sessions.values():
        if not session.private:
            counts.of(session.tenant).sessions += 1
    for waiter in table.waiters.values():
        counts.of(waiter.tenant).waiters += len(waiter.keys)
    for record in table.records.values():
        counts.put_record(record, None)
    return counts
