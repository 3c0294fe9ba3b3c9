"""When a member does something of its own accord, to the millisecond: heartbeats, elections, stepping down,
telling the commit index. And that it does nothing else while it is idle.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec
import pytest
from raft_virtual_kit import VirtualCluster

from tenure_cluster.raft import Applied, RaftOptions
from tenure_cluster.raft import messages as wire
from tenure_cluster.raft.pump import GRAIN_S, TICK_S

OPTIONS = RaftOptions(journal_segment_bytes=256 << 10, entry_bytes_max=128 << 10)
HEARTBEAT_S = OPTIONS.heartbeat_ms / 1000
TIMEOUT_MIN_S = OPTIONS.election_timeout_min_ms / 1000
TIMEOUT_MAX_S = OPTIONS.election_timeout_max_ms / 1000
WAY_S = 0.001
"""The longest time over a link."""

Build = Callable[..., VirtualCluster]


@pytest.fixture
def build() -> Iterator[Build]:
    made: list[VirtualCluster] = []

    def make(size: int = 3, **options: int) -> VirtualCluster:
        made.append(VirtualCluster(size, msgspec.structs.replace(OPTIONS, **options)))
        made[-1].start()
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def test_an_idle_member_runs_a_round_for_each_heartbeat_and_no_other(build: Build) -> None:
    cluster = build()
    cluster.leader()
    cluster.run(1.0)
    since_s = cluster.loop.time()
    cluster.run(20.0)
    for member in cluster.members.values():
        assert 0.9 * 20 / HEARTBEAT_S <= member.rounds_since(since_s) <= 20 / HEARTBEAT_S + 1


def test_a_follower_hears_its_leader_in_every_period_though_nothing_happens(build: Build) -> None:
    cluster = build()
    cluster.leader()
    cluster.run(1.0)
    since_s = cluster.loop.time()
    cluster.run(5.0)
    for follower in cluster.followers():
        heard = follower.heard_since(since_s, wire.Append)
        assert max(b - a for a, b in pairwise(heard)) <= HEARTBEAT_S + 2 * GRAIN_S + WAY_S


def test_an_entry_takes_the_place_of_a_heartbeat(build: Build) -> None:
    cluster = build()
    leader = cluster.leader()
    cluster.run(1.0)
    since_s = cluster.loop.time()
    for number in range(100):
        cluster.propose(leader, b"%d" % number)
        cluster.run(HEARTBEAT_S / 2)
    for follower in cluster.followers():
        assert follower.machine.values()[-1] == b"99"
        heard = follower.heard_since(since_s, wire.Append)
        empty = [
            at_s
            for at_s, _, message in follower.heard
            if at_s > since_s and isinstance(message, wire.Append) and not message.entries
        ]
        # Each entry is followed by its commit index, and by nothing else before the next one.
        assert len(heard) <= 2 * 100 + 2
        assert len(empty) <= 100 + 2


def test_followers_learn_of_a_commit_index_within_a_tick_though_nothing_follows(build: Build) -> None:
    cluster = build()
    leader = cluster.leader()
    cluster.run(1.0)
    outcomes = cluster.propose(leader, b"x")
    cluster.until(lambda: outcomes)
    assert isinstance(outcomes[0], Applied)
    took_s = cluster.until(lambda: all(f.machine.values() == [b"x"] for f in cluster.followers()))
    assert took_s <= TICK_S + 2 * GRAIN_S + WAY_S + 0.0002


def test_a_follower_asks_for_votes_when_its_timer_runs_out(build: Build) -> None:
    cluster = build()
    leader = cluster.leader()
    cluster.run(1.0)
    cluster.cut(leader.name)
    followers = cluster.followers()
    heard_s = {follower.name: follower.heard_since(0.0, wire.Append)[-1] for follower in followers}
    since_s = cluster.loop.time()
    cluster.until(lambda: any(follower.node.is_leader() for follower in followers))
    asked_s = [at_s for follower in followers for at_s in follower.heard_since(since_s, wire.PreVoteRequest)]
    assert asked_s
    assert min(asked_s) >= min(heard_s.values()) + TIMEOUT_MIN_S
    assert min(asked_s) <= max(heard_s.values()) + TIMEOUT_MAX_S + 2 * GRAIN_S + WAY_S


def test_a_leader_without_a_quorum_steps_down_when_the_time_has_come(build: Build) -> None:
    # Half a period off the heartbeats, at which it looks anyway.
    cluster = build(election_timeout_max_ms=1050)
    leader = cluster.leader()
    cluster.run(1.0)
    cluster.cut(leader.name)
    cut_s = cluster.loop.time()
    cluster.until(lambda: not leader.node.is_leader())
    answered_s = [at_s for at_s in leader.heard_since(0.0, wire.AppendReply) if at_s < cut_s][-1]
    # It counts from when that was sent which was answered.
    assert -2 * WAY_S <= cluster.loop.time() - (answered_s + 1.05) <= 4 * GRAIN_S


def test_the_answer_to_a_heartbeat_is_heard_in_the_round_of_the_next_one(build: Build) -> None:
    cluster = build()
    leader = cluster.leader()
    cluster.run(1.0)
    since_s = cluster.loop.time()
    cluster.run(5.0)
    answers = leader.heard_since(since_s, wire.AppendReply)
    assert len(answers) >= 2 * 0.9 * 5 / HEARTBEAT_S
    assert leader.rounds_since(since_s) <= 5 / HEARTBEAT_S + 1
    assert leader.node.status().quorum


def test_a_read_does_not_wait_for_the_next_heartbeat(build: Build) -> None:
    cluster = build()
    leader = cluster.leader()
    cluster.run(1.0)
    for _ in range(20):
        began_s = cluster.loop.time()
        cluster.loop.run_until_complete(cluster.as_member(leader, leader.node.read_barrier))
        assert cluster.loop.time() - began_s <= 2 * WAY_S + 0.0002
        cluster.run(0.037)


def test_a_follower_that_is_far_behind_catches_up_at_the_pace_of_its_answers(build: Build) -> None:
    cluster = build(transfer_window_bytes=16_384, entry_commands_max=1)
    leader = cluster.leader()
    cluster.run(1.0)
    late = cluster.followers()[0]
    cluster.cut(late.name)
    for number in range(200):
        outcomes = cluster.propose(leader, b"%4d" % number + bytes(1_000))
        cluster.until(lambda outcomes=outcomes: outcomes)
    assert late.machine.values() == []
    cluster.network.mend_all()
    took_s = cluster.until(lambda: len(late.machine.values()) == 200, 30.0)
    # More than a dozen windows, each a way there, a sync and a way back; at the pace of heartbeats it were
    # more than a second.
    assert took_s < 0.5


def test_a_leader_sends_heartbeats_while_its_disk_is_slow(build: Build) -> None:
    cluster = build()
    leader = cluster.leader()
    cluster.run(1.0)
    leader.disk.sync_min_s = leader.disk.sync_max_s = 0.7 * TIMEOUT_MAX_S
    since_s = cluster.loop.time()
    outcomes = cluster.propose(leader, b"x")
    cluster.until(lambda: outcomes)
    assert leader.node.is_leader()
    for follower in cluster.followers():
        heard = [since_s, *follower.heard_since(since_s, wire.Append), cluster.loop.time()]
        assert max(b - a for a, b in pairwise(heard)) <= HEARTBEAT_S + 2 * GRAIN_S + WAY_S


def test_a_member_that_was_paused_reads_before_it_looks_at_its_timers(build: Build) -> None:
    cluster = build()
    leader = cluster.leader()
    cluster.run(1.0)
    paused = cluster.followers()[0]
    term = leader.node.status().term
    for _ in range(20):
        cluster.loop.pause(paused.process)
        cluster.run(3 * TIMEOUT_MAX_S)
        cluster.loop.resume(paused.process)
        cluster.run(0.5)
    assert leader.node.is_leader()
    assert leader.node.status().term == term
    asked = [member.heard_since(1.0, wire.PreVoteRequest) for member in cluster.members.values()]
    assert asked == [[], [], []]
