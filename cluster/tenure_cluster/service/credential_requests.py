"""Bodies of the calls about credentials and tenants, and what of them goes to the leader.

The secret is drawn by the node that was asked, and never leaves it but to the caller: the leader and the log
see its digest. So the calls have two forms, as a client sends them and as the service is asked.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from tenure_cluster.lease import limits
from tenure_cluster.lease.credentials import Right

Id = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": limits.ID_BYTES_MAX})]
Tenant = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": limits.TENANT_BYTES_MAX})]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the bodies."""


class CreateCredentialRequest(_Request, frozen=True, kw_only=True):
    """A credential for a tenant. It is for the keys that begin with one of ``prefixes``, exactly; an empty
    one is for all keys."""

    name: Annotated[
        str, Meta(extra_json_schema={"minLength": 1, "maxLength": limits.CREDENTIAL_NAME_BYTES_MAX})
    ]
    tenant: Tenant = "default"
    rights: Annotated[list[Right], Meta(extra_json_schema={"minItems": 1})]
    prefixes: Annotated[
        list[str], Meta(extra_json_schema={"minItems": 1, "maxItems": limits.CREDENTIAL_PREFIXES_MAX})
    ] = msgspec.field(default_factory=lambda: [""])
    lifetime_ms: Annotated[
        int | None,
        Meta(description="For how long it is valid, from now and from each rotation; without it, always."),
    ] = None


class RotateCredentialRequest(_Request, frozen=True, kw_only=True):
    """``overlap_ms`` is for how long the present secret stays valid beside the new one."""

    credential_id: Id
    overlap_ms: Annotated[
        int, Meta(extra_json_schema={"minimum": 0, "maximum": limits.CREDENTIAL_OVERLAP_MS_MAX})
    ] = 3_600_000


class RevokeCredentialRequest(_Request, frozen=True, kw_only=True):
    credential_id: Id


class ListCredentialsRequest(_Request, frozen=True, kw_only=True):
    """``after`` is the last id of the page before."""

    tenant: str | None = None
    limit: int = 100
    after: str | None = None


class EntrustRequest(_Request, frozen=True, kw_only=True):
    """A credential to be made under an id and with a secret that have been drawn. ``first``: only if there is
    no administrator yet."""

    asked: CreateCredentialRequest
    credential_id: str
    digest: bytes
    first: bool = False


class ReplaceSecretRequest(_Request, frozen=True, kw_only=True):
    """A rotation, with the secret's digest."""

    asked: RotateCredentialRequest
    digest: bytes


_Bound = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": limits.SEQ_MAX})]


class SetQuotaRequest(_Request, frozen=True, kw_only=True):
    """The whole quota of a tenant: what is left out has no bound, and so has 0."""

    tenant: Tenant
    leases_max: _Bound = 0
    sessions_max: _Bound = 0
    waiters_max: _Bound = 0
    watches_max: _Bound = 0
    records_max: _Bound = 0
    record_bytes_max: _Bound = 0
    operations_per_s: _Bound = 0
    ttl_min_ms: _Bound = 0
    ttl_max_ms: _Bound = 0


class ResetQuotaRequest(_Request, frozen=True, kw_only=True):
    tenant: Tenant


class ListTenantsRequest(_Request, frozen=True, kw_only=True):
    """``after`` is the last tenant of the page before."""

    limit: int = 100
    after: str | None = None


CredentialRequest: TypeAlias = (
    EntrustRequest
    | ReplaceSecretRequest
    | RevokeCredentialRequest
    | ListCredentialsRequest
    | SetQuotaRequest
    | ResetQuotaRequest
    | ListTenantsRequest
)

CREDENTIAL_OPERATIONS: dict[str, type[msgspec.Struct]] = {
    "entrust": EntrustRequest,
    "replace_secret": ReplaceSecretRequest,
    "revoke_credential": RevokeCredentialRequest,
    "list_credentials": ListCredentialsRequest,
    "set_quota": SetQuotaRequest,
    "reset_quota": ResetQuotaRequest,
    "list_tenants": ListTenantsRequest,
}
"""What the service is asked about credentials and tenants, by name: no operations of batches and streams."""
