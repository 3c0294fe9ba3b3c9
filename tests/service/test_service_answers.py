"""Every result has its answer, with what remains at the time of answering."""

from typing import Any, get_args

import msgspec
import pytest
from msgspec import UNSET

from tenure_cluster.lease import limits, results
from tenure_cluster.lease.types import Lease, LeaseLife, Progress, Record, Session
from tenure_cluster.service.answers import answer, rfc3339
from tenure_cluster.service.asks import Ask
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import (
    AbandonedReply,
    AcceptedReply,
    BrokenBody,
    BrokenReply,
    DeletedReply,
    GrantedReply,
    HandedOverReply,
    LeaseBody,
    ParkedReply,
    ReleasedReply,
    RenewedReply,
    ResizedReply,
    SessionClosedReply,
    SessionReply,
    UnparkedReply,
    WaitingReply,
)
from tenure_cluster.service.requests import AcquireRequest, HandoverRequest

ASK = Ask("acquire", "t", AcquireRequest(owner="a", key="k", ttl_ms=30_000, request_id="r"))
SESSION = Session("t", "s1", "a", 30_000, 40_000, True, {}, 1_700_000_000_123, 1_700_000_005_000)
LEASE = Lease(
    "t", "s1", "k", "exclusive", 0, "s1", "a", 7, 0, {"w": "1"}, "r", 0, 10_000, 1_700_000_000_123, 12
)
GRANT = results.Grant(LEASE, SESSION)
HOLDER = results.Holder("k", "a", 7, "exclusive", 0, 40_000, 1_700_000_000_123, {"w": "1"})


def told(result: object, now_ms: int = 12_500, ask: Ask = ASK) -> Any:
    return answer(result, ask, now_ms)


def test_times_for_people_are_rfc_3339_in_utc_with_milliseconds() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


def test_a_grant_tells_its_holder_everything_and_what_remains_now() -> None:
    assert told(results.Granted([GRANT], False, True)) == GrantedReply(
        lease=LeaseBody(
            lease_id="s1", session_id="s1", key="k", owner="a", token=7, mode="exclusive", slot=0,
            ttl_ms=30_000, expires_in_ms=27_500, metadata={"w": "1"}, granted_at="2023-11-14T22:13:20.123Z",
            renewed_at="2023-11-14T22:13:25.000Z", revision=12,
        )
    )  # fmt: skip


def test_a_replay_says_so_and_a_set_has_a_list() -> None:
    assert told(results.Granted([GRANT], True, True)).replayed is True
    as_set = Ask("acquire", "t", AcquireRequest(owner="a", keys=["k"], ttl_ms=30_000, request_id="r"))
    reply = told(results.Granted([GRANT], False, True), ask=as_set)
    assert reply.lease is UNSET
    assert [lease.key for lease in reply.leases] == ["k"]


def test_nothing_remains_after_the_deadline() -> None:
    assert told(results.Granted([GRANT], False, True), now_ms=40_001).lease.expires_in_ms == 0


def test_an_unclaimed_grant_ends_with_its_claim_window() -> None:
    lease = msgspec.structs.replace(LEASE, claim_deadline_ms=15_000)
    assert told(results.Renewed(results.Grant(lease, SESSION))).lease.expires_in_ms == 2_500


def test_a_refused_acquire_says_who_holds_and_how_many_wait() -> None:
    problem = told(results.Held("k", [HOLDER], 3, 0))
    assert (problem.code, problem.status) == ("held", 409)
    assert problem.extra["holder"].owner == "a"
    assert problem.extra["holder"].expires_in_ms == 27_500
    assert problem.extra["waiters"] == 3
    assert "lease_id" not in msgspec.to_builtins(problem.extra["holder"])


def test_a_refused_acquire_in_a_grace_period_says_how_long() -> None:
    problem = told(results.Held("k", [], 0, 13_000))
    grace = {"reason": "grace", "expires_in_ms": 500, "blocked_ms": 500}
    assert problem.extra == {"key": "k", "waiters": 0, **grace}


READER = msgspec.structs.replace(HOLDER, mode="shared")
PERMIT = msgspec.structs.replace(HOLDER, mode="permit")


def asking(**fields: Any) -> Ask:
    given = {"owner": "b", "key": "k"} | ({} if "session_id" in fields else {"ttl_ms": 30_000}) | fields
    return Ask("acquire", "t", AcquireRequest(**given))


