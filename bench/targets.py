"""The systems under load: a cluster of this project, and for comparison one of etcd, each of three local
processes.

Both sync every write on every node. The clients talk to the leader of each, as a client library that
follows hints does.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "integration"))

from live_cluster import LiveCluster, free_ports, until
from live_cluster import LiveNode as LiveNode
from load import Script
from raw_http import HttpAnswer, NoAnswer, NotSent, fetch, request_bytes
from raw_http import HttpConnection as HttpConnection


class Refused(ValueError):
    """An answer that a measured run must not see."""


_numbers = itertools.count()


class Pair:
    """Acquire a key of one's own and release it."""

    def __init__(self, index: int) -> None:
        self.number = next(_numbers)
        self.count = 0
        self.unit_done = True

    def first(self) -> bytes:
        self.count += 1
        name = f"bench-{self.number}-{self.count}"
        return request_bytes(
            "POST",
            "/v1/acquire",
            b'{"key":"bench/%d","owner":"agent-%d","ttl_ms":30000,"request_id":"%s"}'
            % (self.number, self.number, name.encode()),
        )

    def next(self, status: int, body: bytes) -> bytes:
        if status != 200:
            raise Refused(f"{status} {body!r}")
        self.unit_done = not self.unit_done
        if self.unit_done:
            return self.first()
        at = body.index(b'"lease_id":"') + 12
        lease_id = body[at : body.index(b'"', at)]
        return request_bytes("POST", "/v1/release", b'{"lease_id":"%s"}' % lease_id)


class Renewal:
    """Acquire once, then renew for ever."""

    unit_done = True

    def __init__(self, index: int) -> None:
        self.number = next(_numbers)
        self.request = b""

    def first(self) -> bytes:
        body = b'{"key":"renewed/%d","owner":"agent","ttl_ms":60000}' % self.number
        return request_bytes("POST", "/v1/acquire", body)

    def next(self, status: int, body: bytes) -> bytes:
        if status != 200:
            raise Refused(f"{status} {body!r}")
        if not self.request:
            at = body.index(b'"lease_id":"') + 12
            lease_id = body[at : body.index(b'"', at)]
            self.request = request_bytes("POST", "/v1/renew", b'{"lease_id":"%s"}' % lease_id)
        return self.request


class TenureTarget:
    """Three nodes of this project."""

    name = "tenure"

    def __init__(self, directory: Path, durability: str) -> None:
        self.cluster = LiveCluster(directory / "tenure", durability=durability)
        self.works: dict[str, Callable[[int], Script]] = {"acquire+release": Pair, "renew": Renewal}
        self.host, self.port = "127.0.0.1", 0
        self._pids: list[int] = []

    async def start(self) -> None:
        await self.cluster.__aenter__()
        leader = await self.cluster.leader()
        self.port = leader.http_port
        followers = [node for node in self.cluster.nodes.values() if node is not leader]
        self._pids = [leader.pid, *(node.pid for node in followers)]

    async def leader_stays(self) -> bool:
        return (await self.cluster.leader()).http_port == self.port

    def cpu_s(self) -> list[float]:
        """CPU seconds so far: the leader's, then each follower's."""
        return [cpu_s_of(pid) for pid in self._pids]

    def stop(self) -> None:
        self.cluster.kill_everything()


