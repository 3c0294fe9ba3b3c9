"""Results about credentials and quotas as answers. Of secrets nothing is told, not even their digests."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from tenure_cluster.lease import credentials as of
from tenure_cluster.lease.credentials import Credential
from tenure_cluster.lease.quota import Quota, QuotaIs, QuotasFull
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.service.asks import Ask
from tenure_cluster.service.credential_replies import (
    CredentialBody,
    CredentialReply,
    CredentialsReply,
    QuotaBody,
    QuotaReply,
    RevokedReply,
    TenantBody,
    TenantsReply,
)
from tenure_cluster.service.credential_requests import ListCredentialsRequest, ListTenantsRequest
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.times import rfc3339

CredentialAnswer: TypeAlias = CredentialReply | RevokedReply | QuotaReply | Problem

NO_CREDENTIAL: Final = Problem("no_credential", "no such credential is known")


def body(credential: Credential) -> CredentialBody:
    """What may be told of a credential."""
    _, *older = credential.secrets
    return CredentialBody(
        credential_id=credential.credential_id,
        tenant=credential.tenant,
        name=credential.name,
        rights=list[str](credential.rights),
        prefixes=credential.prefixes,
        created_at=rfc3339(credential.created_wall_ms),
        created_by=credential.created_by or None,
        rotated_at=rfc3339(credential.rotated_wall_ms),
        expires_at=rfc3339(credential.expires_wall_ms) if credential.expires_wall_ms else None,
        overlap_until=rfc3339(older[0].until_wall_ms) if older else None,
    )


def page(credentials: dict[str, Credential], request: ListCredentialsRequest) -> CredentialsReply:
    """One page of credentials in the order of their ids."""
    ids = sorted(
        credential_id
        for credential_id, credential in credentials.items()
        if (request.after is None or credential_id > request.after)
        and request.tenant in (None, credential.tenant)
    )
    shown = ids[: request.limit]
    return CredentialsReply(
        credentials=[body(credentials[credential_id]) for credential_id in shown],
        next=shown[-1] if len(shown) < len(ids) else None,
    )


def quota_body(quota: Quota | None) -> QuotaBody | None:
    return None if quota is None else QuotaBody(**msgspec.structs.asdict(quota))


def tenants(table: LeaseTable, request: ListTenantsRequest) -> TenantsReply:
    """One page of the tenants that have done something or have a credential or a quota, by name."""
    per_tenant = Counter(credential.tenant for credential in table.credentials.values())
    names = {*table.tenants, *table.quotas, *per_tenant, *table.usage.tenants()}
    left = sorted(name for name in names if request.after is None or name > request.after)
    shown = left[: request.limit]
    return TenantsReply(
        tenants=[_tenant(table, name, per_tenant[name]) for name in shown],
        next=shown[-1] if len(shown) < len(left) else None,
    )


def _tenant(table: LeaseTable, name: str, credentials: int) -> TenantBody:
    usage, own = table.usage.look(name), table.quotas.get(name)
    return TenantBody(
        tenant=name,
        leases=usage.leases,
        sessions=usage.sessions,
        waiters=usage.waiters,
        records=usage.records,
        record_bytes=usage.record_bytes,
        credentials=credentials,
        quota=quota_body(own.quota if own is not None else None),
    )


CREDENTIAL_ANSWERS: Final[dict[type, Callable[[Any, Ask, int], CredentialAnswer]]] = {
    of.CredentialIs: lambda result, ask, now_ms: CredentialReply(credential=body(result.credential)),
    of.CredentialRevoked: lambda result, ask, now_ms: RevokedReply(),
    of.NoCredential: lambda result, ask, now_ms: NO_CREDENTIAL,
    of.LastAdministrator: lambda result, ask, now_ms: Problem(
        "invalid",
        "it is the last credential with the right admin; make another one first",
        {"path": "$.credential_id"},
    ),
    of.NotFirst: lambda result, ask, now_ms: Problem("forbidden", "there is an administrator already"),
    of.CredentialsFull: lambda result, ask, now_ms: Problem(
        "quota",
        f"there are {result.credentials_max} credentials, the most there may be",
        {"quota": "credentials", "max": result.credentials_max},
    ),
    QuotaIs: lambda result, ask, now_ms: QuotaReply(quota=quota_body(result.quota)),
    QuotasFull: lambda result, ask, now_ms: Problem(
        "quota",
        f"{result.quotas_max} tenants have quotas of their own, the most there may be",
        {"quota": "quotas", "max": result.quotas_max},
    ),
}
"""Every result of lease.credentials that a call can meet, beside Invalid."""
