"""Two processes with one node id: the one that was there first stays, the other is refused and told why."""

from raft_testkit import eventually
from test_raft_transport import Caller, End, call, hello, one_end

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.admission import DOUBLE, LIVES_REMEMBERED_MAX, OTHER_CLUSTER
from tenure_cluster.raft.link import frame


async def welcomed(caller: Caller, incarnation: int, epoch: int) -> bool:
    """Whether it is let in; then it also shows that it has heard so."""
    caller.send(hello(incarnation=incarnation, epoch=epoch))
    if not isinstance(await caller.answer(), wire.Welcome):
        return False
    caller.send(frame(wire.Ping(1)))
    assert isinstance(await caller.answer(), wire.Pong)
    return True


async def lives(end: End, *incarnations: int) -> list[bool]:
    """Each dials once, one after the other; whether it was welcome."""
    found = []
    for epoch, incarnation in enumerate(incarnations, 1):
        async with call(end) as caller:
            found.append(await welcomed(caller, incarnation, epoch))
    return found


async def test_a_life_that_comes_back_after_a_later_one_makes_that_a_double() -> None:
    async with one_end() as end:
        assert await lives(end, 1, 2, 1) == [True, True, True]
        async with call(end) as second:
            second.send(hello(incarnation=2, epoch=9))
            answer = await second.answer()
            assert isinstance(answer, wire.Refused)
            assert answer.reason.startswith(f"{DOUBLE} 'n2'")
        async with call(end) as first:
            assert await welcomed(first, 1, 10), "it is not hurt by the other's trying"


async def test_a_greeting_of_the_dead_that_was_long_on_its_way_makes_no_double() -> None:
    async with one_end() as end:
        assert await lives(end, 1, 2) == [True, True]
        async with call(end) as late:
            late.send(hello(incarnation=1, epoch=2))
            assert isinstance(await late.answer(), wire.Welcome), "as every younger connection"
        assert await lives(end, 2, 3, 2) == [True, True, True]


async def test_restarts_one_after_the_other_make_no_double() -> None:
    async with one_end() as end:
        assert all(await lives(end, *range(1, 3 * LIVES_REMEMBERED_MAX)))


async def test_a_third_life_takes_the_place_of_both() -> None:
    """The operator has stopped both and started the node once more."""
    async with one_end() as end:
        assert await lives(end, 1, 2, 1, 2, 3) == [True, True, True, False, True]


async def test_connections_of_one_life_that_break_make_no_double() -> None:
    async with one_end() as end:
        assert await lives(end, 1, 1, 1, 2, 2) == [True] * 5


async def test_whoever_is_refused_is_told_by_whom_and_why() -> None:
    there = End("n2", {"n1": "127.0.0.1:9"}, cluster_id="other")
    await there.transport.start()
    here = End("n1", {"n2": f"127.0.0.1:{there.transport.port}"})
    refusals: list[tuple[str, str]] = []
    here.transport.on_refused = lambda peer, why: refusals.append((peer, why))
    await here.transport.start()
    try:
        await eventually(lambda: refusals)
        peer, why = refusals[0]
        assert peer == "n2"
        assert why == f"{OTHER_CLUSTER}'c', this node is of 'other'"
    finally:
        await here.transport.stop()
        await there.transport.stop()
