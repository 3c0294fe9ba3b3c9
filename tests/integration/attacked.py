"""What the tests of attacks share: a cluster that asks for credentials, raw bytes to its ports, and what it
must still be afterwards."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guarded_cluster import GuardedCluster
from live_cluster import LiveNode, until

ANSWER_TIMEOUT_S = 30.0
GROWTH_MAX_BYTES = 100 << 20
"""What no attack may make a node's memory grow by."""


class Reply:
    """One answer: status, header lines by lower-case name, body."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Raw:
    """A connection that sends exactly what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> "Raw":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def __aenter__(self) -> "Raw":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Reply:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            reply = Reply(head, b"")
            reply.body = await self.reader.readexactly(int(reply.headers.get("content-length", 0)))
            return reply

    async def rest(self, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
        """All that comes until the node closes the connection, which it must."""
        async with asyncio.timeout(timeout_s):
            try:
                return await self.reader.read(-1)
            except ConnectionError:
                return b""


def request(method: str, path: str, body: Any = None, bearer: str = "", **headers: str) -> bytes:
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Host": "tenure", "Content-Type": "application/json", "Content-Length": str(len(content))}
    if bearer:
        lines["Authorization"] = f"Bearer {bearer}"
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content


async def ask(node: LiveNode, method: str, path: str, body: Any = None, bearer: str = "") -> Reply:
    async with await Raw.open(node.http_port) as raw:
        raw.send(request(method, path, body, bearer))
        return await raw.answer()


def resident_bytes(node: LiveNode) -> int:
    for line in Path(f"/proc/{node.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


class Attacked:
    """A cluster with a tenant that holds a lease, which must live through what is done to the nodes."""

    def __init__(self, cluster: GuardedCluster) -> None:
        self.cluster = cluster
        self.bearer = ""
        self.lease: dict[str, Any] = {}
        self._before: dict[str, int] = {}

    @property
    def nodes(self) -> list[LiveNode]:
        return list(self.cluster.nodes.values())

    async def credential(self, tenant: str, **fields: Any) -> str:
        body = {"name": tenant, "tenant": tenant, "rights": ["acquire", "observe", "commit"], **fields}
        reply = await ask(self.nodes[0], "POST", "/v1/credentials", body, self.cluster.root)
        assert reply.status == 200, reply.body
        return str(reply.json["bearer"])

    async def begin(self) -> None:
        self.bearer = await self.credential("victim")
        body = {"key": "held", "owner": "victim", "ttl_ms": 600_000}
        self.lease = (await ask(self.nodes[0], "POST", "/v1/acquire", body, self.bearer)).json["lease"]
        self._before = {node.node_id: resident_bytes(node) for node in self.nodes}

    async def unharmed(self) -> None:
        """All nodes run, serve, have not grown, and the lease is what it was."""
        self.cluster.assert_all_run()
        for node in self.nodes:
            assert resident_bytes(node) - self._before[node.node_id] < GROWTH_MAX_BYTES
            held = await ask(node, "GET", "/v1/leases/held", bearer=self.bearer)
            assert (held.status, held.json["token"]) == (200, self.lease["token"]), held.body
        renewed = await ask(
            self.nodes[-1], "POST", "/v1/renew", {"lease_id": self.lease["lease_id"]}, self.bearer
        )
        assert renewed.status == 200, renewed.body

    async def audited(self, code: str, count: int, **expected: str) -> list[dict[str, Any]]:
        """Wait for so many refusals in the audit with this code and these members."""

        async def found() -> list[dict[str, Any]]:
            reply = await ask(self.nodes[0], "GET", "/v1/audit?limit=1000", bearer=self.cluster.root)
            records = [
                record
                for record in reply.json["records"]
                if record["kind"] == "refused"
                and record.get("code") == code
                and all(record.get(name) == value for name, value in expected.items())
            ]
            return records if sum(record.get("count") or 1 for record in records) >= count else []

        records: list[dict[str, Any]] = await until(found, 60, f"{count} refusals with {code}", 0.2)
        return records

    def logged(self, told: str) -> list[str]:
        """Lines of any node's log that have this."""
        return [line for node in self.nodes for line in node.log_text().splitlines() if told in line]


@contextlib.contextmanager
def attacked(directory: Path, *, nodes: int = 3, **sections: dict[str, Any]) -> Iterator[Attacked]:
    """A cluster for all tests of a module."""
    cluster = GuardedCluster(directory, nodes=nodes, **sections)
    made = Attacked(cluster)

    async def begin() -> None:
        await cluster.__aenter__()
        await made.begin()

    try:
        asyncio.run(begin())
        yield made
    finally:
        cluster.kill_everything()
