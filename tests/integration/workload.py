"""Clients that use a live cluster as agents would, and record every call.

Each writer works in a closed loop: acquire with or without waiting, renew, commit, read, then release,
abandon or walk away. What ends unknown is asked again with the same request_id, lease_id or op_id until the
answer is definite. An acquire's owner label is its request_id, so that every holder, waiter and record that
an answer shows can be traced.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec
from history import Call, History, outcome_of
from raw_http import HttpConnection, NoAnswer, NotSent, request_bytes

UNAVAILABLE_S_MAX: Final = 90.0
"""A client that gets no definite answer for this long has failed the run. Above what several faults in a
row can take on a busy machine, where starting three processes takes seconds.
"""

GUARD_MODES: Final = ("current", "once", "sequence")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Stuck(AssertionError):
    """The cluster gave no definite answer within UNAVAILABLE_S_MAX."""


def wire(op: str, body: dict[str, Any]) -> bytes:
    """The HTTP request of an operation."""
    if op in ("get_lease", "queue", "get_record"):
        part = {"get_lease": "leases", "queue": "queues", "get_record": "records"}[op]
        return request_bytes("GET", f"/v1/{part}/{quote(body['key'])}")
    if op == "list_leases":
        query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in body.items())
        return request_bytes("GET", f"/v1/leases?{query}")
    if op == "open_session":
        return request_bytes("POST", "/v1/sessions", _encode(body))
    if op == "close_session":
        return request_bytes("DELETE", f"/v1/sessions/{quote(body['session_id'])}")
    return request_bytes("POST", f"/v1/{op}", _encode(body))


class Client:
    """One process of a history: calls one node at a time and goes to the next when that one fails it."""

    def __init__(
        self, process: str, endpoints: Sequence[tuple[str, str]], history: History, *, first: int = 0
    ) -> None:
        self.process = process
        self.history = history
        self._endpoints = list(endpoints)
        self._at = first % len(self._endpoints)
        self._connections: dict[str, HttpConnection] = {}
        self._random = random.Random(process)

    async def call(self, op: str, body: dict[str, Any], timeout_s: float = 3.0) -> Call:
        """One attempt at the present node, recorded."""
        node, url = self._endpoints[self._at]
        invoked_s = time.monotonic()
        status = 0
        answer: dict[str, Any] = {}
        try:
            connection = self._connections.get(node)
            if connection is None or not connection.usable:
                connection = self._connections[node] = await HttpConnection.open(url, timeout_s)
            reply = await connection.send(wire(op, body), timeout_s)
            status, answer = reply.status, _decode(reply.body) if reply.body else {}
            outcome = outcome_of(status, answer)
        except NotSent as error:
            outcome, answer = "not_executed", {"error": str(error)}
        except NoAnswer as error:
            outcome, answer = "unknown", {"error": str(error)}
        call = Call(self.process, op, body, node, invoked_s, time.monotonic(), outcome, status, answer)
        self.history.add(call)
        if outcome in ("unknown", "not_executed"):
            self._at = (self._at + 1) % len(self._endpoints)
        return call

    async def until_definite(self, op: str, body: dict[str, Any], timeout_s: float = 3.0) -> Call:
        """Ask again, the same, until the answer is one that says what happened."""
        deadline = time.monotonic() + UNAVAILABLE_S_MAX
        while True:
            call = await self.call(op, body, timeout_s)
            if call.outcome not in ("unknown", "not_executed"):
                return call
            if time.monotonic() > deadline:
                raise Stuck(f"{self.process}: {op} got no definite answer for {UNAVAILABLE_S_MAX} s: {call}")
            await asyncio.sleep(self._random.uniform(0.005, 0.05))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


class Load:
    """The shared frame of a run: its history, its stop signal, and the tasks of its clients."""

    def __init__(self, endpoints: Sequence[tuple[str, str]], *, seed: int) -> None:
        self.endpoints = list(endpoints)
        self.history = History()
        self.seed = seed
        self.stopping = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.kept: list[str] = []
        """Leases that a writer walked away from."""
        self._clients: list[Client] = []

    def client(self, process: str, first: int = 0) -> Client:
        client = Client(process, self.endpoints, self.history, first=first)
        self._clients.append(client)
        return client

    def start(self, *, writers: int = 16, keys: int = 64, pause_s: float = 0.01, holders: int = 4) -> None:
        """Start the writers, and beside them holders that keep one key each with two waiters in its queue."""
        for i in range(writers):
            writer = Writer(self, f"w{i}", [f"load/{k:02}" for k in range(keys)], pause_s, i)
            self.tasks.append(asyncio.create_task(writer.run()))
        for i in range(holders):
            self.tasks.append(asyncio.create_task(hold_and_queue(self, i)))

    def check_alive(self) -> None:
        """Raise what ended any client early."""
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def stop(self) -> None:
        """Let every client finish what it is about; raises what went wrong in any."""
        self.stopping.set()
        await asyncio.gather(*self.tasks)

    async def settle(self, keys: int = 64) -> None:
        """Ask for the final state of everything, then show that every key can still be had."""
        client = self.client("settle")
        for lease_id in self.kept:
            await client.until_definite("renew", {"lease_id": lease_id})
        for k in range(keys):
            key = f"load/{k:02}"
            for op in ("get_lease", "queue", "get_record"):
                await client.until_definite(op, {"key": key})
        await asyncio.gather(*(self._have(f"load/{k:02}", k) for k in range(keys)))

    async def _have(self, key: str, first: int) -> None:
        """Whatever was left on a key must run out: get it within the longest TTL and some, and give it
        back."""
        client = self.client(f"settle.{key}", first)
        body = acquire_body(f"settle-{self.seed}-{key}", key, 3_000, wait_ms=2_000)
        deadline = time.monotonic() + 20.0
        while (call := await client.until_definite("acquire", body, 6.0)).answer.get("status") != "granted":
            assert call.outcome == "ok", f"{key} is refused: {call}"
            assert time.monotonic() < deadline, f"{key} is not free 20 s after the load has ended: {call}"
        await client.until_definite("release", {"lease_id": call.answer["lease"]["lease_id"]})
        client.close()

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        for client in self._clients:
            client.close()


def acquire_body(request_id: str, key: str, ttl_ms: int | None, **more: Any) -> dict[str, Any]:
    body = {"request_id": request_id, "owner": request_id, "key": key, **more}
    return body if ttl_ms is None else body | {"ttl_ms": ttl_ms}


class Writer:
    """One agent: its choices come from a random stream of its own, so a seed gives every run the same
    intentions."""

    def __init__(self, load: Load, name: str, keys: list[str], pause_s: float, index: int) -> None:
        self.load = load
        self.name = name
        self.keys = keys
        self.pause_s = pause_s
        self.client = load.client(name, index)
        self.random = random.Random(f"{load.seed}/{name}")
        self.count = 0
        self.session_id: str | None = None
        self.session_renewed_s = 0.0

    async def run(self) -> None:
        while not self.load.stopping.is_set():
            await self._one()
            await asyncio.sleep(self.random.uniform(0, 2 * self.pause_s))

    def _next_id(self) -> str:
        self.count += 1
        return f"{self.name}-{self.load.seed}-{self.count}"

    async def _one(self) -> None:
        """One round: get a key (or not), use it, part with it."""
        index = self.random.randrange(8 if self.random.random() < 0.25 else len(self.keys))
        key = self.keys[index]
        session_id = await self._session() if self.random.random() < 0.3 else None
        ttl_ms = None if session_id else self.random.choice((3_000, 4_000, 6_000))
        body = acquire_body(self._next_id(), key, ttl_ms)
        if session_id:
            body["session_id"] = session_id
        elif self.random.random() < 0.1:
            body["grace_ms"] = 200
        lease = await self._get(body)
        if lease is None:
            return
        for step in range(self.random.randrange(4)):
            if not await self._use(lease, GUARD_MODES[index % 3], step):
                break
        await self._part(body, lease)

    async def _get(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Acquire, waiting a while in half of the cases; what was given up is abandoned."""
        if self.random.random() < 0.5:
            call = await self.client.call("acquire", body)
            if call.outcome == "not_executed" and self.random.random() < 0.5:
                return None
        else:
            body["wait_ms"] = self.random.choice((200, 500, 1_000))
            call = await self.client.call("acquire", body, 4.0)
        slices = self.random.randrange(1, 4)
        while call.outcome in ("unknown", "not_executed") or call.answer.get("status") == "waiting":
            if call.answer.get("status") == "waiting":
                slices -= 1
            if slices < 0 or (call.outcome == "unknown" and self.random.random() < 0.1):
                await self._abandon(body)
                return None
            call = await self.client.until_definite("acquire", body, 4.0)
        if call.code in ("session_expired", "no_session"):
            self.session_id = None
        lease: dict[str, Any] | None = call.answer.get("lease")
        return lease

    async def _use(self, lease: dict[str, Any], mode: str, step: int) -> bool:
        """One renewal, commit or read; false once the lease is gone."""
        choice = self.random.random()
        if choice < 0.35:
            call = await self.client.until_definite("renew", {"lease_id": lease["lease_id"]})
        elif choice < 0.85:
            op_id = self._next_id()
            body = {"key": lease["key"], "lease_id": lease["lease_id"], "token": lease["token"], "mode": mode}
            body |= {"op_id": op_id, "value": f"value of {op_id}"}
            if mode == "sequence":
                body["seq"] = self.random.randrange(step + 1) + 1
            if self.random.random() < 0.1:
                body["require_live"] = False
            call = await self.client.until_definite("commit", body)
            return call.outcome == "ok" or call.code in ("token_used", "seq_replayed")
        elif choice < 0.95:
            call = await self.client.until_definite("get_lease", {"key": lease["key"]})
        else:
            call = await self.client.until_definite("get_record", {"key": lease["key"]})
        return call.outcome == "ok"

    async def _part(self, body: dict[str, Any], lease: dict[str, Any]) -> None:
        choice = self.random.random()
        if choice < 0.94:
            await self.client.until_definite("release", {"lease_id": lease["lease_id"]})
            if choice < 0.1:
                await self.client.until_definite("release", {"lease_id": lease["lease_id"]})
            elif choice < 0.15:
                await self.client.until_definite("renew", {"lease_id": lease["lease_id"]})
        elif choice < 0.98:
            await self._abandon(body)
        else:
            self.load.kept.append(lease["lease_id"])

    async def _abandon(self, body: dict[str, Any]) -> None:
        """Give the acquire up; now and then ask again, which must not grant any more."""
        asked = {"request_id": body["request_id"]}
        if "session_id" in body:
            asked["session_id"] = body["session_id"]
        await self.client.until_definite("abandon", asked)
        if self.random.random() < 0.3:
            await self.client.until_definite("acquire", body, 4.0)

    async def _session(self) -> str | None:
        """The writer's own session, opened or renewed when it is due."""
        due = time.monotonic() > self.session_renewed_s + 2.0
        if self.session_id is not None and due:
            call = await self.client.until_definite("renew", {"session_id": self.session_id})
            if call.outcome != "ok":
                self.session_id = None
        if self.session_id is None:
            call = await self.client.until_definite("open_session", {"owner": self.name, "ttl_ms": 6_000})
            self.session_id = call.answer["session"]["session_id"]
        if due:
            self.session_renewed_s = time.monotonic()
        return self.session_id


