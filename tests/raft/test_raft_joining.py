"""How a node that joins learns whether its cluster was restored: from the members, in their refusal."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from raft_testkit import Proxy

from tenure_cluster.raft.clock import SystemClock
from tenure_cluster.raft.joining import ask_origin, has_nothing
from tenure_cluster.raft.members_file import MembersDiffer
from tenure_cluster.raft.transport import Transport

NOBODY = "127.0.0.1:9"
SHORT_S = 0.5


class Deaf:
    """Nothing is to be told."""

    def on_linked(self, peer: str, up: bool) -> None:
        raise AssertionError("nobody is let in")


@asynccontextmanager
async def members(**known: str) -> AsyncIterator[Mapping[str, str]]:
    """Nodes that know their cluster by these names, and where they listen; n8 is the one that joins."""
    running: dict[str, Transport] = {}
    try:
        for name, cluster_id in known.items():
            running[name] = Transport(
                node_id=name,
                cluster_id=cluster_id,
                peers={"n0": NOBODY},
                listen="127.0.0.1:0",
                clock=SystemClock(),
                frame_bytes_max=1 << 16,
                outbox_bytes_max=1 << 20,
                user=Deaf(),  # type: ignore[arg-type]
            )
            await running[name].start()
        yield {"n8": NOBODY} | {name: f"127.0.0.1:{each.port}" for name, each in running.items()}
    finally:
        for each in running.values():
            await each.stop()


async def asked(where: Mapping[str, str], cluster_id: str = "orders") -> str | None:
    return await ask_origin(node_id="n8", cluster_id=cluster_id, members=where, patience_s=SHORT_S)


async def test_a_restored_cluster_tells_the_name_that_it_was_given() -> None:
    async with members(n1="orders+abc", n2="orders+abc") as where:
        assert await asked(where) == "abc"
        assert await asked({**where, "n2": NOBODY}) == "abc", "one that answers is enough"


async def test_a_cluster_that_was_not_restored_has_no_such_name() -> None:
    async with members(n1="orders") as where:
        assert await ask_origin(node_id="n8", cluster_id="orders", members=where, patience_s=60.0) is None


async def test_another_cluster_tells_nothing() -> None:
    async with members(n1="payments+abc", n2="orders.eu+abc") as where:
        assert await asked(where) is None


async def test_members_of_several_clusters_are_believed_nothing() -> None:
    async with members(n1="orders+abc", n2="orders") as where:
        with pytest.raises(MembersDiffer, match=r"orders and orders\+abc"):
            await asked(where)


async def test_one_that_comes_late_is_waited_for() -> None:
    async with members(n1="orders+abc") as where:
        ports: list[int | None] = [None, None, int(where["n1"].rpartition(":")[2])]
        proxy = Proxy(lambda: ports.pop(0))
        await proxy.start()
        try:
            known = await ask_origin(
                node_id="n8", cluster_id="orders", members={"n1": proxy.address}, patience_s=60.0
            )
        finally:
            await proxy.stop()
        assert (known, ports) == ("abc", [])


async def test_whoever_talks_nonsense_or_falls_silent_is_nobody() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x00\x00\x03abc")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await asked({"n1": f"127.0.0.1:{port}"}) is None


def test_only_a_node_that_was_never_started_asks() -> None:
    assert has_nothing([])
    assert has_nothing(["lock", "versions.json"])
    for started in ("members", "origin", "journal-00000000000000000001.log"):
        assert not has_nothing(["lock", started])