class EtcdLockPair:
    """Lock and unlock through etcd's lock service, under one lease for the client's whole life."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.lease = ""
        self.unit_done = False
        self.step = 0

    def first(self) -> bytes:
        return request_bytes("POST", "/v3/lease/grant", b'{"TTL":600}')

    def _lock(self) -> bytes:
        body = {"name": base64_text(f"bench/{self.index}"), "lease": self.lease}
        return request_bytes("POST", "/v3/lock/lock", json.dumps(body).encode())

    def next(self, status: int, body: bytes) -> bytes:
        if status != 200:
            raise Refused(f"{status} {body!r}")
        if not self.lease:
            self.lease = json.loads(body)["ID"]
            self.unit_done = True
            return self._lock()
        self.step += 1
        self.unit_done = self.step % 2 == 0
        if self.unit_done:
            return self._lock()
        key = json.loads(body)["key"]
        return request_bytes("POST", "/v3/lock/unlock", b'{"key":"%s"}' % key.encode())


class EtcdLeasePair:
    """A lease for each lock: grant it, create the key under it, revoke it. What a TTL per lock costs
    there.
    """

    def __init__(self, index: int) -> None:
        self.key = base64_text(f"leased/{index}")
        self.lease = ""
        self.unit_done = False
        self.step = 0

    def first(self) -> bytes:
        return request_bytes("POST", "/v3/lease/grant", b'{"TTL":30}')

    def next(self, status: int, body: bytes) -> bytes:
        if status != 200:
            raise Refused(f"{status} {body!r}")
        self.step = (self.step + 1) % 3
        self.unit_done = self.step == 0
        if self.step == 1:
            self.lease = json.loads(body)["ID"]
            compare = {"key": self.key, "target": "CREATE", "create_revision": "0", "result": "EQUAL"}
            put = {"request_put": {"key": self.key, "value": "YQ==", "lease": self.lease}}
            transaction = {"compare": [compare], "success": [put]}
            return request_bytes("POST", "/v3/kv/txn", json.dumps(transaction).encode())
        if self.step == 2:
            if not json.loads(body).get("succeeded"):
                raise Refused(f"the key was there: {body!r}")
            return request_bytes("POST", "/v3/lease/revoke", b'{"ID":"%s"}' % self.lease.encode())
        return self.first()


class EtcdKeepalive:
    """Keep one lease alive; etcd does not replicate that."""

    unit_done = True

    def __init__(self, index: int) -> None:
        self.request = b""

    def first(self) -> bytes:
        return request_bytes("POST", "/v3/lease/grant", b'{"TTL":600}')

    def next(self, status: int, body: bytes) -> bytes:
        if status != 200:
            raise Refused(f"{status} {body!r}")
        if not self.request:
            lease = json.loads(body)["ID"].encode()
            self.request = request_bytes("POST", "/v3/lease/keepalive", b'{"ID":"%s"}' % lease)
        return self.request


class EtcdTarget:
    """Three members of etcd, reached by its JSON gateway."""

    name = "etcd"

    def __init__(self, directory: Path, binary: str) -> None:
        self.directory = directory / "etcd"
        self.binary = binary
        self.works: dict[str, Callable[[int], Script]] = {
            "acquire+release": EtcdLockPair,
            "acquire+release, lease per lock": EtcdLeasePair,
            "renew": EtcdKeepalive,
        }
        self.host, self.port = "127.0.0.1", 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pids: list[int] = []

    async def start(self) -> None:
        self.directory.mkdir(parents=True)
        ports = free_ports(6)
        clients, peers = ports[:3], ports[3:]
        members = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(peers))
        for i in range(3):
            own, peer = f"http://127.0.0.1:{clients[i]}", f"http://127.0.0.1:{peers[i]}"
            arguments = [self.binary, "--name", f"m{i}", "--data-dir", str(self.directory / f"m{i}")]
            arguments += ["--listen-client-urls", own, "--advertise-client-urls", own]
            arguments += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            arguments += ["--initial-cluster", members, "--initial-cluster-state", "new"]
            with (self.directory / f"m{i}.log").open("wb") as log:
                self._processes.append(start_process(arguments, log))
        leader = await until(lambda: self._leader(clients), 30.0, "etcd's leader", 0.1)
        at = leader - 1
        self.port = clients[at]
        self._pids = [self._processes[at].pid, *(self._processes[i].pid for i in range(3) if i != at)]

    async def _leader(self, ports: Sequence[int]) -> int | None:
        """1 + the index of the leader; None while there is none."""
        for i, port in enumerate(ports):
            status = await self._status(port)
            if status is not None and status.get("leader") == status["header"]["member_id"]:
                return i + 1
        return None

    async def _status(self, port: int) -> dict[str, Any] | None:
        try:
            answer: HttpAnswer = await fetch(
                f"http://127.0.0.1:{port}", "POST", "/v3/maintenance/status", b"{}"
            )
        except (NotSent, NoAnswer):
            return None
        return json.loads(answer.body) if answer.status == 200 else None

    async def leader_stays(self) -> bool:
        status = await self._status(self.port)
        return status is not None and status.get("leader") == status["header"]["member_id"]

    def cpu_s(self) -> list[float]:
        return [cpu_s_of(pid) for pid in self._pids]

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def start_process(arguments: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def cpu_s_of(pid: int) -> float:
    """CPU time of a process so far, user and system: what the scheduler has counted of its threads where that
    is told, which is exact, else what was found at the ticks of the clock."""
    with contextlib.suppress(FileNotFoundError):
        threads = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
        if threads:
            return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def base64_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def install_uvloop() -> str:
    """Use uvloop in this process if it is installed; returns the loop's name."""
    try:
        import uvloop
    except ImportError:
        return "asyncio"
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    return "uvloop"
