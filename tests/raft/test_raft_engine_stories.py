"""The minimal proofs of the defects in DEFECTS.md, told to the real engine by hand.

Each defect (S1, L3 …) is shown twice where its mitigation can be left out: with it nothing is lost, without
it the story goes wrong as described there. So a story that can no longer go wrong is noticed too.
"""

import msgspec
import pytest
from raft_handkit import OPTIONS, HandNet, Violation

from tenure_cluster.raft import messages as wire
from tenure_cluster.raft import mitigations
from tenure_cluster.raft.engine import RaftBroken

ON = mitigations.ALL


def led_by_n1(size: int = 3, on: frozenset[str] = ON, **changes: int) -> HandNet:
    net = HandNet(size, on=on, options=msgspec.structs.replace(OPTIONS, **changes))
    net.elect("n1", *[name for name in net.nodes if name != "n1"])
    net.pump()
    return net


def entries_after(net: HandNet, name: str, index: int) -> list[tuple[int, bytes]]:
    replica = net[name].core.replica
    return [(entry[2], entry[0]) for entry in replica.log[:] if entry[1] > index]


# -- S1, S2: truncation of what has been acknowledged


@pytest.mark.parametrize("on", [ON, ON - {mitigations.APPEND_TRIM}], ids=["safe", "without append_trim"])
def test_s1_a_resend_in_pieces_does_not_shorten_the_log(on: frozenset[str]) -> None:
    net = led_by_n1(on=on)
    start = net["n2"].last
    net["n1"].propose(b"a", b"b", b"PRECIOUS")
    net.pump()
    assert b"PRECIOUS" in net.acknowledged
    [first, *_] = entries_after(net, "n1", start)
    prev_term = net["n1"].core.replica.term_at(start)
    assert prev_term is not None
    piece = wire.Append(net["n1"].term, 1000, start, prev_term, 0, [first])
    if on == ON:
        net.inject("n1", "n2", piece)
        assert net["n2"].last == start + 3
        assert net.sent("n2", "n1")[-1] == wire.AppendReply(net["n1"].term, 1000, True, start + 2)
    else:
        with pytest.raises(Violation, match="commit index of n2 fell"):
            net.inject("n1", "n2", piece)


@pytest.mark.parametrize("on", [ON, ON - {mitigations.APPEND_TRIM}], ids=["safe", "without append_trim"])
def test_s2_a_late_message_does_not_cut_what_was_acknowledged(on: frozenset[str]) -> None:
    net = led_by_n1(on=on)
    net["n1"].propose(b"a")
    net["n1"].round()
    late = [
        message for message in net.sent("n1", "n2") if isinstance(message, wire.Append) and message.entries
    ]
    net.pump()
    net["n1"].propose(b"LOCK")
    net["n1"].round()
    net.deliver("n1", "n2")
    acknowledged = net["n2"].last
    net.inject("n1", "n2", late[0])
    assert (net["n2"].last == acknowledged) == (on == ON)


def test_s2_an_append_that_contradicts_what_is_committed_stops_the_node() -> None:
    net = led_by_n1()
    net["n1"].propose(b"a")
    net.pump()
    index = net["n2"].commit
    prev_term = net["n2"].core.replica.term_at(index - 1)
    assert prev_term is not None
    other = wire.Append(net["n1"].term + 1, 1, index - 1, prev_term, 0, [(net["n1"].term + 1, wire.NO_OP)])
    with pytest.raises(RaftBroken, match="overwrite"):
        net.inject("n3", "n2", other)
    with pytest.raises(RaftBroken, match="committed here"):
        net.inject("n3", "n2", wire.Append(net["n1"].term + 2, 2, index, net["n1"].term + 1, 0, []))


