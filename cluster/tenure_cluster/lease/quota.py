"""What a tenant may have: plain numbers, which the leader holds its requests against (service/quotas.py).

A tenant has the quota that was set for it, or the configuration's. The machine only keeps it.
"""

from typing import Final, TypeAlias

import msgspec

from tenure_cluster.lease.results import Invalid
from tenure_cluster.lease.types import TenantId


class Quota(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The bounds of one tenant. 0 is no bound."""

    leases_max: int = 0
    sessions_max: int = 0
    waiters_max: int = 0
    watches_max: int = 0
    """On one node."""
    records_max: int = 0
    record_bytes_max: int = 0
    """Of all values together."""
    operations_per_s: int = 0
    """Of all but renewals, releases and what else gives up something."""
    ttl_min_ms: int = 0
    ttl_max_ms: int = 0


UNBOUNDED: Final = Quota()


class TenantQuota(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The quota that was set for a tenant."""

    tenant: TenantId
    quota: Quota
    set_wall_ms: int
    set_by: str


class SetQuota(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=19):
    """Set a tenant's quota, or with None let it have the configuration's again."""

    tenant: TenantId
    quota: Quota | None
    actor: str
    wall_ms: int
    origin: str = ""


class QuotaIs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is set for the tenant; None: nothing."""

    quota: Quota | None


class QuotasFull(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Refused: quotas are set for as many tenants as may be."""

    quotas_max: int


QuotaResult: TypeAlias = QuotaIs | QuotasFull | Invalid
