"""Addresses of members that nobody can dial: one of them must not be the end of a node."""

from pathlib import Path

import pytest
from raft_testkit import QUICK, cluster_of, eventually

from tenure_cluster.addresses import split_address
from tenure_cluster.raft.admission import Admission
from tenure_cluster.raft.membership import Add, Readdress, bootstrap, changed

UNDIALLABLE = ("two..dots:7000", f"{'x' * 64}:7000", "nu\0l:7000")
"""The first version let these into the log."""


@pytest.mark.parametrize("address", UNDIALLABLE)
def test_what_nobody_can_dial_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="can't be a name"):
        split_address(address)


@pytest.mark.parametrize("address", UNDIALLABLE)
def test_a_member_at_no_address_is_not_dialled_and_all_others_are(address: str) -> None:
    admission = Admission(
        node_id="n1",
        cluster_id="c",
        incarnation=1,
        peers={"n2": "h2:7000"},
        address="h1:7000",
        knows=(0, ""),
        tls=False,
        ask_about_strangers=lambda: None,
    )
    two = bootstrap(["n1", "n2"])
    three = changed(two, Add("n3", address, "http://h3"), 5)
    assert admission.set_members(three, two) == {"n2": ("h2", 7000)}
    assert "n3" in admission.known
    moved = changed(three, Readdress("n3", "h3:7000", "http://h3"), 6)
    assert admission.set_members(moved, three) == {"n2": ("h2", 7000), "n3": ("h3", 7000)}


async def test_a_node_whose_log_has_a_member_at_no_address_goes_on_and_starts_again(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, QUICK) as cluster:
        leader = await cluster.leader()
        told: list[object] = []
        leader.node.change_members(Add("n2", UNDIALLABLE[0], "http://n2"), told.append)
        await eventually(lambda: bool(told), "the change")
        await cluster.put(b"x")
        await leader.kill()
        await leader.start()
        assert (await cluster.leader()).node.membership.names == ["n1", "n2"]
        await cluster.put(b"y")
