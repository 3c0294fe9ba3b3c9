"""A real node of one, in this process, on a thread and event loop of its own."""

import asyncio
import http.client
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

from tenure_cluster.api.app import HttpFront
from tenure_cluster.api.limits import HttpLimits
from tenure_cluster.node import Node
from tenure_cluster.settings import Auth, Config, Http, Jwt, Leases, Member, Peer, Watch

START_TIMEOUT_S = 20.0

CONNECTIONS_MAX = 20
READ_TIMEOUT_MS = 600
IDLE_TIMEOUT_MS = 1_200
WRITE_TIMEOUT_MS = 600
"""Limits of the front that the fixture ``small`` starts."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RunningNode:
    """A node that serves until ``stop``."""

    def __init__(
        self,
        directory: Path,
        watch: dict[str, int] | None = None,
        auth: Auth | None = None,
        jwt: Jwt | None = None,
        **http: int,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        peer = f"127.0.0.1:{free_port()}"
        self._config = Config(
            cluster_id="api-tests",
            node_id="n1",
            data_dir=directory,
            durability="os",
            http=Http(listen=f"127.0.0.1:{self.port}", advertise=self.url, **http),
            peer=Peer(listen=peer, advertise=peer),
            members={"n1": Member(peer=peer, http=self.url)},
            leases=Leases(ttl_min_ms=3_000),
            watch=Watch(**(watch or {})),
            auth=auth or Auth(),
            jwt=jwt or Jwt(),
        )
        self._config.validate()
        self._stop = asyncio.Event()
        self._fronts: list[HttpFront] = []
        self._failure: BaseException | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="node")
        self._thread.start()
        self._await_ready()

    def _serve(self) -> None:
        try:
            self.loop.run_until_complete(self._run())
        except BaseException as failure:
            self._failure = failure
        finally:
            self.loop.close()

    async def _run(self) -> None:
        self.node = Node(self._config)
        await self.node.start()
        await self._stop.wait()
        await self.node.stop()
        for front in self._fronts:
            await front.stop()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._failure is None, self._failure
            try:
                # The beginning of the audit is the last entry that comes by itself.
                if self.get("/readyz")[0] == 200 and self.node.replica.table.audit.on:
                    return
            except OSError:
                pass
            assert time.monotonic() < deadline, "the node did not become ready"
            time.sleep(0.01)

    def get(self, target: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", target)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def serve_also(self, limits: HttpLimits) -> int:
        """Serve the same service with other limits too, until the node stops; the port."""

        async def start() -> HttpFront:
            front = HttpFront(
                self.node.service, version="0", wall_ms=lambda: 0, request_id_prefix="also", limits=limits
            )
            await front.start("127.0.0.1:0")
            return front

        front = asyncio.run_coroutine_threadsafe(start(), self.loop).result(timeout=10)
        self._fronts.append(front)
        return front.port

    def replica_has_credentials(self) -> bool:
        """Whether somebody can be let in."""
        return bool(self.node.replica.table.credentials)

    def last_index(self) -> int:
        """Index of the last entry of the node's log."""
        return int(self.get("/v1/cluster")[1]["last_index"])

    def stop(self) -> None:
        """Stop the node as a signal would, and wait until it has."""
        self.begin_stop()
        self._thread.join(timeout=30)
        assert not self._thread.is_alive(), "the node did not stop"
        if self._failure is not None:
            raise self._failure

    def begin_stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._stop.set)
