"""The calls about credentials, tenants and the audit."""

from typing import Final

from tenure_cluster.api.route import LEADER_CALL, NEWER_CALL, WRITE_CALL, Link, Route
from tenure_cluster.service import audit_messages, credential_replies, credential_requests

_CREDENTIAL = "$response.body#/credential/credential_id"

ADMIN_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="POST",
        path="/v1/credentials",
        operation="create_credential",
        access="admin",
        summary="Make a credential",
        description=(
            "`bearer` in the answer is what its holder shows in `Authorization: Bearer`. It is told once and "
            "kept nowhere: the cluster knows a digest of it. An answer that is lost leaves a credential that "
            "nobody can use; find it in the list and revoke it."
        ),
        tag="credentials",
        request=credential_requests.CreateCredentialRequest,
        source="body",
        replies={200: (credential_replies.CredentialReply,)},
        problems=(*WRITE_CALL, *NEWER_CALL, "quota"),
        example={"name": "agent-a", "tenant": "default", "rights": ["acquire", "commit"], "prefixes": ["a/"]},
        links={
            200: (
                Link("rotate_credential", {"credential_id": _CREDENTIAL}),
                Link("revoke_credential", {"credential_id": _CREDENTIAL}),
            )
        },
    ),
    Route(
        method="POST",
        path="/v1/credentials/rotate",
        operation="rotate_credential",
        access="admin",
        summary="Give a credential a new secret",
        description=(
            "The present secret stays valid for `overlap_ms` beside the new one; with 0 it is over at once, "
            "and so are those of earlier rotations. The lifetime begins anew."
        ),
        tag="credentials",
        request=credential_requests.RotateCredentialRequest,
        source="body",
        replies={200: (credential_replies.CredentialReply,)},
        problems=(*WRITE_CALL, *NEWER_CALL, "no_credential"),
        example={"credential_id": "x3Kc0Zr9Qm1t", "overlap_ms": 3600000},
    ),
    Route(
        method="GET",
        path="/v1/credentials",
        operation="list_credentials",
        access="admin",
        summary="Credentials, without their secrets",
        tag="credentials",
        request=credential_requests.ListCredentialsRequest,
        source="query",
        replies={200: (credential_replies.CredentialsReply,)},
        problems=(
            *LEADER_CALL,
            *NEWER_CALL,
        ),
    ),
    Route(
        method="DELETE",
        path="/v1/credentials/{id}",
        operation="revoke_credential",
        access="admin",
        summary="Take a credential away",
        description=(
            "Its bearer is refused from now on, at a node that lags behind as soon as it knows. What it "
            "holds ends by its TTL. The last credential with the right `admin` that is valid is kept."
        ),
        tag="credentials",
        request=credential_requests.RevokeCredentialRequest,
        source="query",
        path_field="credential_id",
        replies={200: (credential_replies.RevokedReply,)},
        problems=(*WRITE_CALL, *NEWER_CALL, "no_credential"),
    ),
    Route(
        method="GET",
        path="/v1/tenants",
        operation="list_tenants",
        access="admin",
        summary="Tenants, what they have and what they may have",
        tag="credentials",
        request=credential_requests.ListTenantsRequest,
        source="query",
        replies={200: (credential_replies.TenantsReply,)},
        problems=(
            *LEADER_CALL,
            *NEWER_CALL,
        ),
    ),
    Route(
        method="POST",
        path="/v1/quotas",
        operation="set_quota",
        access="admin",
        summary="Set what a tenant may have",
        description=(
            "The whole of it: what is left out has no bound. A tenant that has more already keeps that, and "
            "its renewals and releases are never refused for it."
        ),
        tag="credentials",
        request=credential_requests.SetQuotaRequest,
        source="body",
        replies={200: (credential_replies.QuotaReply,)},
        problems=(*WRITE_CALL, *NEWER_CALL, "quota"),
        example={"tenant": "build", "leases_max": 1000, "operations_per_s": 100},
    ),
    Route(
        method="DELETE",
        path="/v1/quotas/{tenant}",
        operation="reset_quota",
        access="admin",
        summary="Let a tenant have what the configuration says",
        tag="credentials",
        request=credential_requests.ResetQuotaRequest,
        source="query",
        path_field="tenant",
        replies={200: (credential_replies.QuotaReply,)},
        problems=(
            *WRITE_CALL,
            *NEWER_CALL,
        ),
    ),
    Route(
        method="GET",
        path="/v1/audit",
        operation="list_audit",
        access="admin",
        summary="Who did what to which key, and what was refused",
        description=(
            "Oldest first, of all tenants. Each record has the hash of the one before, so that what was "
            "exported can be verified, alone and against what follows: cluster/AUDIT.md."
        ),
        tag="audit",
        request=audit_messages.ListAuditRequest,
        source="query",
        replies={200: (audit_messages.AuditReply,)},
        problems=(*LEADER_CALL, *NEWER_CALL),
    ),
)
