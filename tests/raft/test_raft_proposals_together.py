"""Commands that were proposed together share an entry, and each of them is answered exactly once."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from raft_testkit import QUICK, Member, cluster_of

from tenure_cluster.raft import Applied, NotExecuted, Outcome, Unknown
from tenure_cluster.raft.messages import decode_entry
from tenure_cluster.raft.proposals import ENTRY_OVERHEAD_BYTES, PAIR_OVERHEAD_BYTES, Proposals

LOST = NotExecuted("not_leader", "n2")


class Told:
    """What became of commands that were proposed together, by their places."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.outcomes: dict[int, Outcome] = {}
        self.calls = 0
        self.all: asyncio.Future[None] | None = None

    def __call__(self, which: range, outcome: Outcome) -> None:
        self.calls += 1
        results = outcome.result if isinstance(outcome, Applied) else [None] * len(which)
        assert isinstance(results, list)
        for place, result in zip(which, results, strict=True):
            assert place not in self.outcomes, f"{place} is answered twice"
            self.outcomes[place] = Applied(result, outcome.index) if isinstance(outcome, Applied) else outcome
        if self.all is not None and len(self.outcomes) == self.count:
            self.all.set_result(None)


def make(**limits: int) -> Proposals:
    defaults = {"queue_max": 100, "entry_bytes_max": 10_000, "entry_commands_max": 10}
    return Proposals(**(defaults | limits))


def append(proposals: Proposals, index: int, term: int = 1) -> list[bytes]:
    taken = proposals.take()
    assert taken is not None
    entry, batch = taken
    proposals.append(index, term, batch)
    return [command for _, command in decode_entry(entry)]


def answer(proposals: Proposals) -> None:
    for done, outcome in proposals.take_answers():
        done(outcome)


def test_they_are_queued_and_answered_among_single_ones() -> None:
    proposals, told, alone = make(), Told(3), list[Outcome]()
    proposals.add(5, b"x", alone.append)
    proposals.add_all(6, [b"a", b"b", b"c"], told)
    proposals.add(7, b"y", alone.append)
    assert proposals.queued == 5
    assert append(proposals, 9) == [b"x", b"a", b"b", b"c", b"y"]
    assert (proposals.queued, proposals.appended) == (0, 1)
    proposals.applied(9, 1, ["X", "A", "B", "C", "Y"])
    answer(proposals)
    assert alone == [Applied("X", 9), Applied("Y", 9)]
    assert told.outcomes == {n: Applied(result, 9) for n, result in enumerate("ABC")}
    assert (told.calls, proposals.idle) == (1, True)


def test_they_are_not_torn_apart_by_what_is_before_them() -> None:
    proposals, told = make(), Told(4)
    for _ in range(8):
        proposals.add(5, b"x", lambda outcome: None)
    proposals.add_all(5, [b"a", b"b", b"c", b"d"], told)
    assert append(proposals, 1) == [b"x"] * 8
    assert proposals.queued == 4
    assert append(proposals, 2) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("limits", "entries"),
    [
        ({"entry_commands_max": 3}, [3, 3, 1]),
        ({"entry_bytes_max": ENTRY_OVERHEAD_BYTES + 2 * (100 + PAIR_OVERHEAD_BYTES)}, [2, 2, 2, 1]),
        ({}, [7]),
    ],
)
def test_more_than_fit_into_an_entry_come_in_parts(limits: dict[str, int], entries: list[int]) -> None:
    proposals, told = make(**limits), Told(7)
    commands = [bytes([n]) * 100 for n in range(7)]
    proposals.add_all(5, commands, told)
    found: list[bytes] = []
    for index, count in enumerate(entries, 1):
        assert proposals.queued == 7 - len(found)
        part = append(proposals, index)
        assert len(part) == count
        proposals.applied(index, 1, list(range(len(found), len(found) + count)))
        found += part
    assert (found, proposals.take()) == (commands, None)
    answer(proposals)
    assert [told.outcomes[place].result for place in range(7)] == list(range(7))  # type: ignore[union-attr]
    assert told.calls == len(entries)


def test_what_an_office_leaves_behind_is_told_as_it_is() -> None:
    proposals, appended, queued = make(), Told(2), Told(3)
    proposals.add_all(5, [b"a", b"b"], appended)
    append(proposals, 1)
    proposals.add_all(5, [b"c", b"d", b"e"], queued)
    proposals.end_office(LOST)
    answer(proposals)
    assert appended.outcomes == dict.fromkeys(range(2), Unknown())
    assert queued.outcomes == dict.fromkeys(range(3), LOST)
    assert (proposals.queued, proposals.idle) == (0, True)


def test_none_is_nothing() -> None:
    proposals = make()
    proposals.add_all(5, [], Told(0))
    assert proposals.take() is None
    assert proposals.idle


async def propose(member: Member, commands: list[bytes]) -> Told:
    told = Told(len(commands))
    told.all = asyncio.get_running_loop().create_future()
    member.node.propose_all(member.node.now_ms(), commands, told)
    async with asyncio.timeout(20):
        await told.all
    return told


async def test_on_a_cluster_they_are_one_entry(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        before = leader.node.status().last_index
        told = await propose(leader, [b"%d" % n for n in range(500)])
        assert told.outcomes == {n: Applied(n, before + 1) for n in range(500)}
        await cluster.agree()


async def test_they_are_refused_together_where_they_cannot_be_queued(tmp_path: Path) -> None:
    options = msgspec.structs.replace(QUICK, queue_max=10)
    async with cluster_of(tmp_path, 3, options) as cluster:
        leader = await cluster.leader()
        told = await propose(leader, [b"x"] * 11)
        assert set(told.outcomes.values()) == {NotExecuted("queue_full", leader.node_id)}
        await cluster.agree()
        follower = next(member for member in cluster.up if member is not leader)
        told = await propose(follower, [b"x"] * 3)
        assert set(told.outcomes.values()) == {NotExecuted("not_leader", leader.node_id)}
        assert leader.machine.values() == []


async def test_one_that_is_too_large_is_refused_alone(tmp_path: Path) -> None:
    options = msgspec.structs.replace(QUICK, entry_bytes_max=4096)
    async with cluster_of(tmp_path, 3, options) as cluster:
        leader = await cluster.leader()
        told = await propose(leader, [b"a", bytes(4096), b"b"])
        assert told.outcomes[1] == NotExecuted("too_large", leader.node_id)
        assert [type(told.outcomes[place]) for place in (0, 2)] == [Applied, Applied]
        assert leader.machine.values() == [b"a", b"b"]