async def hold_and_queue(load: Load, index: int) -> None:
    """Hold a key, with two waiters in its queue all the while."""
    key = f"hold/{index}"
    held = asyncio.Event()

    async def wait(number: int) -> None:
        await held.wait()
        await queue_up(load, f"q{index}.{number}", key, index + number + 1)

    async with asyncio.TaskGroup() as group:
        group.create_task(hold(load, f"h{index}", key, index, held))
        group.create_task(wait(0))
        group.create_task(wait(1))


async def hold(load: Load, process: str, key: str, first: int, held: asyncio.Event) -> None:
    """Get a key at once and keep it by renewals through everything that happens; give it back at the end."""
    client = load.client(process, first)
    body = acquire_body(f"{process}-{load.seed}", key, 60_000)
    call = await client.until_definite("acquire", body)
    lease = call.answer["lease"]
    held.set()
    while not load.stopping.is_set():
        renewed = await client.until_definite("renew", {"lease_id": lease["lease_id"]})
        assert renewed.outcome == "ok", f"a lease of 60 s, renewed all the time, was lost: {renewed}"
        assert renewed.answer["lease"]["token"] == lease["token"], f"the token changed: {renewed}"
        await asyncio.sleep(0.3)
    replay = await client.until_definite("acquire", body)
    assert replay.answer.get("replayed") is True, f"asking again did not find the same grant: {replay}"
    await client.until_definite("release", {"lease_id": lease["lease_id"]})


async def queue_up(load: Load, process: str, key: str, first: int) -> None:
    """Wait for a key until it comes, however long that takes; then give it back."""
    client = load.client(process, first)
    wait = acquire_body(f"{process}-{load.seed}", key, 10_000, wait_ms=1_500)
    while True:
        call = await client.until_definite("acquire", wait, 5.0)
        if call.code == "held":
            raise AssertionError(f"a waiting acquire was refused: {call}")
        if call.answer.get("status") == "granted":
            break
    await client.until_definite("release", {"lease_id": call.answer["lease"]["lease_id"]})
