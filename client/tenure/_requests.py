"""The calls of the public contract as plain values: method, path, body, what is answered, and what asking
twice would do.

    call               asked again after an unknown outcome?
    reads, validate    yes: they change nothing
    acquire            only with the same request_id: the cluster finds the same grant
    renew              yes: renewing twice is renewing once
    release            yes: it names one lease, and can't touch a later one
    handover           yes: to the same successor it is answered with its lease
    park, unpark       yes: parking again counts anew, what is not parked is answered as it is
    abandon            yes: it names one acquire
    commit             only with the same op_id: the cluster repeats its first answer
    break              never: the second could break the successor's lease
    delete a record    only with if_revision: the second could delete a later record
    open a session     yes: a session that nobody knows holds nothing and ends at its TTL
    close a session    yes: it names one session
    make a credential  never: the first would be there, with a secret that nobody has
    rotate one         never, for the same reason; what is in its overlap stays valid
    revoke one         yes: it names one credential
    set a quota        yes: it is the whole of it
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from tenure import answers
from tenure.errors import InvalidRequest

A = TypeVar("A")

POLL_SLICE_S: Final = 10.0
"""One poll of a queued acquire. Shorter than the 25 s that the cluster allows, because a grant to a waiter
whose node has fallen silent is open for 5 s only: the sooner a dead poll is noticed, the fewer turns are
lost."""


@dataclass(frozen=True, slots=True)
class Request(Generic[A]):
    """One call, before it is known whom to ask. ``wait_until`` (seconds of the caller's clock) makes it a
    poll."""

    name: str
    method: str
    path: str
    answer: type[A]
    repeatable: bool
    """It may be sent again after an attempt whose outcome is unknown."""
    reads: bool = False
    """It has no effect, so its outcome is never in doubt."""
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    wait_until: float | None = None
    operation: str = ""
    """Its name on a stream; empty if it can't be asked there."""
    named: Mapping[str, Any] = field(default_factory=dict)
    """What a call without a body is asked with on a stream."""

    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def wait_s(self, now: float) -> float:
        """How long the cluster may hold the answer back if it is asked now."""
        return 0.0 if self.wait_until is None else min(POLL_SLICE_S, max(0.0, self.wait_until - now))

    def encode(self, now: float) -> bytes | None:
        """The body as it is to be sent now. A poll sent again asks only for the waiting time that is left."""
        if self.body is None:
            return None
        body = self.body
        if self.wait_until is not None:
            # Rounded up, or the last poll would come back a fraction of a millisecond before its time.
            body = {**body, "wait_ms": -int(-self.wait_s(now) * 1000 // 1)}
        try:
            return msgspec.json.encode(body)
        except TypeError as error:
            raise InvalidRequest(detail=f"{self.name}: {error}") from error


def _post(
    name: str, answer: type[A], body: dict[str, Any], *, repeatable: bool, reads: bool = False
) -> Request[A]:
    return Request(name, "POST", f"/v1/{name}", answer, repeatable, reads, _present(body), operation=name)


def _read(
    name: str,
    answer: type[A],
    path: str,
    query: Mapping[str, object] | None = None,
    *,
    operation: str = "",
    named: Mapping[str, Any] | None = None,
) -> Request[A]:
    given = {key: value for key, value in (query or {}).items() if value is not None and value != ""}
    sent = {key: str(value) for key, value in given.items()}
    return Request(
        name, "GET", path, answer, True, True, None, sent, operation=operation, named=named or given
    )


def _present(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _part(text: str) -> str:
    # Every byte that isn't unreserved is escaped, `/` as well: proxies merge double slashes and resolve dots.
    if not isinstance(text, str):
        raise InvalidRequest(detail=f"what is asked for is named by a text, not by {text!r}")
    return quote(text, safe="")


def encoded(value: str | bytes | None) -> dict[str, str | None]:
    """A value as a commit's body has it. Raises InvalidRequest, where JSON would make a text of some types
    that nobody could tell from one."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"value": base64.b64encode(value).decode(), "value_encoding": "base64"}
    if not (value is None or isinstance(value, str)):
        detail = f"a value is str or bytes, not {type(value).__name__}: encode it, as json.dumps does"
        raise InvalidRequest(detail=detail, path="$.value")
    return {"value": value, "value_encoding": None}


def acquire(body: dict[str, Any], wait_until: float | None = None) -> Request[answers.Acquired]:
    """``body`` as in the contract, without ``wait_ms``. Without a request_id nothing is asked twice."""
    sent = _present(body)
    return Request(
        "acquire",
        "POST",
        "/v1/acquire",
        answers.Acquired,
        "request_id" in sent,
        False,
        sent,
        wait_until=wait_until,
        operation="acquire",
    )


def renew(
    *, lease_id: str, ttl_ms: int | None = None, progress: Mapping[str, Any] | None = None
) -> Request[answers.Renewed]:
    body = {"lease_id": lease_id, "ttl_ms": ttl_ms, "progress": progress}
    return _post("renew", answers.Renewed, body, repeatable=True)


def renew_session(*, session_id: str, ttl_ms: int | None = None) -> Request[answers.SessionAnswer]:
    return _post(
        "renew", answers.SessionAnswer, {"session_id": session_id, "ttl_ms": ttl_ms}, repeatable=True
    )


def renew_each(lease_ids: Sequence[str]) -> Request[answers.BatchAnswer]:
    """Each lease renewed, and answered for itself, in one call."""
    ops = [{"op": "renew", "lease_id": lease_id} for lease_id in lease_ids]
    return Request("renew", "POST", "/v1/batch", answers.BatchAnswer, True, False, {"ops": ops})


def release(*, lease_id: str, whole_set: bool = False) -> Request[answers.Released]:
    body = {"lease_id": lease_id, "whole_set": True if whole_set else None}
    return _post("release", answers.Released, body, repeatable=True)


def handover(*, lease_id: str, to_session_id: str) -> Request[answers.Passed]:
    body = {"lease_id": lease_id, "to_session_id": to_session_id}
    return _post("handover", answers.Passed, body, repeatable=True)


def park(*, lease_id: str, limit_ms: int, token: int | None = None) -> Request[answers.Passed]:
    body = {"lease_id": lease_id, "limit_ms": limit_ms, "token": token}
    return _post("park", answers.Passed, body, repeatable=True)


def unpark(
    *, lease_id: str, session_id: str | None = None, ttl_ms: int | None = None, token: int | None = None
) -> Request[answers.Passed]:
    body = {"lease_id": lease_id, "session_id": session_id, "ttl_ms": ttl_ms, "token": token}
    return _post("unpark", answers.Passed, body, repeatable=True)


def abandon(*, request_id: str, session_id: str | None = None) -> Request[dict[str, Any]]:
    body = {"request_id": request_id, "session_id": session_id}
    return _post("abandon", dict[str, Any], body, repeatable=True)


def break_(*, key: str, reason: str) -> Request[answers.Broken]:
    return _post("break", answers.Broken, {"key": key, "reason": reason}, repeatable=False)


def resize(*, key: str, slots: int) -> Request[answers.Resized]:
    return _post("resize", answers.Resized, {"key": key, "slots": slots}, repeatable=True)


def validate(*, key: str, token: int) -> Request[answers.Validation]:
    return _post("validate", answers.Validation, {"key": key, "token": token}, repeatable=True, reads=True)


def commit(body: dict[str, Any]) -> Request[answers.Accepted]:
    """``body`` as in the contract. Without an op_id nothing is asked twice."""
    return _post("commit", answers.Accepted, body, repeatable=body.get("op_id") is not None)


def lease(key: str) -> Request[answers.LeaseInfo]:
    path = f"/v1/leases/{_part(key)}"
    return _read("get", answers.LeaseInfo, path, operation="get_lease", named={"key": key})


def leases(
    *, prefix: str = "", limit: int | None = None, after: str | None = None, owner: str | None = None
) -> Request[answers.LeasePage]:
    query = {"prefix": prefix, "limit": limit, "after": after, "owner": owner}
    return _read("list", answers.LeasePage, "/v1/leases", query, operation="list_leases")


def queue(key: str) -> Request[answers.Queue]:
    path = f"/v1/queues/{_part(key)}"
    return _read("queue", answers.Queue, path, operation="queue", named={"key": key})


def record(key: str) -> Request[answers.Record]:
    path = f"/v1/records/{_part(key)}"
    return _read("record", answers.Record, path, operation="get_record", named={"key": key})


def delete_record(key: str, *, if_revision: int | None = None) -> Request[dict[str, Any]]:
    query = {} if if_revision is None else {"if_revision": str(if_revision)}
    path = f"/v1/records/{_part(key)}"
    named = {"key": key} if if_revision is None else {"key": key, "if_revision": if_revision}
    return Request(
        "delete_record",
        "DELETE",
        path,
        dict[str, Any],
        if_revision is not None,
        query=query,
        operation="delete_record",
        named=named,
    )


def open_session(body: dict[str, Any]) -> Request[answers.SessionAnswer]:
    return Request(
        "open_session",
        "POST",
        "/v1/sessions",
        answers.SessionAnswer,
        True,
        False,
        _present(body),
        operation="open_session",
    )


def session(session_id: str) -> Request[answers.SessionAnswer]:
    path = f"/v1/sessions/{_part(session_id)}"
    named = {"session_id": session_id}
    return _read("session", answers.SessionAnswer, path, operation="get_session", named=named)


def close_session(session_id: str) -> Request[dict[str, Any]]:
    return Request(
        "close_session",
        "DELETE",
        f"/v1/sessions/{_part(session_id)}",
        dict[str, Any],
        True,
        operation="close_session",
        named={"session_id": session_id},
    )


def cluster() -> Request[answers.Cluster]:
    return _read("cluster", answers.Cluster, "/v1/cluster")


def nodes() -> Request[answers.Nodes]:
    return _read("nodes", answers.Nodes, "/v1/nodes")


def add_member(id: str, peer: str, http: str, readdress: bool) -> Request[answers.Members]:
    body: dict[str, Any] = {"id": id, "peer": peer, "http": http}
    if readdress:
        body["readdress"] = True
    return Request("add_member", "POST", "/v1/cluster/members", answers.Members, True, body=body)


def remove_member(id: str) -> Request[answers.Members]:
    path = f"/v1/cluster/members/{_part(id)}"
    return Request("remove_member", "DELETE", path, answers.Members, True)


def transfer(to: str | None) -> Request[answers.Transferred]:
    path = "/v1/cluster/transfer"
    return Request("transfer", "POST", path, answers.Transferred, False, body=_present({"to": to}))


def create_credential(body: dict[str, Any]) -> Request[answers.NewCredential]:
    path = "/v1/credentials"
    return Request("create_credential", "POST", path, answers.NewCredential, False, body=_present(body))


def rotate_credential(*, credential_id: str, overlap_ms: int | None) -> Request[answers.NewCredential]:
    body = _present({"credential_id": credential_id, "overlap_ms": overlap_ms})
    path = "/v1/credentials/rotate"
    return Request("rotate_credential", "POST", path, answers.NewCredential, False, body=body)


def credentials(*, tenant: str | None = None, after: str | None = None) -> Request[answers.CredentialPage]:
    query = {"tenant": tenant, "after": after}
    return _read("credentials", answers.CredentialPage, "/v1/credentials", query)


def revoke_credential(credential_id: str) -> Request[dict[str, Any]]:
    path = f"/v1/credentials/{_part(credential_id)}"
    return Request("revoke_credential", "DELETE", path, dict[str, Any], True)


def tenants(*, after: str | None = None) -> Request[answers.TenantPage]:
    return _read("tenants", answers.TenantPage, "/v1/tenants", {"after": after})


def set_quota(tenant: str, quota: Mapping[str, int]) -> Request[answers.QuotaAnswer]:
    body = {"tenant": tenant, **quota}
    return Request("set_quota", "POST", "/v1/quotas", answers.QuotaAnswer, True, body=body)


def reset_quota(tenant: str) -> Request[answers.QuotaAnswer]:
    return Request("reset_quota", "DELETE", f"/v1/quotas/{_part(tenant)}", answers.QuotaAnswer, True)


def audit(*, after: int, limit: int) -> Request[answers.AuditPage]:
    return _read("audit", answers.AuditPage, "/v1/audit", {"after": str(after), "limit": str(limit)})