@pytest.mark.parametrize(
    ("holder", "ask"),
    [(READER, asking(mode="shared")), (PERMIT, asking(mode="permit", slots=2))],
    ids=["readers", "pool"],
)
def test_where_there_is_room_beside_the_holders_they_are_not_blamed(holder: results.Holder, ask: Ask) -> None:
    problem = told(results.Held("k", [holder], 0, 13_000), ask=ask)
    assert (problem.extra["reason"], problem.extra["blocked_ms"]) == ("grace", 500)
    assert problem.extra["holder"].owner == "a"
    assert "500 ms" in problem.detail
    assert "held by" not in problem.detail
    many = [READER] * limits.HOLDERS_NAMED_MAX if holder is READER else [holder]
    problem = told(results.Held("k", many, 2, 0), ask=ask)
    assert problem.extra["reason"] == "queued"
    assert "others came before and wait for it: 2" in problem.detail


@pytest.mark.parametrize(
    ("holders", "ask"),
    [
        ([READER], asking()),
        ([PERMIT, PERMIT], asking(mode="permit", slots=2)),
        ([READER], asking(mode="shared", session_id="s", if_held="conflict")),
        ([PERMIT], asking(mode="permit", slots=2, session_id="s")),
    ],
    ids=["writer", "full pool", "own lease", "own parked permit"],
)
def test_where_the_holders_are_in_the_way_they_are_named_so(holders: list[results.Holder], ask: Ask) -> None:
    problem = told(results.Held("k", holders, 2, 0), ask=ask)
    assert problem.extra["reason"] == "held"
    assert "is held by 'a'" in problem.detail


@pytest.mark.parametrize(
    ("operation", "cycle", "detail"),
    [
        ("acquire", ["a", "k", "b", "l"], "waiting would close a cycle: a -> k -> b -> l -> a"),
        ("handover", ["a", "k", "b", "l"], "handing it over would close a cycle: a -> k -> b -> l -> a"),
        ("unpark", ["a", "k", "b", "l"], "taking it up would close a cycle: a -> k -> b -> l -> a"),
        ("acquire", ["a", "k"], "'a' waits for 'k' already, by the same lease session"),
    ],
)
def test_a_deadlock_is_told_as_the_circle_that_it_is(operation: str, cycle: list[str], detail: str) -> None:
    problem = told(results.Deadlock(cycle), ask=Ask(operation, "t", ASK.request))
    assert (problem.code, problem.detail, problem.extra) == ("deadlock", detail, {"cycle": cycle})


def test_a_session_that_can_not_be_given_a_second_lease_of_a_key_is_told_so() -> None:
    ask = Ask("handover", "t", HandoverRequest(lease_id="l", to_session_id="s"))
    problem = told(results.Held("k", [READER], 0, 0), ask=ask)
    assert problem.extra["reason"] == "held"
    assert "has a lease of 'k' already" in problem.detail


def test_a_lease_says_that_it_is_parked_and_how_far_it_is() -> None:
    note = Progress("plan", "reading", 3, 11_000, 0)
    life = LeaseLife(5_000, 16_000, note, 30_000)
    lease = told(results.Parked(results.Grant(msgspec.structs.replace(LEASE, life=life), SESSION))).lease
    assert (lease.state, lease.progress_ms, lease.expires_in_ms) == ("parked", 5_000, 3_500)
    assert (lease.progress.step, lease.progress.counter, lease.progress.age_ms) == ("plan", 3, 1_500)
    plain = told(results.Renewed(GRANT)).lease
    assert (plain.state, plain.progress, plain.progress_ms) == (UNSET, UNSET, UNSET)


def test_a_waiter_is_told_its_place() -> None:
    reply = told(results.Waiting(3, [HOLDER], ["b", "c"]))
    assert isinstance(reply, WaitingReply)
    assert (reply.position, reply.request_id) == (3, "r")
    assert [(ahead.owner, ahead.state) for ahead in reply.ahead] == [
        ("a", "holding"),
        ("b", "waiting"),
        ("c", "waiting"),
    ]


RECORD = Record("t", "k", b"v", False, "", 7, "a", 3, 0)

REPLIES = [
    (results.SessionIs(SESSION, 2), SessionReply),
    (results.Renewed(GRANT), RenewedReply),
    (results.Released(False), ReleasedReply),
    (results.SessionClosed(2), SessionClosedReply),
    (results.Resized(3, 2, 1), ResizedReply),
    (results.Abandoned(True), AbandonedReply),
    (results.HandedOver(GRANT, False), HandedOverReply),
    (results.Parked(GRANT), ParkedReply),
    (results.Unparked(GRANT, True), UnparkedReply),
    (results.Broken([results.BrokenLease("a", 7)]), BrokenReply),
    (results.Committed(5), AcceptedReply),
    (results.RecordDeleted(RECORD), DeletedReply),
]

