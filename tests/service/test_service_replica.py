"""A replica knows the index of the entry that its state is of, also when a snapshot has brought the state."""

from tenure_cluster.lease import commands
from tenure_cluster.service.replica import Replica


def open_session(session_id: str) -> bytes:
    return commands.encode(
        commands.OpenSession(
            tenant="default", session_id=session_id, owner="a", ttl_ms=3_000, metadata={}, wall_ms=0
        )
    )


def test_a_restored_replica_has_the_index_of_its_snapshot() -> None:
    full = Replica()
    full.apply(7, [(1_000, open_session("s"))])
    behind = Replica()
    behind.apply(3, [(500, open_session("r"))])

    behind.restore(full.snapshot(), 9)  # 8 and 9 held no commands
    assert behind.applied_index == 9
    assert behind.digest() == full.digest()

    behind.apply(10, [(1_500, open_session("t"))])
    assert behind.applied_index == 10
