"""The client without I/O: whom to ask next, when to ask again, and what a call ends as."""

import json
from collections.abc import Callable

import pytest

from tenure import _requests
from tenure._endpoints import Endpoints
from tenure._protocol import (
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    RETRY_AFTER_MAX_S,
    Attempt,
    Call,
    Pause,
)
from tenure._requests import POLL_SLICE_S, Request
from tenure.errors import ClusterUnavailable, LeaseUnavailable, OutcomeUnknown, TenureError

A, B, C = "http://a:1", "http://b:1", "http://c:1"
ACQUIRE = {"key": "k", "owner": "o", "ttl_ms": 5000, "request_id": "r"}

CALLS: dict[str, Request] = {
    "acquire": _requests.acquire(ACQUIRE),
    "acquire without request_id": _requests.acquire({"key": "k", "owner": "o", "ttl_ms": 5000}),
    "renew": _requests.renew(lease_id="l"),
    "renew a session": _requests.renew_session(session_id="s"),
    "release": _requests.release(lease_id="l"),
    "abandon": _requests.abandon(request_id="r"),
    "break": _requests.break_(key="k", reason="why"),
    "validate": _requests.validate(key="k", token=1),
    "commit": _requests.commit({"key": "k", "lease_id": "l", "token": 1, "mode": "once", "op_id": "o"}),
    "commit without op_id": _requests.commit({"key": "k", "lease_id": "l", "token": 1, "mode": "once"}),
    "get": _requests.lease("k"),
    "list": _requests.leases(),
    "queue": _requests.queue("k"),
    "record": _requests.record("k"),
    "delete a record": _requests.delete_record("k"),
    "delete a record of a revision": _requests.delete_record("k", if_revision=3),
    "open a session": _requests.open_session({"owner": "o", "ttl_ms": 5000}),
    "get a session": _requests.session("s"),
    "close a session": _requests.close_session("s"),
    "cluster": _requests.cluster(),
}

NEVER_TWICE = {"acquire without request_id", "break", "commit without op_id", "delete a record"}
READS = {"validate", "get", "list", "queue", "record", "get a session", "cluster"}


def call(request: Request, *urls: str, timeout_s: float = 10.0, attempt_timeout_s: float = 3.0) -> Call:
    endpoints = Endpoints(urls or (A, B, C))
    return Call(
        request,
        endpoints,
        now=0.0,
        timeout_s=timeout_s,
        attempt_timeout_s=attempt_timeout_s,
        draw=lambda: 0.5,
    )


def attempt(of: Call, now: float = 0.0) -> Attempt:
    step = of.next(now)
    assert isinstance(step, Attempt), step
    return step


def answer(of: Call, now: float, status: int, body: object, **headers: str) -> object:
    at = attempt(of, now)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return of.received(at, now, status, named, json.dumps(body).encode())


