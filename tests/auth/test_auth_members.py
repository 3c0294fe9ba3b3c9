"""Over TLS a node joins by a certificate that names it, and by no other."""

import asyncio
import shutil
from pathlib import Path

import pytest
from auth_kit import HOST, QUICK, Nodes, free_ports, three_nodes, until

import tenure
from tenure_cluster.node import Node, StartError
from tenure_cluster.settings import Config, Http, Leases, Member, Peer


def joining(nodes: Nodes, directory: Path, named: str) -> Config:
    """n4, with a certificate that names somebody."""
    place = nodes.pki.directory / "n4"
    shutil.copytree(nodes.pki.directory / "n1", place, dirs_exist_ok=True)
    nodes.pki.replace("n4", nodes.pki.issue(named))
    http, peer = free_ports(2)
    own = Member(peer=f"{HOST}:{peer}", http=f"https://{HOST}:{http}")
    config = Config(
        cluster_id="c",
        node_id="n4",
        data_dir=directory / "n4",
        durability="os",
        join=True,
        http=Http(listen=f"{HOST}:{http}", advertise=own.http),
        peer=Peer(listen=own.peer, advertise=own.peer),
        tls=nodes.pki.settings("n4"),
        members={**nodes.members, "n4": own},
        raft=QUICK,
        leases=Leases(ttl_min_ms=3_000),
    )
    config.validate()
    return config


async def add(nodes: Nodes, config: Config) -> None:
    own = config.members["n4"]
    async with tenure.connect(nodes.urls, tls=nodes.pki.client(), timeout=20.0) as client:
        for _ in range(200):
            try:
                await client.add_member("n4", peer=own.peer, http=own.http)
            except tenure.InvalidRequest as refused:
                if refused.code != "change_refused":
                    raise
                await asyncio.sleep(0.05)
            else:
                return
    raise AssertionError("n4 was not added")


def votes(nodes: Nodes) -> bool:
    return any("n4" in node.raft.membership.voters for node in nodes.nodes.values() if node.raft.serving())


async def test_a_node_joins_by_a_certificate_that_names_it(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as nodes:
        config = joining(nodes, tmp_path, "n4")
        new = Node(config)
        await new.start()
        try:
            await add(nodes, config)
            await until(lambda: votes(nodes), "n4 to be a voter")
            await until(new.service.ready, "n4 to serve")
            async with (
                tenure.connect([config.http.advertise], tls=nodes.pki.client()) as client,
                client.lease("job", ttl=10) as held,
            ):
                await held.renew()
        finally:
            await new.stop()


async def test_a_node_with_a_certificate_of_another_one_does_not_even_start(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as nodes:
        new = Node(joining(nodes, tmp_path, "n5"))
        with pytest.raises(StartError, match="n4"):
            await new.start()
