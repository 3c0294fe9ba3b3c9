"""Requests become commands, as the server's leader makes them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from tenure_cluster.lease import commands
from tenure_cluster.service import requests

Mint = Callable[[str], str]
"""Makes a fresh id; its argument says of what."""


def command(request: Any, tenant: str, mint: Mint, wall_ms: int) -> commands.Command:
    """The command that a request is proposed as."""
    return _COMMANDS[type(request)](request, tenant, mint, wall_ms)


def _acquire(request: requests.AcquireRequest, tenant: str, mint: Mint, wall_ms: int) -> commands.Command:
    keys = [request.key] if request.key is not None else request.keys or []
    return commands.Acquire(
        tenant=tenant,
        keys=keys,
        lease_ids=[mint("l") for _ in keys],
        owner=request.owner,
        session_id=request.session_id,
        ttl_ms=request.ttl_ms,
        request_id=request.request_id or "",
        remember=True,
        wait=request.wait_ms > 0,
        mode=request.mode,
        slots=request.slots or 1,
        grace_ms=request.grace_ms,
        if_held=request.if_held,
        metadata=request.metadata,
        wall_ms=wall_ms,
        progress_ms=request.progress_ms or 0,
    )


def _renew(request: requests.RenewRequest, tenant: str, mint: Mint, wall_ms: int) -> commands.Command:
    note = request.progress
    return commands.Renew(
        tenant=tenant,
        lease_id=request.lease_id,
        session_id=request.session_id,
        ttl_ms=request.ttl_ms,
        wall_ms=wall_ms,
        progress=None if note is None else commands.ProgressNote(note.step, note.text, note.counter),
    )


def _commit(request: requests.CommitRequest, tenant: str, mint: Mint, wall_ms: int) -> commands.Command:
    value = request.value
    binary = request.value_encoding == "base64"
    data = None if value is None else base64.b64decode(value) if binary else value.encode()
    return commands.Commit(
        tenant=tenant,
        key=request.key,
        slot=request.slot,
        lease_id=request.lease_id,
        token=request.token,
        mode=request.mode,
        seq=request.seq,
        op_id=request.op_id,
        require_live=request.require_live,
        if_revision=request.if_revision,
        value=data,
        binary=binary,
        digest=request.digest or "",
        wall_ms=wall_ms,
    )


def _handover(request: requests.HandoverRequest, tenant: str, mint: Mint, wall_ms: int) -> commands.Command:
    return commands.Handover(
        tenant=tenant,
        lease_id=request.lease_id,
        to_session_id=request.to_session_id,
        new_lease_id=mint("l"),
        wall_ms=wall_ms,
    )


def _unpark(request: requests.UnparkRequest, tenant: str, mint: Mint, wall_ms: int) -> commands.Command:
    return commands.Unpark(
        tenant=tenant,
        lease_id=request.lease_id,
        session_id=request.session_id,
        ttl_ms=request.ttl_ms,
        wall_ms=wall_ms,
    )


def _open_session(
    request: requests.OpenSessionRequest, tenant: str, mint: Mint, wall_ms: int
) -> commands.Command:
    return commands.OpenSession(
        tenant=tenant,
        session_id=mint("s"),
        owner=request.owner,
        ttl_ms=request.ttl_ms,
        metadata=request.metadata,
        wall_ms=wall_ms,
    )


_COMMANDS: Final[dict[type, Callable[[Any, str, Mint, int], commands.Command]]] = {
    requests.AcquireRequest: _acquire,
    requests.RenewRequest: _renew,
    requests.CommitRequest: _commit,
    requests.HandoverRequest: _handover,
    requests.UnparkRequest: _unpark,
    requests.OpenSessionRequest: _open_session,
    requests.ReleaseRequest: lambda request, tenant, mint, wall_ms: commands.Release(
        tenant=tenant, lease_id=request.lease_id, wall_ms=wall_ms, whole_set=request.whole_set
    ),
    requests.ParkRequest: lambda request, tenant, mint, wall_ms: commands.Park(
        tenant=tenant, lease_id=request.lease_id, limit_ms=request.limit_ms, wall_ms=wall_ms
    ),
    requests.AbandonRequest: lambda request, tenant, mint, wall_ms: commands.Abandon(
        tenant=tenant, request_id=request.request_id, session_id=request.session_id, wall_ms=wall_ms
    ),
    requests.BreakRequest: lambda request, tenant, mint, wall_ms: commands.Break(
        tenant=tenant, key=request.key, reason=request.reason, actor="", wall_ms=wall_ms
    ),
    requests.ResizeRequest: lambda request, tenant, mint, wall_ms: commands.Resize(
        tenant=tenant, key=request.key, slots=request.slots, actor=tenant, wall_ms=wall_ms
    ),
    requests.DeleteRecordRequest: lambda request, tenant, mint, wall_ms: commands.DeleteRecord(
        tenant=tenant, key=request.key, if_revision=request.if_revision, wall_ms=wall_ms
    ),
    requests.CloseSessionRequest: lambda request, tenant, mint, wall_ms: commands.CloseSession(
        tenant=tenant, session_id=request.session_id, wall_ms=wall_ms
    ),
}