# What went wrong with an attempt -> how much is known about it.
FAULTS: dict[str, tuple[str, Callable[[Call, Attempt], object]]] = {
    "the connection was refused": (
        "not executed",
        lambda c, at: c.failed(at, 0.0, "connection refused", sent=False),
    ),
    "no answer came": ("unknown", lambda c, at: c.failed(at, 0.0, "no answer", sent=True)),
    **{
        f"{status} {code}": (
            known,
            lambda c, at, status=status, code=code: c.received(
                at, 0.0, status, {}, json.dumps({"code": code, "detail": "d"}).encode()
            ),
        )
        for status, code, known in [
            (503, "no_leader", "not executed"),
            (503, "no_quorum", "not executed"),
            (503, "shutting_down", "not executed"),
            (429, "overloaded", "not executed"),
            (504, "outcome_unknown", "unknown"),
            (500, "internal", "unknown"),
        ]
    },
    "a proxy's 502": ("unknown", lambda c, at: c.received(at, 0.0, 502, {}, b"<html>bad gateway</html>")),
    "a proxy's 503": ("unknown", lambda c, at: c.received(at, 0.0, 503, {}, b"")),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_made_again_only_if_that_cannot_do_a_thing_twice(name: str, fault: str) -> None:
    """T37, T40: release and acquire are retried by their ids; what has no id of its own is not."""
    of = call(CALLS[name])
    known, strike = FAULTS[fault]
    first = attempt(of)
    if known == "unknown" and name in NEVER_TWICE:
        with pytest.raises(OutcomeUnknown):
            strike(of, first)
        return
    assert strike(of, first) is None
    step = of.next(0.0)
    if isinstance(step, Pause):
        step = of.next(step.seconds)
    assert isinstance(step, Attempt)
    assert (step.method, step.target, step.body) == (first.method, first.target, first.body)
    assert of.doubtful == (known == "unknown" and name not in READS)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", sorted(CALLS.keys() - NEVER_TWICE))
def test_a_call_that_is_given_up_says_truly_whether_it_may_have_been_executed(name: str, fault: str) -> None:
    of = call(CALLS[name], timeout_s=0.04)
    known, strike = FAULTS[fault]
    for _ in range(3):
        step = of.next(0.0)
        if isinstance(step, Pause):
            break
        strike(of, step)
    expected = OutcomeUnknown if known == "unknown" and name not in READS else ClusterUnavailable
    with pytest.raises(expected) as raised:
        of.next(0.04)
    assert type(raised.value) is expected


def test_one_doubtful_attempt_leaves_the_whole_call_in_doubt() -> None:
    of = call(CALLS["renew"], timeout_s=1.0)
    of.failed(attempt(of), 0.0, "no answer", sent=True)
    answer(of, 0.0, 503, {"code": "no_leader"})
    answer(of, 0.0, 503, {"code": "no_leader"})
    with pytest.raises(OutcomeUnknown):
        of.next(1.0)


def test_an_answer_after_a_doubtful_attempt_settles_it_but_the_doubt_is_kept_for_the_caller() -> None:
    of = call(CALLS["acquire"])
    of.failed(attempt(of), 0.0, "no answer", sent=True)
    with pytest.raises(LeaseUnavailable):
        answer(of, 0.1, 409, {"code": "held", "detail": "held by another"})
    assert of.doubtful


def test_every_node_is_tried_at_once_before_the_first_pause() -> None:
    of = call(CALLS["get"])
    tried = []
    for _ in range(3):
        at = attempt(of)
        tried.append(at.url)
        of.failed(at, 0.0, "connection refused", sent=False)
    assert sorted(tried) == [A, B, C]
    assert isinstance(of.next(0.0), Pause)


def test_pauses_double_up_to_their_bound_and_carry_jitter() -> None:
    for draw in (0.0, 0.999):
        of = Call(
            CALLS["get"], Endpoints([A]), now=0.0, timeout_s=1e6, attempt_timeout_s=3.0, draw=lambda d=draw: d
        )
        now, pauses = 0.0, []
        for _ in range(10):
            of.failed(attempt(of, now), now, "connection refused", sent=False)
            step = of.next(now)
            assert isinstance(step, Pause)
            pauses.append(step.seconds)
            now += step.seconds
        expected = [min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2**n) * (1 + draw) / 2 for n in range(10)]
        assert pauses == pytest.approx(expected, abs=1e-6)


def test_an_overloaded_cluster_is_left_alone_as_long_as_it_asks() -> None:
    of = call(CALLS["acquire"])
    assert answer(of, 0.0, 429, {"code": "overloaded"}, Retry_After="2") is None
    step = of.next(0.0)
    assert isinstance(step, Pause)
    assert 2.0 <= step.seconds <= 2.0 + BACKOFF_MIN_S


def test_a_retry_after_beyond_reason_is_cut_and_one_beyond_the_time_left_ends_the_call() -> None:
    of = call(CALLS["acquire"], timeout_s=1000.0)
    answer(of, 0.0, 429, {"code": "overloaded"}, Retry_After="86400")
    step = of.next(0.0)
    assert isinstance(step, Pause)
    assert step.seconds <= RETRY_AFTER_MAX_S + BACKOFF_MIN_S
    of = call(CALLS["acquire"], timeout_s=10.0)
    answer(of, 0.0, 429, {"code": "overloaded"}, Retry_After="20")
    with pytest.raises(ClusterUnavailable) as raised:
        of.next(0.0)
    assert raised.value.code == "overloaded"


