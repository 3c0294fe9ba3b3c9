"""What is told of a lease's life, and how often."""

from lease_world import TENANT, World

from tenure_cluster.lease import limits
from tenure_cluster.lease.events import ENDS, Event


def told(world: World) -> list[tuple[str, str, int]]:
    return [(event.kind, event.owner, event.token) for event in world.events]


def test_a_renewal_is_told_once_in_a_second_of_cluster_time(world: World) -> None:
    world.now_ms = 10_000
    world.acquire("k", "a", lease="a")
    seconds = []
    for _ in range(40):
        world.wait(100)
        world.renew("a")
        seconds += [event.at_ms // 1_000 for event in world.events]
    assert seconds == [11, 12, 13, 14]


def test_a_renewal_with_a_shorter_ttl_is_not_told_more_often(world: World) -> None:
    world.acquire("k", "a", lease="a", ttl_ms=60_000)
    for _ in range(3):
        world.wait(1_000)
        world.renew("a", ttl_ms=1_000)
        world.renew("a", ttl_ms=1_000)
        assert len(world.events) <= 1


def test_the_renewal_of_a_session_is_told_of_each_of_its_leases(world: World) -> None:
    world.open("s", "a")
    for number in range(limits.RENEWED_TOLD_MAX):
        world.acquire(f"k{number}", "a", session="s")
    world.wait(1_000)
    world.renew(session="s")
    assert [event.key for event in world.events] == [f"k{n}" for n in range(limits.RENEWED_TOLD_MAX)]
    assert world.kinds() == ["renewed"] * limits.RENEWED_TOLD_MAX


def test_the_renewal_of_a_session_with_many_leases_is_not_told_lease_by_lease(world: World) -> None:
    world.open("s", "a")
    for number in range(limits.RENEWED_TOLD_MAX + 1):
        world.acquire(f"k{number}", "a", session="s")
    world.wait(1_000)
    world.renew(session="s")
    assert world.events == []


def test_revisions_follow_one_another_and_an_end_is_told_once(world: World) -> None:
    events: list[Event] = []
    world.acquire("k", "a", lease="a")
    events += world.events
    world.acquire("k", "b", lease="b", request="b", wait=True)
    events += world.events
    for _ in range(3):
        world.wait(1_000)
        world.renew("a")
        events += world.events
    world.release("a")
    events += world.events
    assert [event.revision for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in events if event.kind in ENDS] == ["released"]


def test_an_event_says_mode_and_slot(world: World) -> None:
    world.acquire("k", "a", lease="a", mode="permit", slots=2)
    world.acquire("k", "b", lease="b", mode="permit", slots=2)
    assert [(event.mode, event.slot) for event in world.events] == [("permit", 1)]
    (_, second) = world.table.holders(TENANT, "k")
    world.commit(second, slot=1)
    assert [(event.kind, event.slot) for event in world.events] == [("committed", 1)]
    world.release("b")
    assert [(event.mode, event.slot) for event in world.events] == [("permit", 1)]
    world.acquire("q", "a", lease="qa", mode="shared")
    world.acquire("q", "w", request="w", wait=True)
    assert [(event.kind, event.mode) for event in world.events] == [("queue_joined", "exclusive")]
    assert told(world) == [("queue_joined", "w", 0)]
