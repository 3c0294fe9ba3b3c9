"""Tenure's client: leases bounded in time, fenced by tokens that only rise.

    async with tenure.connect("http://127.0.0.1:7601,http://127.0.0.1:7602") as client:
        async with client.lease("payment/security/42", ttl=30, owner="agent-a") as held:
            await held.commit("paid")

Importing this module loads nothing but the errors; the client and the HTTP library come with ``connect``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.errors import (
    ClusterUnavailable,
    CommitRefused,
    InvalidRequest,
    LeaseLost,
    LeaseUnavailable,
    NotAuthorized,
    OutcomeUnknown,
    QuotaExceeded,
    TenureError,
)

if TYPE_CHECKING:
    from tenure._endpoints import DEFAULT_ENDPOINTS
    from tenure._handle import State
    from tenure._successor import Successor
    from tenure.aio import Client, Held, Lease, connect
    from tenure.answers import Event, EventKind, Grant, Holder, LeaseInfo, Progress, Queue, Record, Session
    from tenure.sync import SyncClient, SyncHeld, SyncLease, SyncSuccessor, connect_sync

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_ENDPOINTS",
    "Client",
    "ClusterUnavailable",
    "CommitRefused",
    "Event",
    "EventKind",
    "Grant",
    "Held",
    "Holder",
    "InvalidRequest",
    "Lease",
    "LeaseInfo",
    "LeaseLost",
    "LeaseUnavailable",
    "NotAuthorized",
    "OutcomeUnknown",
    "Progress",
    "Queue",
    "QuotaExceeded",
    "Record",
    "Session",
    "State",
    "Successor",
    "SyncClient",
    "SyncHeld",
    "SyncLease",
    "SyncSuccessor",
    "TenureError",
    "connect",
    "connect_sync",
]

_LOADED_ON_USE = {
    "DEFAULT_ENDPOINTS": "tenure._endpoints",
    "Client": "tenure.aio",
    "Held": "tenure.aio",
    "Lease": "tenure.aio",
    "State": "tenure._handle",
    "Successor": "tenure._successor",
    "SyncClient": "tenure.sync",
    "SyncHeld": "tenure.sync",
    "SyncLease": "tenure.sync",
    "SyncSuccessor": "tenure.sync",
    "connect": "tenure.aio",
    "connect_sync": "tenure.sync",
    "Event": "tenure.answers",
    "EventKind": "tenure.answers",
    "Grant": "tenure.answers",
    "Holder": "tenure.answers",
    "LeaseInfo": "tenure.answers",
    "Progress": "tenure.answers",
    "Queue": "tenure.answers",
    "Record": "tenure.answers",
    "Session": "tenure.answers",
}


def __getattr__(name: str) -> object:
    module = _LOADED_ON_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