def test_no_leader_is_asked_again_sooner_than_retry_after_says() -> None:
    of = call(CALLS["acquire"], A)
    answer(of, 0.0, 503, {"code": "no_leader"}, Retry_After="1")
    step = of.next(0.0)
    assert isinstance(step, Pause)
    assert step.seconds <= BACKOFF_MIN_S


def test_the_first_attempt_is_made_however_little_time_there_is() -> None:
    of = call(CALLS["get"], timeout_s=0.0)
    assert attempt(of, 5.0).timeout_s > 0
    of.failed(attempt(call(CALLS["get"], timeout_s=0.0)), 5.0, "no answer", sent=True)
    with pytest.raises(ClusterUnavailable):
        of.next(5.0)


def test_an_attempt_ends_in_time_for_another_node_unless_the_call_must_not_be_made_twice() -> None:
    assert attempt(call(CALLS["renew"])).timeout_s == 3.0
    assert attempt(call(CALLS["break"])).timeout_s == 10.0
    assert attempt(call(CALLS["break"])).once
    assert not attempt(call(CALLS["renew"])).once


def test_validity_counts_from_the_attempt_that_was_answered() -> None:
    of = call(CALLS["release"])
    of.failed(attempt(of, 1.0), 4.0, "no answer", sent=True)
    at = attempt(of, 4.0)
    got = of.received(at, 6.5, 200, {}, b'{"status":"released"}')
    assert got is not None
    assert got.sent_at == 4.0


def test_the_leader_that_an_answer_names_is_asked_next() -> None:
    endpoints = Endpoints([A, B, C])
    of = Call(CALLS["get"], endpoints, now=0.0, timeout_s=10.0, attempt_timeout_s=3.0, draw=lambda: 0.5)
    with pytest.raises(TenureError):
        answer(of, 0.0, 404, {"code": "not_held"}, X_Tenure_Leader="http://c:1")
    assert endpoints.choose(0.0) == C


@pytest.mark.parametrize("name", ["release", "get"])
def test_an_answer_that_no_node_would_give_is_never_taken_for_success(name: str) -> None:
    of = call(CALLS[name])
    with pytest.raises(OutcomeUnknown if name == "release" else ClusterUnavailable):
        of.received(attempt(of), 0.0, 200, {}, b"<html>welcome to the portal</html>")


def test_a_leader_that_another_call_has_found_dead_meanwhile_ends_the_round() -> None:
    endpoints = Endpoints([A])
    of = Call(CALLS["get"], endpoints, now=0.0, timeout_s=10.0, attempt_timeout_s=3.0, draw=lambda: 0.5)
    at = attempt(of)
    endpoints.hint(A, B)
    of.failed(at, 0.0, "connection refused", sent=False)
    endpoints.failed(B, 0.0)
    step = of.next(0.0)
    assert isinstance(step, Pause)
    assert attempt(of, step.seconds).url == A


# A poll of a queued acquire.


def test_a_poll_asks_for_the_waiting_time_that_is_left_but_for_one_slice_at_most() -> None:
    of = call(_requests.acquire(ACQUIRE, wait_until=12.0), timeout_s=10.0)
    first = attempt(of, 0.0)
    assert json.loads(first.body or b"")["wait_ms"] == POLL_SLICE_S * 1000
    assert first.timeout_s == POLL_SLICE_S + 3.0
    of.failed(first, 9.5, "no answer", sent=True)
    second = attempt(of, 9.5)
    assert json.loads(second.body or b"") == {**ACQUIRE, "wait_ms": 2500}
    of.failed(second, 12.0, "no answer", sent=True)
    assert json.loads(attempt(of, 12.5).body or b"")["wait_ms"] == 0


