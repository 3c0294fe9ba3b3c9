"""One state machine owns everything: what is listed can be found, on every node, whatever it came through."""

from collections.abc import Callable

import pytest
from cases_sabotage import leases_end_in_the_listing_alone, snapshots_lose_a_session

from tenure import _requests
from tenure_chaos.sim.node import SimNode
from tenure_chaos.sim.stage import Missed, Stage, play
from tenure_cluster.lease.invariants import check_table

TENANT = "default"
SMALL = {"snapshot_entries": 20, "tail_entries": 2}


def listed_are_found(node: SimNode) -> list[str]:
    """The node's leases by key, each of them found by its key, its id and its session as well."""
    assert node.replica is not None
    table = node.replica.table
    check_table(table)
    grants, rest = table.list_leases(TENANT, "", None, None, 1_000)
    assert rest is None
    for grant in grants:
        lease = grant.lease
        assert [found.lease for found in table.holders(TENANT, lease.key)] == [lease]
        assert table.leases[(TENANT, lease.lease_id)] == lease
        assert table.session(TENANT, lease.session_id) == grant.session
    assert len(table.leases) == len(grants), "a lease is there that is not listed"
    return [grant.lease.key for grant in grants]


async def a_node_comes_back_by_snapshot(stage: Stage) -> None:
    leader = await stage.start()
    late, restarted = stage.others(leader)
    a, b, c = stage.actor("A"), stage.actor("B"), stage.actor("C")
    session = await a.open_session(600_000)
    stage.kill(late)
    held = [await a.acquire(f"a/{n}", session_id=session) for n in range(8)]
    short = [await b.acquire(f"b/{n}", ttl_ms=2_000) for n in range(4)]
    for n in range(4):
        c.begin(c.try_acquire(f"a/{n}", ttl_ms=600_000, wait_s=60))
    for hold in held[:2]:
        assert (await hold.commit("written")).ok
        assert (await hold.release()).ok
    assert (await b.ask(_requests.break_(key="a/7", reason="of T64"), key="a/7")).ok
    assert (await short[0].release()).ok
    await stage.until(lambda: len(stage.events("expired", "b/3")) == 1, "B's leases have expired")
    stage.kill(restarted)
    stage.restart(late, restarted)
    await stage.alike()
    assert stage.world.counts["snapshot installed"] >= 1
    assert stage.world.counts["snapshot restored at a start"] >= 1
    expected = [f"a/{n}" for n in range(7)]
    for node in stage.world.nodes.values():
        assert listed_are_found(node) == expected, f"{node.name} lists other leases than were granted"
    for hold in held[2:7]:
        assert (await hold.renew()).ok
        assert (await hold.release()).ok
    assert (await held[7].renew()).answer["reason"] == "broken"


def test_what_is_listed_can_be_found_on_every_node() -> None:
    """T64: after expiry, break, hand-off, a restart and an installed snapshot, every node lists the same
    leases, and each can be found, renewed and released."""
    play(a_node_comes_back_by_snapshot, **SMALL)


@pytest.mark.parametrize(
    ("break_it", "named"),
    [
        (leases_end_in_the_listing_alone, "has two exclusive holders"),
        (snapshots_lose_a_session, "has no session"),
    ],
)
def test_a_node_does_not_serve_a_state_that_contradicts_itself(
    break_it: Callable[[pytest.MonkeyPatch], None], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T64: such a snapshot is refused when it is loaded, and the node stops instead of serving it."""
    break_it(monkeypatch)
    with pytest.raises(Missed, match=f"SnapshotDamaged: the state contradicts itself: .*{named}"):
        play(a_node_comes_back_by_snapshot, **SMALL)