def test_an_append_that_begins_below_a_compacted_log_is_taken_from_there_on() -> None:
    net = led_by_n1(snapshot_entries=5)
    for n in range(20):
        net["n1"].propose(b"%d" % n)
        net.pump(rounds=1)
    net.pump()
    follower = net["n2"]
    follower.core.compact(follower.commit - 1)
    first = follower.core.replica.first_index
    all_entries = entries_after(net, "n1", net["n1"].core.replica.first_index)
    base = net["n1"].core.replica.first_index
    base_term = net["n1"].core.replica.term_at(base)
    assert base < first
    assert base_term is not None
    last = follower.last
    net.inject("n1", "n2", wire.Append(net["n1"].term, 1000, base, base_term, 0, all_entries[:2]))
    assert net.sent("n2", "n1")[-1] == wire.AppendReply(net["n1"].term, 1000, True, first + 1)
    net.inject("n1", "n2", wire.Append(net["n1"].term, 1001, base, base_term, 0, all_entries))
    assert net.sent("n2", "n1")[-1] == wire.AppendReply(net["n1"].term, 1001, True, last + 1)
    assert follower.last == last


# -- S3: answers without a term


@pytest.mark.parametrize("on", [ON, ON - {mitigations.TERM_TAGS}], ids=["safe", "without term_tags"])
def test_s3_an_answer_of_an_earlier_office_is_not_counted(on: frozenset[str]) -> None:
    net = led_by_n1(5, on)
    net["n1"].propose(b"old1", b"old2", b"old3")
    net["n1"].round()
    net.deliver("n1", "n2")  # n2 appends; its answer is still under way
    replies = [m for m in net.sent("n2", "n1") if isinstance(m, wire.AppendReply)]
    late = max(replies, key=lambda reply: reply.next_index)
    assert late.next_index == net["n1"].last + 1
    for other in ("n3", "n4", "n5"):
        net.disconnect("n1", other)
    net.queues.clear()
    # n3 leads in the next term; its no-op replaces the old entries.
    net.elect("n3", "n4", "n5")
    net.connect_all()
    net.pump()
    assert net["n1"].last == net["n3"].last
    # n1 leads again, and only n4 hears it.
    net.elect("n1", "n3", "n4", "n5")
    net.queues.clear()
    net["n1"].propose(b"new1", b"new2")
    net["n1"].round()
    net.deliver("n1", "n4")
    net.deliver("n4", "n1")
    commit = net["n1"].commit
    net.inject("n2", "n1", late)
    net["n1"].round(tick=True)
    held_by_two_only = commit
    assert (net["n1"].commit == held_by_two_only) == (on == ON)


# -- S4, S5, S7: snapshots


def behind_a_snapshot(on: frozenset[str] = ON) -> HandNet:
    """n1 was deposed with an uncommitted tail; n2 leads, and has compacted what n1 lacks."""
    net = led_by_n1(on=on, snapshot_entries=10)
    net.isolate("n1")
    net["n1"].propose(b"LOCK-A")
    net["n1"].round()
    net.elect("n2", "n3")
    net["n2"].propose(b"LOCK-B")
    for n in range(1200):
        net["n2"].propose(b"more%d" % n)
    net.pump("n2", "n3", rounds=30)
    net["n2"].core.compact(net["n2"].snapshots.latest_index - 1)
    assert net["n2"].core.replica.first_index > net["n1"].last
    return net


def test_s4_the_pieces_of_a_snapshot_commit_nothing() -> None:
    net = behind_a_snapshot()
    net.connect("n1", "n2")
    net.connect("n2", "n1")
    before = net["n1"].commit, list(net["n1"].machine.applied)
    info = net["n2"].snapshots._store.latest()
    assert info is not None
    data = net["n2"].disk.read(info.name)
    piece = wire.Snapshot(net["n2"].term, 1, info.index, info.term, info.size, 0, data[:100])
    net.inject("n2", "n1", piece)
    net["n1"].round(tick=True)
    assert (net["n1"].commit, net["n1"].machine.applied) == before
    assert not net["n1"].leads
    assert b"LOCK-A" not in net.acknowledged
    net.queues.clear()
    net.connect_all()
    net.pump(rounds=20)
    assert net["n1"].snapshots.installed == 1
    assert net["n1"].machine.values() == net["n2"].machine.values()
    net.check_acknowledged()


