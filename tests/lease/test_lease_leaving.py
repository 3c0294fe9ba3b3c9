"""Clearing up behind a closed connection: only what nobody has asked for again since is given up."""

from lease_world import TENANT, World

from tenure_cluster.lease import commands, results


def leave(world: World, request: str, poll_deadline_ms: int) -> results.Result:
    return world.apply(
        commands.Abandon(
            tenant=TENANT,
            request_id=request,
            session_id=None,
            wall_ms=world.wall_ms,
            poll_deadline_ms=poll_deadline_ms,
        )
    )


def poll_deadline_ms(world: World, request: str) -> int:
    deadline_ms: int = world.table.waiters[TENANT, "", request].poll_deadline_ms
    return deadline_ms


def test_a_waiter_that_has_not_polled_since_leaves_and_may_queue_anew(world: World) -> None:
    """T40: an orphan waiter goes."""
    world.acquire("k", "A")
    world.acquire("k", "B", request="r", wait=True)
    world.acquire("k", "C", request="s", wait=True)
    world.wait(1_000)
    assert leave(world, "r", poll_deadline_ms(world, "r")) == results.Abandoned(True)
    assert world.queue() == ["C"]
    assert isinstance(world.acquire("k", "B", request="r", wait=True), results.Waiting)
    assert world.queue() == ["C", "B"]


def test_a_waiter_that_has_polled_since_keeps_its_place(world: World) -> None:
    world.acquire("k", "A")
    world.acquire("k", "B", request="r", wait=True)
    seen_ms = poll_deadline_ms(world, "r")
    world.wait(1)
    world.acquire("k", "B", request="r", wait=True)
    assert leave(world, "r", seen_ms) == results.Abandoned(False)
    assert world.queue() == ["B"]


def test_a_grant_is_never_ended_by_it(world: World) -> None:
    lease = world.granted("k", "A").lease.lease_id
    world.acquire("k", "B", request="r", wait=True)
    seen_ms = poll_deadline_ms(world, "r")
    world.release(lease)
    assert world.holder() == "B"
    assert leave(world, "r", seen_ms) == results.Abandoned(False)
    assert world.holder() == "B"
    assert isinstance(world.acquire("k", "B", request="r", wait=True), results.Granted)
