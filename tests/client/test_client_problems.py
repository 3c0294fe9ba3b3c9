"""Every code of the public contract becomes the error that errors.py promises for it."""

import json

import pytest

import tenure
from tenure._problems import NotFound, read_problem, refusal
from tenure_cluster.service.errors import CODES

EXPECTED: dict[str, type[tenure.TenureError] | str] = {
    "invalid": tenure.InvalidRequest,
    "unsupported": tenure.InvalidRequest,
    "unauthenticated": tenure.NotAuthorized,
    "forbidden": tenure.NotAuthorized,
    "not_held": NotFound,
    "no_record": NotFound,
    "no_session": tenure.LeaseLost,
    "no_credential": NotFound,
    "no_member": tenure.InvalidRequest,
    "no_route": tenure.InvalidRequest,
    "method_not_allowed": tenure.InvalidRequest,
    "held": tenure.LeaseUnavailable,
    "deadlock": tenure.LeaseUnavailable,
    "mode_conflict": tenure.LeaseUnavailable,
    "member_exists": tenure.InvalidRequest,
    "change_refused": tenure.InvalidRequest,
    "not_transferred": tenure.InvalidRequest,
    "lost": tenure.LeaseLost,
    "session_expired": tenure.LeaseLost,
    "compacted": tenure.InvalidRequest,
    "stale_token": tenure.CommitRefused,
    "token_used": tenure.CommitRefused,
    "seq_replayed": tenure.CommitRefused,
    "not_live": tenure.CommitRefused,
    "revision_conflict": tenure.CommitRefused,
    "too_large": tenure.InvalidRequest,
    "unsupported_media_type": tenure.InvalidRequest,
    "out_of_range": tenure.InvalidRequest,
    "quota": tenure.QuotaExceeded,
    "overloaded": "not_executed",
    "internal": "unknown",
    "no_leader": "not_executed",
    "no_quorum": "not_executed",
    "shutting_down": "not_executed",
    "mixed_versions": "not_executed",
    "outcome_unknown": "unknown",
}


def test_the_table_knows_every_code_of_the_server() -> None:
    assert EXPECTED.keys() == CODES.keys()


@pytest.mark.parametrize("code", EXPECTED)
def test_a_code_becomes_its_error(code: str) -> None:
    status = CODES[code][0]
    body = json.dumps({"type": "about:blank", "status": status, "code": code, "detail": "so it is"}).encode()
    problem = read_problem(status, {"X-Request-Id": "x-1"}, body)
    expected = EXPECTED[code]
    if isinstance(expected, str):
        assert problem.kind == expected
        return
    assert problem.kind == "answered"
    error = refusal("acquire", problem)
    assert type(error) is expected
    assert (error.code, str(error), error.request_id) == (code, "so it is", "x-1")


def _refused(call: str, code: str, **members: object) -> tenure.TenureError:
    body = json.dumps({"code": code, "detail": "d", **members}).encode()
    return refusal(call, read_problem(CODES[code][0], {}, body))


def test_a_refused_acquire_names_the_holder() -> None:
    holder = {
        "key": "k",
        "owner": "agent-a",
        "token": 7,
        "mode": "exclusive",
        "slot": 0,
        "expires_in_ms": 12_000,
        "granted_at": "2026-11-29T10:00:00.000Z",
        "metadata": {},
        "something_new": 1,
    }
    error = _refused("acquire", "held", holder=holder)
    assert isinstance(error, tenure.LeaseUnavailable)
    assert error.holder is not None
    assert (error.holder.owner, error.holder.token) == ("agent-a", 7)


def test_a_deadlock_names_the_cycle() -> None:
    error = _refused("acquire", "deadlock", cycle=["a", "k1", "b", "k2"])
    assert isinstance(error, tenure.LeaseUnavailable)
    assert error.cycle == ("a", "k1", "b", "k2")


def test_a_refused_commit_names_the_floor() -> None:
    error = _refused("commit", "stale_token", floor=8, revision=3)
    assert isinstance(error, tenure.CommitRefused)
    assert (error.code, error.floor, error.revision) == ("stale_token", 8, 3)


def test_a_guard_of_another_mode_refuses_the_commit() -> None:
    assert isinstance(_refused("commit", "mode_conflict"), tenure.CommitRefused)


@pytest.mark.parametrize("call", ["session", "close_session"])
def test_looking_for_a_session_that_is_not_there_is_no_loss(call: str) -> None:
    assert isinstance(_refused(call, "no_session"), NotFound)


@pytest.mark.parametrize("code", ["lost", "session_expired"])
def test_a_loss_names_its_reason(code: str) -> None:
    error = _refused("renew", code, **({"reason": "broken"} if code == "lost" else {}))
    assert isinstance(error, tenure.LeaseLost)
    assert error.reason == ("broken" if code == "lost" else "session_expired")


def test_a_code_of_a_newer_server_is_judged_by_its_status() -> None:
    assert read_problem(418, {}, b'{"code":"teapot"}').kind == "answered"
    assert read_problem(507, {}, b'{"code":"full"}').kind == "unknown"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"x"', b"\xff\xfe", b'{"code":1}', b'{"code":null}', b"<html>", b'{"holder":']
)
def test_an_answer_that_is_no_problem_document_is_read_all_the_same(body: bytes) -> None:
    assert isinstance(refusal("acquire", read_problem(404, {}, body)), tenure.InvalidRequest)
    assert read_problem(503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, body).kind == "unknown"


@pytest.mark.parametrize("holder", [None, "agent-a", {"owner": 1}, []])
def test_a_holder_that_cannot_be_read_is_none(holder: object) -> None:
    error = _refused("acquire", "held", holder=holder)
    assert isinstance(error, tenure.LeaseUnavailable)
    assert error.holder is None


@pytest.mark.parametrize("reason", ["held", "grace", "queued"])
def test_a_refused_acquire_says_what_is_in_the_way(reason: str) -> None:
    error = _refused("acquire", "held", reason=reason)
    assert isinstance(error, tenure.LeaseUnavailable)
    assert error.reason == reason
