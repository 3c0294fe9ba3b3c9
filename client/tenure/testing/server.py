"""The calls of the public contract, answered by a lease machine in this process.

Requests are decoded and answers are made by the very modules that the server uses; what is left out is all
that makes a cluster of it: consensus, disk, forwarding, admission. What the cluster would refuse for its form
or its bounds is refused here too.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tenure.testing import proposing
from tenure.testing.watching import EventMemory
from tenure_cluster.lease import commands
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.results import Waiting
from tenure_cluster.lease.rules import PRESENT, AdoptRules
from tenure_cluster.service import reads, requests, validation
from tenure_cluster.service.answers import answer
from tenure_cluster.service.asks import READS, Ask
from tenure_cluster.service.errors import CODES, Problem

TENANT: Final = "default"
NODE: Final = "n1"
EXPIRE_MAX: Final = 1_000
BOUNDS: Final[Any] = SimpleNamespace(ttl_min_ms=1_000, ttl_max_ms=86_400_000)
"""In the place of settings.Leases, which is not there if no server is installed. The shortest TTL is the one
below which no cluster can be configured, so that a test need not take longer."""

_NAMED_POSTS: Final = (
    "acquire",
    "renew",
    "release",
    "handover",
    "park",
    "unpark",
    "abandon",
    "break",
    "resize",
    "validate",
    "commit",
)
_POSTS: Final = {f"/v1/{name}": name for name in _NAMED_POSTS} | {"/v1/sessions": "open_session"}
_BY_PREFIX: Final = {
    ("GET", "/v1/leases/"): ("get_lease", "key"),
    ("GET", "/v1/queues/"): ("queue", "key"),
    ("GET", "/v1/records/"): ("get_record", "key"),
    ("DELETE", "/v1/records/"): ("delete_record", "key"),
    ("GET", "/v1/sessions/"): ("get_session", "session_id"),
    ("DELETE", "/v1/sessions/"): ("close_session", "session_id"),
}
_INTEGERS: Final = frozenset({"limit", "if_revision"})


class Refused(Exception):
    """A request that is refused before it reaches the machine."""

    def __init__(self, code: str, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.problem = Problem(code, detail, extra)


class MemoryServer:
    """The machine, its cluster time, and the way in. Safe to use from any thread."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began_at = now()
        self._machine = LeaseMachine()
        self._machine.apply(0, AdoptRules(PRESENT, wall_ms=0))
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self.events = EventMemory()
        self.revision = 0
        """Counts what may have changed anything, so that a waiter knows when to look."""

    def now_ms(self) -> int:
        """Cluster time."""
        return int((self._now() - self._began_at) * 1000) + 1

    # -- answering

    def handle(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        """Answer a request at once. An acquire that has to wait is answered with its place in the queue."""
        try:
            path, _, query = target.partition("?")
            if (method, path) == ("POST", "/v1/batch"):
                return 200, self._batch(body)
            if (method, path) == ("GET", "/v1/cluster"):
                return 200, msgspec.json.encode(self._cluster())
            if (method, path) == ("GET", "/v1/nodes"):
                return 200, msgspec.json.encode(self._nodes())
            operation, fields = _route(method, path, query, body)
            reply = self._ask(operation, fields)
        except Refused as refused:
            reply = refused.problem
        if isinstance(reply, Problem):
            return reply.status, msgspec.json.encode(document(reply))
        status = 202 if getattr(reply, "status", "") == "waiting" else 200
        return status, msgspec.json.encode(reply)

    def _ask(self, operation: str, fields: dict[str, Any]) -> Any:
        try:
            request: Any = msgspec.convert(fields, requests.OPERATIONS[operation])
        except msgspec.ValidationError as error:
            raise Refused("invalid", str(error), path="$") from error
        if (problem := validation.check(request, BOUNDS)) is not None:
            return problem
        if isinstance(request, requests.AcquireRequest) and request.request_id is None:
            request = msgspec.structs.replace(request, request_id=self._mint("r"))
        ask = Ask(operation, TENANT, request)
        with self._lock:
            self.expire_due()
            now_ms = self.now_ms()
            if operation in READS:
                self._apply(commands.Tick(wall_ms=self._wall_ms()))
                return reads.read(ask, reads.View(self._machine.table, self._machine.table.time_ms, now_ms))
            result = self._apply(proposing.command(request, TENANT, self._mint, self._wall_ms()))
            if isinstance(result, Waiting) is False:
                self.revision += 1
            return answer(result, ask, self.now_ms())

    def _batch(self, body: bytes | None) -> bytes:
        results = []
        for op in msgspec.json.decode(body or b"{}")["ops"]:
            fields = dict(op)
            try:
                reply = self._ask(str(fields.pop("op", "")), fields)
            except Refused as refused:
                reply = refused.problem
            if isinstance(reply, Problem):
                results.append(document(reply))
                continue
            result = msgspec.to_builtins(reply)
            if "status" in result:
                result["result"] = result.pop("status")
            results.append({"status": 200, **result})
        return msgspec.json.encode({"results": results})

    def _cluster(self) -> dict[str, Any]:
        member = {"id": NODE, "role": "leader", "http": "http://fake", "peer": "fake:1"}
        indexes = dict.fromkeys(("commit_index", "applied_index", "last_index"), self.revision)
        return {
            "cluster_id": "fake",
            "node": NODE,
            "role": "leader",
            "leader": NODE,
            "leader_url": "http://fake",
            "term": 1,
            **indexes,
            "cluster_time_ms": self.now_ms(),
            "durability": "none",
            "version": "0",
            "members": [member],
        }

    def _nodes(self) -> dict[str, Any]:
        about = {
            "role": "leader",
            "term": 1,
            "last_index": self.revision,
            "applied_index": self.revision,
            "ready": True,
            "reason": "serving",
            "version": "0",
            "disk_free_bytes": 1 << 40,
            "disk_reserve_bytes": 0,
        }
        node = {"id": NODE, "http": "http://fake", "reached": True, "lag": 0, "about": about}
        return {"node": NODE, "leader": NODE, "term": 1, "nodes": [node]}

    def compacted(self, after: int | None) -> tuple[int, bytes] | None:
        """The refusal of a watch that would go on after what is not remembered any more."""
        horizon = self.events.horizon
        if after is None or after >= horizon:
            return None
        problem = Problem("compacted", f"nothing is kept after {after}", {"revision": horizon})
        return problem.status, msgspec.json.encode(document(problem))

    # -- time

    def expire_due(self) -> None:
        """What the reaper does: end what is over, so that waiters get their turn."""
        with self._lock:
            now_ms = self.now_ms()
            while due := self._machine.table.due(now_ms, EXPIRE_MAX):
                self._apply(commands.Expire(items=due, wall_ms=self._wall_ms()))
                self.revision += 1

    def expire_now(self, key: str) -> bool:
        """Let the session of the key's holder be over now, whatever it was renewed to."""
        with self._lock:
            self.expire_due()
            table = self._machine.table
            grants = table.holders(TENANT, key)
            for grant in grants:
                ref = (grant.session.tenant, grant.session.session_id)
                ended = msgspec.structs.replace(table.sessions[ref], deadline_ms=self.now_ms())
                table.sessions[ref] = ended
                item = commands.ExpireItem("session", *ref, ended.deadline_ms)
                self._apply(commands.Expire(items=[item], wall_ms=self._wall_ms()))
            self.revision += 1
            return bool(grants)

    def check(self) -> None:
        """Verify the machine's invariants."""
        with self._lock:
            self._machine.check()

    def left(self) -> tuple[list[str], list[str]]:
        """Keys that are held, and keys that are waited for: everything that is left."""
        with self._lock:
            self.expire_due()
            table = self._machine.table
            held = sorted(lease.key for lease in table.leases.values())
            return held, sorted(key for waiter in table.waiters.values() for key in waiter.keys)

    # -- the machine

    def _apply(self, command: commands.Command) -> Any:
        applied = self._machine.apply(self.now_ms(), command)
        self.events.extend(applied.events)
        return applied.result

    def _wall_ms(self) -> int:
        return 1_800_000_000_000 + self.now_ms()

    def _mint(self, kind: str) -> str:
        return f"{kind}-{next(self._ids)}"


def _route(method: str, path: str, query: str, body: bytes | None) -> tuple[str, dict[str, Any]]:
    if method == "POST" and path in _POSTS:
        try:
            return _POSTS[path], msgspec.json.decode(body or b"", type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise Refused("invalid", str(error), path="$") from error
    fields: dict[str, Any] = {
        name: int(value) if name in _INTEGERS else value
        for name, value in parse_qsl(urlsplit(f"?{query}").query, keep_blank_values=True)
    }
    if (method, path) == ("GET", "/v1/leases"):
        return "list_leases", fields
    for (at_method, prefix), (operation, name) in _BY_PREFIX.items():
        if method == at_method and path.startswith(prefix):
            return operation, {**fields, name: unquote(path.removeprefix(prefix))}
    raise Refused("no_route", f"Nothing is served at {method} {path}")


def document(problem: Problem) -> dict[str, Any]:
    status, title = CODES[problem.code]
    standard = {"title": title, "status": status, "detail": problem.detail, "code": problem.code}
    return {**msgspec.to_builtins(problem.extra), **standard}