def test_s5_a_damaged_snapshot_is_neither_installed_nor_acknowledged() -> None:
    net = behind_a_snapshot()
    net.connect("n1", "n2")
    net.connect("n2", "n1")
    info = net["n2"].snapshots._store.latest()
    assert info is not None
    data = bytearray(net["n2"].disk.read(info.name))
    data[len(data) // 2] ^= 1
    before = list(net["n1"].core.replica.log[:])
    piece = wire.Snapshot(net["n2"].term, 1, info.index, info.term, info.size, 0, bytes(data))
    net.inject("n2", "n1", piece)
    net["n1"].disk.work()
    net["n1"].round(tick=True)
    assert net["n1"].core.replica.log[:] == before
    assert not any(isinstance(m, wire.SnapshotReply) and m.done for m in net.sent("n1", "n2"))


@pytest.mark.parametrize(
    "on", [ON, ON - {mitigations.SNAPSHOT_GUARD}], ids=["safe", "without snapshot_guard"]
)
def test_s7_a_snapshot_that_is_older_than_the_log_is_not_installed(on: frozenset[str]) -> None:
    net = led_by_n1(on=on, snapshot_entries=5)
    for n in range(10):
        net["n1"].propose(b"%d" % n)
        net.pump(rounds=1)
    info = net["n1"].snapshots._store.latest()
    assert info is not None
    data = net["n1"].disk.read(info.name)
    net["n1"].propose(b"PRECIOUS")
    net.pump()
    assert info.index < net["n2"].commit
    state = net["n2"].machine.values()
    piece = wire.Snapshot(net["n1"].term, 1000, info.index, info.term, info.size, 0, data)
    net.inject("n1", "n2", piece)
    net["n2"].disk.work()
    if on == ON:
        net["n2"].round(tick=True)
        assert net["n2"].machine.values() == state
        assert net.sent("n2", "n1")[-1] == wire.SnapshotReply(
            net["n1"].term, 1000, info.index, info.size, True
        )
    else:
        with pytest.raises(Violation, match="fell"):
            net["n2"].round(tick=True)


def test_a_crash_right_after_a_received_snapshot_became_durable_is_put_right_at_the_next_start() -> None:
    net = behind_a_snapshot()
    net.connect("n1", "n2")
    net.connect("n2", "n1")
    info = net["n2"].snapshots._store.latest()
    assert info is not None
    piece = wire.Snapshot(
        net["n2"].term, 1, info.index, info.term, info.size, 0, net["n2"].disk.read(info.name)
    )
    net.inject("n2", "n1", piece)
    net["n1"].disk.work()  # the file has its name; the log still ends far below
    net.crash("n1")
    net.restart("n1")
    assert net["n1"].commit == info.index
    net.pump(rounds=20)
    assert net["n1"].machine.values() == net["n2"].machine.values()
    net.check_acknowledged()


def test_s6_a_crash_between_the_snapshot_and_the_compaction_loses_nothing() -> None:
    net = led_by_n1(snapshot_entries=5)
    for n in range(4):
        net["n1"].propose(b"%d" % n)
        net.pump(rounds=1)
    follower = net["n2"]
    store = follower.snapshots._store
    replica = follower.core.replica
    index = replica.applied_index - 2
    done = []
    store.save(
        replica.entry(index),
        replica.entry(index - 1),
        iter([msgspec.msgpack.encode([pair for pair in follower.machine.applied if pair[0] <= index])]),
        lambda info, error: done.append((info, error)),
    )
    follower.disk.work()
    assert done[0][0] is not None
    last = follower.last
    net.crash("n2")
    net.restart("n2")
    assert net["n2"].last == last
    net.pump()
    assert net["n2"].machine.values() == net["n1"].machine.values()


# -- S9: applied once


def test_s9_an_entry_whose_application_raises_is_not_applied_again() -> None:
    net = led_by_n1()
    node = net["n1"]
    calls = []

    def broken(index: int, commands: object) -> list[object]:
        calls.append(index)
        raise RuntimeError("broken")

    node.machine.apply = broken  # type: ignore[assignment,method-assign]
    node.propose(b"x")
    node.round()
    net.deliver("n1", "n2")
    net.deliver("n2", "n1")
    with pytest.raises(RuntimeError, match="broken"):
        node.round(tick=True)
    node.round(tick=True)
    assert len(calls) == 1


# -- S11: forwarding


def test_s11_a_follower_takes_no_command_and_sends_none() -> None:
    net = led_by_n1()
    net["n2"].core.replica._applyCommand(b"\0stray", None, 0)
    net["n2"].round(tick=True)
    assert net.sent("n2", "n1") == []
    with pytest.raises(RaftBroken, match="does not lead"):
        net["n2"].core.append(b"\0stray")
    with pytest.raises(RaftBroken, match="the package sends"):
        net["n2"].core.on_send("n1", {"type": "apply_command", "command": b"", "request_id": 1})


# -- S13: votes


@pytest.mark.parametrize("on", [ON, ON - {mitigations.VOTE_ONCE}], ids=["safe", "without vote_once"])
def test_s13_a_vote_that_comes_twice_counts_once(on: frozenset[str]) -> None:
    net = HandNet(5, on=on)
    net["n1"].campaign()
    vote = wire.Vote(net["n1"].term)
    net.inject("n2", "n1", vote)
    net.inject("n2", "n1", vote)
    assert net["n1"].leads == (on != ON)
    net.inject("n3", "n1", vote)
    assert net["n1"].leads


def test_a_vote_for_another_term_does_not_count() -> None:
    net = HandNet(3)
    net["n1"].campaign()
    net.inject("n2", "n1", wire.Vote(net["n1"].term - 1))
    assert not net["n1"].leads


# -- L1, L13: catching up


def test_l1_a_follower_with_a_divergent_entry_and_a_long_way_to_go_catches_up() -> None:
    net = led_by_n1(entry_bytes_max=2000)
    net.isolate("n1")
    net["n1"].propose(b"divergent")
    net["n1"].round()
    net.elect("n2", "n3")
    for n in range(100):
        net["n2"].propose(b"%d" % n + bytes(500))
    net.pump("n2", "n3", rounds=20)
    net.elect("n3", "n2")
    net.connect_all()
    net.pump(rounds=5)
    assert net["n1"].last == net["n3"].last
    assert net["n1"].machine.values() == net["n3"].machine.values()
    assert b"divergent" not in net["n1"].machine.values()


def test_l13_many_divergent_entries_are_skipped_a_term_at_a_time() -> None:
    net = led_by_n1()
    net.isolate("n1")
    net["n1"].propose(*[b"junk%d" % n for n in range(500)])
    net["n1"].round()
    net.elect("n2", "n3")
    net["n2"].propose(*[b"good%d" % n for n in range(600)])
    net.pump("n2", "n3", rounds=10)
    net.connect_all()
    net.pump("n1", "n2", rounds=2)
    assert net["n1"].last == net["n2"].last


def test_what_is_under_way_to_a_follower_stays_within_the_window() -> None:
    net = led_by_n1(transfer_window_bytes=5000)
    for n in range(50):
        net["n1"].propose(b"%d" % n + bytes(1000))
        net["n1"].round()
    for peer in ("n2", "n3"):
        under_way = [m for m in net.sent("n1", peer) if isinstance(m, wire.Append)]
        assert sum(len(c) for m in under_way for _, c in m.entries) <= 5000 + 1100
    for _ in range(30):
        net["n1"].round(tick=True)
    assert len(net.sent("n1", "n2")) < 10, "a tick repeats nothing (L5)"
    net.pump(rounds=30)
    assert net["n2"].last == net["n1"].last


def test_l5_a_follower_that_waits_for_a_snapshot_is_not_flooded() -> None:
    net = behind_a_snapshot()
    net.connect("n2", "n1")
    for _ in range(20):
        net["n2"].round(tick=True)
    assert len(net.sent("n2", "n1")) <= 1


# -- L3, L4: elections


@pytest.mark.parametrize(
    "on",
    [ON, ON - {mitigations.PRE_VOTE}, ON - {mitigations.PRE_VOTE, mitigations.STICKY}],
    ids=["safe", "without pre_vote", "without pre_vote and sticky"],
)
def test_l3_a_node_that_hears_nothing_does_not_depose_a_healthy_leader(on: frozenset[str]) -> None:
    net = led_by_n1(on=on)
    term = net["n1"].term
    net.disconnect("n1", "n3")
    for _ in range(5):
        net.pump("n1", "n2", rounds=4)
        net["n3"].core.replica.campaign_at(0.0)
        net["n3"].round(tick=True)
        net.deliver("n3", "n1")
        net.deliver("n3", "n2")
        net.deliver("n1", "n2")
        net.deliver("n2", "n3")
        net["n3"].round(tick=True)
    assert (net["n3"].term == term) == (on == ON)
    assert net["n1"].leads == (mitigations.STICKY in on)


def test_stickiness_ends_when_the_leader_is_silent_for_the_minimum_timeout() -> None:
    net = led_by_n1()
    request = wire.PreVoteRequest(net["n3"].term, net["n3"].last, net["n3"].term)
    net.inject("n3", "n2", request)
    assert net.sent("n2", "n3")[-1] == wire.PreVote(request.term, False, net["n2"].term)
    net.clock.now_s += OPTIONS.election_timeout_min_ms / 1000 + 0.001
    net.inject("n3", "n2", request)
    assert net.sent("n2", "n3")[-1] == wire.PreVote(request.term, True, net["n2"].term)


def test_nobody_votes_for_a_shorter_log_whatever_the_hint_says() -> None:
    net = led_by_n1()
    net.disconnect("n1", "n3")
    net["n1"].propose(b"PRECIOUS")
    net.pump("n1", "n2")
    net.isolate("n1")
    for name in ("n2", "n3"):
        net[name].core.leader_gone("n1")
    net["n3"].core.replica.campaign_at(0.0)
    net["n3"].round(tick=True)
    net.deliver("n3", "n2")
    net.deliver("n2", "n3")
    net["n3"].round(tick=True)
    assert net["n3"].core.replica.role == "follower"
    net["n2"].core.replica.campaign_at(0.0)
    net["n2"].round(tick=True)
    net.deliver("n2", "n3")
    net.deliver("n3", "n2")
    net["n2"].round(tick=True)
    net.deliver("n2", "n3")
    net.deliver("n3", "n2")
    assert net["n2"].leads


@pytest.mark.parametrize("on", [ON, ON - {mitigations.SILENT_START}], ids=["safe", "without silent_start"])
def test_a_node_that_has_just_started_grants_nothing(on: frozenset[str]) -> None:
    net = led_by_n1(on=on)
    net.crash("n2")
    net.restart("n2")
    net.queues.clear()
    term, last = net["n3"].term + 1, net["n3"].last
    net.inject("n3", "n2", wire.VoteRequest(term, last, net["n3"].term))
    granted = wire.Vote(term) in net.sent("n2", "n3")
    assert granted == (on != ON)
    net.clock.now_s += OPTIONS.election_timeout_min_ms / 1000 + 0.001
    net.inject("n3", "n2", wire.VoteRequest(term + 1, last, net["n3"].term))
    assert wire.Vote(term + 1) in net.sent("n2", "n3")


@pytest.mark.parametrize("on", [ON, ON - {mitigations.HIGHER_TERM}], ids=["safe", "without higher_term"])
def test_l4_a_deposed_leader_learns_it_from_the_first_answer(on: frozenset[str]) -> None:
    net = led_by_n1(on=on)
    net.isolate("n1")
    net.elect("n2", "n3")
    net.connect("n1", "n3")
    net.connect("n3", "n1")
    net["n1"].core.heartbeat()
    net["n1"].round()
    net.deliver("n1", "n3")
    net.queues["n2", "n1"].clear()
    net.deliver("n3", "n1")
    assert net["n1"].leads == (on != ON)


@pytest.mark.parametrize(
    "on", [ON, ON - {mitigations.QUICK_STEP_DOWN}], ids=["safe", "without quick_step_down"]
)
def test_l4_a_leader_that_nobody_answers_steps_down_within_the_maximum_timeout(on: frozenset[str]) -> None:
    net = led_by_n1(on=on)
    net.isolate("n1")
    net.clock.now_s += OPTIONS.election_timeout_max_ms / 1000 + 0.01
    net["n1"].round(tick=True)
    assert net["n1"].leads == (on != ON)


def test_two_leaders_in_one_term_stop_the_node_that_sees_it() -> None:
    net = led_by_n1()
    with pytest.raises(RaftBroken, match="so does this node"):
        net.inject("n2", "n1", wire.Append(net["n1"].term, 1, 1, 0, 0, []))


# -- D1, D2: durability


@pytest.mark.parametrize("on", [ON, ON - {mitigations.SYNC}], ids=["safe", "without sync"])
def test_d2_a_vote_survives_a_loss_of_power_before_it_leaves(on: frozenset[str]) -> None:
    net = HandNet(3, on=on)
    voter = net["n2"]
    voter.inbox.append(("n1", wire.encode(wire.VoteRequest(5, 1, 0))))
    voter.round(sync=False)
    promised = wire.Vote(5) in net.sent("n2", "n1")
    assert promised == (on != ON)
    assert voter.core.replica.term_unsynced
    voter.sync()
    assert not voter.core.replica.term_unsynced
    assert wire.Vote(5) in net.sent("n2", "n1")
    net.crash("n2", power=True)
    net.restart("n2")
    net.clock.now_s += 10.0
    net.inject("n3", "n2", wire.VoteRequest(5, 1, 0))
    assert wire.Vote(5) not in net.sent("n2", "n3")


def test_d1_an_answer_to_an_append_leaves_after_the_sync() -> None:
    net = led_by_n1()
    net["n1"].propose(b"x")
    net["n1"].round()
    follower = net["n2"]
    while net.queues["n1", "n2"]:
        follower.inbox.append(("n1", net.queues["n1", "n2"].popleft().data))
    follower.round(sync=False)
    assert net.sent("n2", "n1") == []
    follower.sync()
    assert [reply.ok for reply in net.sent("n2", "n1") if isinstance(reply, wire.AppendReply)] == [True]


@pytest.mark.parametrize("on", [ON, ON - {mitigations.OWN_SYNC}], ids=["safe", "without own_sync"])
def test_d1_a_leader_counts_its_own_copy_only_when_it_is_durable(on: frozenset[str]) -> None:
    net = HandNet(1, on=on)
    node = net["n1"]
    node.core.replica.campaign_at(0.0)
    node.round(tick=True)
    node.round(tick=True)
    assert node.leads
    node.propose(b"x")
    node.core.tick()
    assert (b"x" in net.acknowledged) == (on != ON)
    node.round()
    node.round(tick=True)
    assert b"x" in net.acknowledged


def test_a_leader_sends_entries_before_its_own_sync_but_no_term_before_its() -> None:
    net = led_by_n1()
    net["n1"].propose(b"x")
    net["n1"].round(sync=False)
    assert any(isinstance(m, wire.Append) and m.entries for m in net.sent("n1", "n2"))
    net["n1"].sync()
    net.queues.clear()
    net["n3"].core._election.hint(net.clock.now_s)
    net["n3"].core._election._pre_vote = False
    net["n3"].core.replica.campaign_at(0.0)
    net["n3"].round(tick=True, sync=False)
    assert net.sent("n3", "n2") == []
    net["n3"].sync()
    assert any(isinstance(m, wire.VoteRequest) for m in net.sent("n3", "n2"))


# -- X1: what a peer may put into the log


@pytest.mark.parametrize(
    "command",
    [b"\x02membership", b"\x03version", b"", b"\x01but longer", bytes(OPTIONS.entry_bytes_max + 1)],
    ids=["membership", "version", "empty", "odd no-op", "too large"],
)
def test_x1_entries_that_only_the_package_would_understand_are_ignored(command: bytes) -> None:
    net = led_by_n1()
    last = net["n2"].last
    term = net["n1"].term
    net.inject("n1", "n2", wire.Append(term, 1000, last, term, 0, [(term, command)]))
    assert net["n2"].last == last
    assert net.sent("n2", "n1") == []


def test_entries_whose_terms_fall_or_pass_the_leaders_are_ignored() -> None:
    net = led_by_n1()
    last, term = net["n2"].last, net["n1"].term
    for terms in ([term - 1], [term + 1], [term, term - 1]):
        entries = [(entry_term, wire.NO_OP) for entry_term in terms]
        net.inject("n1", "n2", wire.Append(term, 1000, last, term, 0, entries))
        assert net["n2"].last == last


def test_an_answer_for_more_than_the_leader_has_is_not_believed() -> None:
    net = led_by_n1()
    net["n1"].core.heartbeat()
    net["n1"].round()
    [question] = [m for m in net.sent("n1", "n2") if isinstance(m, wire.Append)]
    net.inject("n2", "n1", wire.AppendReply(net["n1"].term, question.number, True, 1000))
    net["n1"].round(tick=True)
    assert net["n1"].core.replica.match_index("n2") <= net["n1"].last


# -- what else must hold


def test_a_follower_applies_what_is_committed_only_when_it_is_durable_here() -> None:
    net = led_by_n1()
    net["n1"].propose(b"x")
    net.pump("n1", "n3")
    assert b"x" in net.acknowledged
    follower = net["n2"]
    net["n1"].core.heartbeat()
    net["n1"].round()
    while net.queues["n1", "n2"]:
        follower.inbox.append(("n1", net.queues["n1", "n2"].popleft().data))
    follower.round(tick=True, sync=False)
    assert follower.commit == net["n1"].commit
    assert b"x" not in follower.machine.values()
    follower.sync()
    follower.round(tick=True)
    assert b"x" in follower.machine.values()


def test_a_leader_with_all_answers_still_commits_nothing_that_is_not_durable_here() -> None:
    net = led_by_n1()
    leader = net["n1"]
    commit = leader.commit
    leader.propose(b"x", b"y")
    net.send("n1", leader.core.take_early())
    for follower in ("n2", "n3"):
        net.queues[follower, "n1"].clear()
        net.deliver("n1", follower)
        for message in net.sent(follower, "n1"):
            leader.core.deliver(follower, message)  # type: ignore[arg-type]
    leader.core.tick()
    assert leader.core.replica.match_index("n2") == leader.last
    assert leader.commit == commit
    leader.journal.sync_now()
    leader.core.tick()
    assert leader.commit == leader.last


def test_nothing_of_a_leader_leaves_as_long_as_its_term_is_not_durable() -> None:
    net = led_by_n1()
    core = net["n1"].core
    core.heartbeat()
    core.replica.term_unsynced = True
    assert core.take_early() == []
    core.synced()
    assert len(core.take_early()) == 2


def test_no_pre_vote_for_a_term_that_is_already_past() -> None:
    net = led_by_n1()
    net.clock.now_s += 10.0
    net.inject("n3", "n2", wire.PreVoteRequest(net["n2"].term - 1, 1000, 1000))
    assert net.sent("n2", "n3")[-1] == wire.PreVote(net["n2"].term - 1, False, net["n2"].term)


def test_a_node_that_is_told_of_a_higher_term_takes_part_in_it() -> None:
    net = led_by_n1()
    term = net["n1"].term
    net.inject("n2", "n1", wire.PreVote(term, False, term + 5))
    assert not net["n1"].leads
    assert net["n1"].term == term + 5
    assert net["n1"].core.replica.leader_id is None


def test_a_snapshot_is_not_installed_when_the_log_has_caught_up_meanwhile() -> None:
    net = behind_a_snapshot()
    info = net["n2"].snapshots._store.latest()
    assert info is not None
    data = net["n2"].disk.read(info.name)
    net.inject("n2", "n1", wire.Snapshot(net["n2"].term, 1, info.index, info.term, info.size, 0, data))
    first = net["n1"].last
    assert first < info.index
    entries = [net.committed[index] for index in range(2, net["n2"].commit + 1)]
    term = net["n3"].term + 1
    net.inject("n3", "n1", wire.Append(term, 2, 1, 0, net["n2"].commit, entries))
    net["n1"].round(tick=True)
    while net["n1"].core.behind:
        net["n1"].round(tick=True)
    caught_up = net["n1"].machine.values()
    assert net["n1"].commit >= info.index
    net["n1"].disk.work()
    net["n1"].round(tick=True)
    assert net["n1"].snapshots.installed == 0
    assert net["n1"].machine.values() == caught_up
    net.crash("n1")
    net.restart("n1")
    assert net["n1"].last >= info.index
