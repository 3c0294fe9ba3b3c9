"""Credentials made, revoked and rotated, and quotas set: what the commands of credentials.py and quota.py do
to the state."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tenure_cluster.lease import limits
from tenure_cluster.lease.credentials import (
    DIGEST_BYTES,
    RIGHTS,
    CreateCredential,
    Credential,
    CredentialIs,
    CredentialResult,
    CredentialRevoked,
    CredentialsFull,
    LastAdministrator,
    NoCredential,
    NotFirst,
    RevokeCredential,
    RotateCredential,
    Secret,
)
from tenure_cluster.lease.quota import QuotaIs, QuotaResult, QuotasFull, SetQuota, TenantQuota
from tenure_cluster.lease.results import Invalid
from tenure_cluster.lease.step import Step


def _create(step: Step, asked: CreateCredential) -> CredentialResult:
    credentials = step.table.credentials
    present = credentials.get(asked.credential_id)
    if present is not None:
        if present.secrets[0].digest == asked.digest and present.tenant == asked.tenant:
            return CredentialIs(present)
        return Invalid("credential_id is another credential's")
    fault = _fault(asked)
    if fault:
        return Invalid(fault)
    if asked.first and any("admin" in credential.rights for credential in credentials.values()):
        return NotFirst()
    if len(credentials) >= limits.CREDENTIALS_MAX:
        return CredentialsFull(limits.CREDENTIALS_MAX)
    credential = Credential(
        credential_id=asked.credential_id,
        tenant=asked.tenant,
        name=asked.name,
        rights=[right for right in RIGHTS if right in asked.rights],
        prefixes=sorted(set(asked.prefixes)),
        secrets=[Secret(asked.digest, 0)],
        lifetime_ms=asked.lifetime_ms,
        expires_wall_ms=asked.wall_ms + asked.lifetime_ms if asked.lifetime_ms else 0,
        created_wall_ms=asked.wall_ms,
        created_by=asked.actor,
        rotated_wall_ms=asked.wall_ms,
    )
    credentials[credential.credential_id] = credential
    return CredentialIs(credential)


def _fault(asked: CreateCredential) -> str:
    """Why no service of this version would have proposed it; empty if one would."""
    if not asked.credential_id or not asked.tenant:
        return "credential_id and tenant must not be empty"
    if not asked.rights:
        return "rights must not be empty"
    if not 0 < len(asked.prefixes) <= limits.CREDENTIAL_PREFIXES_MAX:
        return f"prefixes must be 1 to {limits.CREDENTIAL_PREFIXES_MAX}"
    if len(asked.digest) != DIGEST_BYTES:
        return "digest is none"
    return "lifetime_ms must not be negative" if asked.lifetime_ms < 0 else ""


def _revoke(step: Step, asked: RevokeCredential) -> CredentialResult:
    credentials = step.table.credentials
    credential = credentials.get(asked.credential_id)
    if credential is None:
        return NoCredential()
    if "admin" in credential.rights and not any(
        "admin" in other.rights for other in credentials.values() if other is not credential
    ):
        return LastAdministrator()
    del credentials[asked.credential_id]
    return CredentialRevoked(credential)


def _rotate(step: Step, asked: RotateCredential) -> CredentialResult:
    credential = step.table.credentials.get(asked.credential_id)
    if credential is None:
        return NoCredential()
    current = credential.secrets[0]
    if current.digest == asked.digest:
        return CredentialIs(credential)
    if len(asked.digest) != DIGEST_BYTES or asked.overlap_ms < 0:
        return Invalid("digest or overlap_ms is none")
    until_wall_ms = asked.wall_ms + asked.overlap_ms
    if credential.expires_wall_ms:
        until_wall_ms = min(until_wall_ms, credential.expires_wall_ms)
    kept: list[Secret] = []
    if asked.overlap_ms:
        older = [secret for secret in credential.secrets[1:] if secret.until_wall_ms > asked.wall_ms]
        kept = [Secret(current.digest, until_wall_ms), *older][: limits.SECRETS_MAX - 1]
    rotated = msgspec.structs.replace(
        credential,
        secrets=[Secret(asked.digest, 0), *kept],
        expires_wall_ms=asked.wall_ms + credential.lifetime_ms if credential.lifetime_ms else 0,
        rotated_wall_ms=asked.wall_ms,
    )
    step.table.credentials[asked.credential_id] = rotated
    return CredentialIs(rotated)


def _set_quota(step: Step, asked: SetQuota) -> QuotaResult:
    quotas = step.table.quotas
    if asked.quota is None:
        quotas.pop(asked.tenant, None)
        return QuotaIs(None)
    if not asked.tenant or any(bound < 0 for bound in msgspec.structs.astuple(asked.quota)):
        return Invalid("tenant must not be empty, and no bound negative")
    if asked.tenant not in quotas and len(quotas) >= limits.QUOTAS_MAX:
        return QuotasFull(limits.QUOTAS_MAX)
    quotas[asked.tenant] = TenantQuota(asked.tenant, asked.quota, asked.wall_ms, asked.actor)
    return QuotaIs(asked.quota)


HANDLERS: Final[dict[type, Callable[[Step, Any], CredentialResult | QuotaResult]]] = {
    CreateCredential: _create,
    RevokeCredential: _revoke,
    RotateCredential: _rotate,
    SetQuota: _set_quota,
}