PROBLEMS = [
    (results.Deadlock(["a", "k", "b", "l"]), "deadlock", {"cycle": ["a", "k", "b", "l"]}),
    (
        results.ModeConflict("shared", "exclusive", "k"),
        "mode_conflict",
        {"key": "k", "present": "shared", "asked": "exclusive"},
    ),
    (
        results.ModeConflict("permit", "permit", "k", 2, 3),
        "mode_conflict",
        {"key": "k", "present": "permit", "asked": "permit", "present_slots": 2, "asked_slots": 3},
    ),
    (results.StaleToken(9), "stale_token", {"floor": 9}),
    (results.GuardConflict("once", "current"), "mode_conflict", {"present": "once", "asked": "current"}),
    (results.Lost("broken"), "lost", {"reason": "broken"}),
    (results.Lost("broken", "gone"), "lost", {"reason": "broken", "cause": "gone"}),
    (results.Lost("expired", "no_progress"), "lost", {"reason": "expired", "cause": "no_progress"}),
    (results.SessionExpired(), "session_expired", {}),
    (results.NoSession(), "no_session", {}),
    (
        results.CommitRefused("stale_token", 9, 8, 1, 4),
        "stale_token",
        {"floor": 9, "last_token": 8, "last_seq": 1, "revision": 4},
    ),
    (
        results.CommitRefused("seq_replayed", 9, 8, 1, 4),
        "seq_replayed",
        {"floor": 9, "last_token": 8, "last_seq": 1, "revision": 4},
    ),
    (results.NoRecord(), "no_record", {}),
    (results.NotHeld(), "not_held", {}),
    (results.RevisionConflict(4), "revision_conflict", {"revision": 4}),
    (results.QueueFull(10), "overloaded", {"waiters_max": 10}),
    (results.Invalid("odd"), "invalid", {"path": "$"}),
    (results.Unsupported("shared"), "unsupported", {}),
    (results.TokensExhausted(), "quota", {}),
]


@pytest.mark.parametrize(("result", "kind"), REPLIES)
def test_what_was_done_is_a_reply(result: object, kind: type) -> None:
    assert type(told(result)) is kind


@pytest.mark.parametrize(("result", "code", "extra"), PROBLEMS)
def test_a_refusal_is_a_problem_with_its_members(result: object, code: str, extra: dict[str, Any]) -> None:
    problem = told(result)
    assert isinstance(problem, Problem)
    assert (problem.code, problem.extra) == (code, extra)
    assert problem.detail


@pytest.mark.parametrize("code", ["stale_token", "not_live"])
def test_a_floor_of_zero_is_not_told_as_a_newer_grant(code: Any) -> None:
    """The key has no state, or the slot was never granted: there is no other to have come after."""
    assert told(results.CommitRefused(code, 0, 0, 0, 0)).detail.startswith(
        "no grant of this key and slot is known"
    )
    assert told(results.CommitRefused(code, 9, 0, 0, 0)).detail.endswith("the guard's floor is 9")


def test_a_conflict_of_revisions_is_told_as_one_whatever_the_floor() -> None:
    refused = results.CommitRefused("revision_conflict", 9, 8, 1, 4)
    assert told(refused).detail == "the record's revision is 4"


def test_released_twice_and_broken_leases_are_told_apart() -> None:
    assert told(results.Released(False)).status == "released"
    assert told(results.Released(True)).status == "already_released"
    assert told(results.Broken([results.BrokenLease("a", 7)])).broken == [BrokenBody(owner="a", token=7)]


def test_every_result_but_housekeeping_has_an_answer() -> None:
    tried = {type(result) for result, *_ in (*REPLIES, *PROBLEMS)}
    tried |= {results.Granted, results.Waiting, results.Held}
    assert tried == set(get_args(results.Result)) - {results.Done}
    assert told(results.Done(0)).code == "internal"


def test_the_reason_of_every_loss_is_told_in_words() -> None:
    for reason in get_args(results.EndReason):
        problem = told(results.Lost(reason))
        assert problem.extra == {"reason": reason}
        assert not problem.detail.endswith(reason)
