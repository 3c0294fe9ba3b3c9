"""The last administrator whose credential is valid still.

The state keeps a credential with the right `admin` once there has been one (lease/credentials.py), but it
knows no wall clock, and so not which have run out: of two it would let the one go that is of use. So a leader
looks at its own clock before it proposes that one is revoked.
"""

from collections.abc import Mapping

from tenure_cluster.lease.credentials import Credential
from tenure_cluster.service.asks import Ask
from tenure_cluster.service.credential_requests import RevokeCredentialRequest
from tenure_cluster.service.errors import Problem


def refusal(ask: Ask, credentials: Mapping[str, Credential], wall_ms: int) -> Problem | None:
    """None unless this would revoke the last credential with the right `admin` that is valid."""
    if not isinstance(ask.request, RevokeCredentialRequest):
        return None
    revoked = ask.request.credential_id
    valid = [
        credential.credential_id
        for credential in credentials.values()
        if "admin" in credential.rights and not 0 < credential.expires_wall_ms <= wall_ms
    ]
    if valid != [revoked]:
        return None
    return Problem(
        "invalid",
        "it is the last credential with the right admin that is valid; make another one first",
        {"path": "$.credential_id"},
    )