def test_a_poll_is_tried_until_its_waiting_time_is_over_even_beyond_the_usual_time_out() -> None:
    of = call(_requests.acquire(ACQUIRE, wait_until=60.0), A, timeout_s=10.0)
    of.failed(attempt(of, 0.0), 50.0, "no answer", sent=True)
    assert isinstance(of.next(50.0), Pause)
    of.failed(attempt(of, 51.0), 62.5, "no answer", sent=True)
    with pytest.raises(OutcomeUnknown):
        of.next(63.0)


# The time that a call is given.


def rounds(of: Call, refusal_s: float, until_s: float) -> tuple[float, TenureError]:
    """Let every attempt be refused with no_leader after `refusal_s`, or be cut off by its own time-out. When
    and how the call ended."""
    now = 0.0
    while now < until_s * 2:
        try:
            step = of.next(now)
        except TenureError as error:
            return now, error
        if isinstance(step, Pause):
            now += step.seconds
        elif step.timeout_s < refusal_s:
            now += step.timeout_s
            of.failed(step, now, f"no answer within {step.timeout_s:.1f} s", sent=True)
        else:
            now += refusal_s
            of.received(step, now, 503, {}, b'{"code":"no_leader","detail":"no leader is known"}')
    raise AssertionError("the call did not end")


@pytest.mark.parametrize("timeout_s", [2.5, 3.0, 5.0, 7.9, 10.0])
@pytest.mark.parametrize("name", ["acquire", "commit", "release", "break"])
def test_refusals_that_took_long_are_not_turned_into_doubt_by_a_last_attempt_that_is_cut_off(
    name: str, timeout_s: float
) -> None:
    of = call(CALLS[name], A, timeout_s=timeout_s)
    ended_at, error = rounds(of, 2.0, timeout_s)
    assert type(error) is ClusterUnavailable
    assert error.code == "no_leader"
    assert not of.doubtful
    assert timeout_s - 2.0 * 1.25 - BACKOFF_MAX_S <= ended_at <= timeout_s


def test_a_slow_refusal_does_not_keep_the_call_from_a_node_that_may_know_better() -> None:
    of = call(CALLS["renew"], A, B, timeout_s=3.0)
    first = attempt(of)
    of.received(first, 2.0, 503, {}, b'{"code":"no_leader"}')
    second = attempt(of, 2.0)
    assert {first.url, second.url} == {A, B}
    of.failed(second, 2.0, "connection refused", sent=False)
    with pytest.raises(ClusterUnavailable):
        of.next(2.0)


def test_quick_refusals_are_tried_again_until_the_time_is_over() -> None:
    of = call(CALLS["renew"], A, timeout_s=3.0)
    ended_at, error = rounds(of, 0.01, 3.0)
    assert type(error) is ClusterUnavailable
    assert 3.0 - BACKOFF_MAX_S <= ended_at <= 3.0


def test_reads_are_tried_to_the_end_because_nothing_is_in_doubt() -> None:
    ended_at, error = rounds(call(CALLS["get"], A, timeout_s=5.0), 2.0, 5.0)
    assert type(error) is ClusterUnavailable
    assert ended_at == 5.0


def test_waiting_at_the_server_does_not_count_as_a_slow_refusal() -> None:
    of = call(_requests.acquire(ACQUIRE, wait_until=60.0), A)
    at = attempt(of, 0.0)
    of.received(at, 9.0, 503, {}, b'{"code":"no_leader"}')
    assert isinstance(of.next(9.0), Pause)
    assert isinstance(of.next(62.0), Attempt)


def test_a_refusal_is_what_the_call_ends_as_even_if_other_nodes_are_unreachable() -> None:
    of = call(CALLS["renew"], A, B, timeout_s=1.0)
    answer(of, 0.0, 503, {"code": "no_leader", "detail": "no leader is known"})
    of.failed(attempt(of), 0.0, "connection refused", sent=False)
    with pytest.raises(ClusterUnavailable, match="no leader is known") as raised:
        of.next(1.0)
    assert raised.value.code == "no_leader"
