"""Bodies of the answers about credentials."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of these answers."""


class CredentialBody(_Reply, frozen=True, kw_only=True):
    """A credential without its secret. Times are null where there is none."""

    credential_id: str
    tenant: str
    name: str
    rights: list[str]
    prefixes: list[str]
    created_at: str
    created_by: str | None
    rotated_at: str
    expires_at: str | None
    overlap_until: str | None
    """Until when the secret before the present one is valid."""


class CredentialReply(_Reply, frozen=True, kw_only=True):
    """``bearer`` is what is shown with a call: it is told here, and never again."""

    credential: CredentialBody
    bearer: str | UnsetType = UNSET


class CredentialsReply(_Reply, frozen=True, kw_only=True):
    credentials: list[CredentialBody]
    next: str | None


class RevokedReply(_Reply, frozen=True, kw_only=True):
    status: Literal["revoked"] = "revoked"


class QuotaBody(_Reply, frozen=True, kw_only=True):
    """What a tenant may have; 0 is no bound."""

    leases_max: int
    sessions_max: int
    waiters_max: int
    watches_max: int
    records_max: int
    record_bytes_max: int
    operations_per_s: int
    ttl_min_ms: int
    ttl_max_ms: int


class TenantBody(_Reply, frozen=True, kw_only=True):
    """What a tenant has. ``quota`` is null where the configuration's counts."""

    tenant: str
    leases: int
    sessions: int
    waiters: int
    records: int
    record_bytes: int
    credentials: int
    quota: QuotaBody | None


class TenantsReply(_Reply, frozen=True, kw_only=True):
    tenants: list[TenantBody]
    next: str | None


class QuotaReply(_Reply, frozen=True, kw_only=True):
    """``quota`` is null if the configuration's counts again."""

    quota: QuotaBody | None
