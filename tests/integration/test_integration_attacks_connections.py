"""Twenty thousand connections of strangers to a node, silent and slow ones: whoever is known goes on."""

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from guarded_cluster import GuardedCluster
from live_cluster import LiveNode, until
from raw_http import HttpConnection

import tenure

pytestmark = [pytest.mark.process, pytest.mark.slow]

CONNECTIONS = 20_000
PROCESSES = 4
"""Each with a source address of its own: one has no more than 28,000 ports for one target."""
SPARE_FILES = 200
FEWEST = 4_000
HEARTBEAT_MAX_S = 5.0
"""The longest that a heartbeat may take on a machine that opens all these connections meanwhile."""


class Attackers:
    """Processes of attack_connections.py."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def told(self) -> int:
        """Wait until each has done its step; the sum of what they tell."""
        total = 0
        for process in self._processes:
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), 240)
            total += int(line.split()[1])
        return total

    async def go_on(self) -> int:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
        return await self.told()


@asynccontextmanager
async def attackers(port: int, connections: int) -> AsyncIterator[Attackers]:
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(__file__).with_name("attack_connections.py"))),
            *(str(port), str(connections // PROCESSES), f"127.0.0.{number + 2}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(PROCESSES)
    ]
    try:
        yield Attackers(processes)
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
        for process in processes:
            await process.communicate()


class Heartbeats:
    """A lease that is renewed four times a second over one connection, which must never be closed."""

    def __init__(self, node: LiveNode, bearer: str) -> None:
        self._node = node
        self._head = f"Host: tenure\r\nAuthorization: Bearer {bearer}\r\nContent-Type: application/json\r\n"
        self.took_s: list[float] = []

    async def _ask(self, connection: HttpConnection, path: str, body: dict[str, object]) -> dict[str, object]:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(content)}\r\n\r\n"
        answer = await connection.send(head.encode() + content)
        assert answer.status == 200, answer.body
        found: dict[str, object] = json.loads(answer.body)
        return found

    async def run(self) -> None:
        connection = await HttpConnection.open(self._node.url, 10)
        asked: dict[str, object] = {"key": "heart", "owner": "legitimate", "ttl_ms": 30_000}
        granted = await self._ask(connection, "/v1/acquire", asked)
        lease = granted["lease"]
        assert isinstance(lease, dict)
        while True:
            began_s = time.monotonic()
            await self._ask(connection, "/v1/renew", {"lease_id": lease["lease_id"]})
            self.took_s.append(time.monotonic() - began_s)
            await asyncio.sleep(0.25)


def affordable() -> int:
    """How many connections this machine lets be opened; each end is of a process of its own."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return CONNECTIONS
    return min(CONNECTIONS, PROCESSES * (hard - SPARE_FILES))


async def test_twenty_thousand_connections_of_strangers_cost_nobody_a_heartbeat(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    connections = affordable()
    assert connections >= FEWEST, "this machine opens too few files to show anything"
    record_property("connections", connections)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(GuardedCluster(tmp_path))
        leader = await cluster.leader()
        heart = Heartbeats(leader, cluster.root)
        beating = asyncio.create_task(heart.run())
        stack.callback(beating.cancel)
        # A client of the library beside it, which renews by itself.
        client = await stack.enter_async_context(
            tenure.connect(leader.url, credential=cluster.root, timeout=30.0)
        )
        held = await stack.enter_async_context(client.lease("kept", ttl=10))
        token = held.token

        crowd = await stack.enter_async_context(attackers(leader.http_port, connections))
        assert await crowd.told() >= connections * 0.9, "hardly any connection was made"
        await going_on(heart, beating)
        await crowd.go_on()
        await going_on(heart, beating)
        for _ in range(2):  # those that were cut off come again
            await crowd.go_on()
            await going_on(heart, beating)

        # Whoever comes new is served, too.
        async with (
            tenure.connect(leader.url, credential=cluster.root, timeout=30.0) as late,
            late.lease("late", ttl=10) as lease,
        ):
            assert lease.token > 0
        assert held.state is tenure.State.HELD
        assert held.token == token
        assert max(heart.took_s) < HEARTBEAT_MAX_S
        cluster.assert_all_run()
        assert "Too many open files" not in leader.log_text()
        assert "out of system resource" not in leader.log_text()


async def going_on(heart: Heartbeats, beating: "asyncio.Task[None]") -> None:
    """Wait for some more heartbeats."""
    enough = len(heart.took_s) + 8

    async def beaten() -> bool:
        if beating.done():
            beating.result()
        return len(heart.took_s) >= enough

    await until(beaten, 60, "more heartbeats", 0.05)
