"""What may be asked: forms, bounds and what is not supported yet, each refusal with its path and bound."""

import base64
from typing import Any

import msgspec
import pytest

from tenure_cluster.lease import limits
from tenure_cluster.service.cluster_requests import AddMemberRequest
from tenure_cluster.service.errors import CODES, Problem
from tenure_cluster.service.requests import OPERATIONS
from tenure_cluster.service.validation import PAGE_MAX, WAIT_MS_MAX, check, commit_value
from tenure_cluster.settings import Leases

BOUNDS = Leases()

VALID: dict[str, dict[str, Any]] = {
    "acquire": {"key": "k", "owner": "a", "ttl_ms": 5000},
    "renew": {"lease_id": "l"},
    "release": {"lease_id": "l"},
    "handover": {"lease_id": "l", "to_session_id": "s"},
    "park": {"lease_id": "l", "limit_ms": 60_000},
    "unpark": {"lease_id": "l"},
    "abandon": {"request_id": "r"},
    "break": {"key": "k", "reason": "stuck"},
    "resize": {"key": "k", "slots": 2},
    "validate": {"key": "k", "token": 1},
    "commit": {"key": "k", "lease_id": "l", "token": 1, "mode": "once"},
    "get_lease": {"key": "k"},
    "list_leases": {},
    "queue": {"key": "k"},
    "get_record": {"key": "k"},
    "delete_record": {"key": "k"},
    "open_session": {"owner": "a", "ttl_ms": 5000},
    "get_session": {"session_id": "s"},
    "close_session": {"session_id": "s"},
}


def in_base64(size: int) -> str:
    return base64.b64encode(bytes(size)).decode()


def verdict(operation: str, **changes: Any) -> Problem | None:
    fields = {name: value for name, value in (VALID[operation] | changes).items() if value is not ...}
    return check(msgspec.convert(fields, OPERATIONS[operation]), BOUNDS)  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_a_check_and_a_plain_request_passes_it(operation: str) -> None:
    assert verdict(operation) is None


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        ("acquire", {"key": "a/b/" + "x" * 508}),
        ("acquire", {"key": "schlüssel/鍵"}),
        ("acquire", {"key": ..., "keys": ["one"]}),
        ("acquire", {"ttl_ms": ..., "session_id": "s"}),
        ("acquire", {"ttl_ms": BOUNDS.ttl_min_ms, "wait_ms": WAIT_MS_MAX, "grace_ms": limits.GRACE_MS_MAX}),
        ("acquire", {"metadata": {"k": "v" * (limits.METADATA_BYTES_MAX - 1)}}),
        ("acquire", {"metadata": {"note": "two\nlines"}}),
        ("renew", {"lease_id": ..., "session_id": "s", "ttl_ms": BOUNDS.ttl_max_ms}),
        ("break", {"reason": "stuck\nsince noon"}),
        ("commit", {"value": "x" * limits.VALUE_BYTES_MAX}),
        ("commit", {"value": in_base64(limits.VALUE_BYTES_MAX), "value_encoding": "base64"}),
        ("commit", {"value": "", "digest": "", "if_revision": 0}),
        ("commit", {"mode": "sequence", "seq": 0, "token": limits.TOKEN_MAX}),
        ("list_leases", {"limit": PAGE_MAX, "prefix": "a/", "after": "a/b", "owner": "me"}),
    ],
)  # fmt: skip
def test_what_lies_on_a_bound_is_allowed(operation: str, changes: dict[str, Any]) -> None:
    assert verdict(operation, **changes) is None


OUT_OF_RANGE = [
    ("acquire", {"key": ""}, "$.key", 1, 512),
    ("acquire", {"key": "é" * 257}, "$.key", 1, 512),
    ("acquire", {"key": ..., "keys": [""]}, "$.keys[0]", 1, 512),
    ("acquire", {"owner": ""}, "$.owner", 1, 256),
    ("acquire", {"owner": "x" * 257}, "$.owner", 1, 256),
    ("acquire", {"ttl_ms": 2999}, "$.ttl_ms", 3000, 86_400_000),
    ("acquire", {"ttl_ms": 86_400_001}, "$.ttl_ms", 3000, 86_400_000),
    ("acquire", {"ttl_ms": -(2**70)}, "$.ttl_ms", 3000, 86_400_000),
    ("acquire", {"wait_ms": -1}, "$.wait_ms", 0, WAIT_MS_MAX),
    ("acquire", {"wait_ms": WAIT_MS_MAX + 1}, "$.wait_ms", 0, WAIT_MS_MAX),
    ("acquire", {"grace_ms": limits.GRACE_MS_MAX + 1}, "$.grace_ms", 0, limits.GRACE_MS_MAX),
    ("acquire", {"request_id": ""}, "$.request_id", 1, 128),
    ("acquire", {"session_id": "s" * 129, "ttl_ms": ...}, "$.session_id", 1, 128),
    ("acquire", {"metadata": {"k": "v" * 4096}}, "$.metadata", 0, 4096),
    ("renew", {"ttl_ms": 1}, "$.ttl_ms", 3000, 86_400_000),
    ("renew", {"lease_id": ""}, "$.lease_id", 1, 128),
    ("release", {"lease_id": "x" * 129}, "$.lease_id", 1, 128),
    ("abandon", {"request_id": ""}, "$.request_id", 1, 128),
    ("break", {"reason": ""}, "$.reason", 1, 1024),
    ("resize", {"slots": 0}, "$.slots", 1, limits.HOLDERS_PER_KEY_MAX),
    ("validate", {"token": -1}, "$.token", 0, limits.TOKEN_MAX),
    ("validate", {"token": 2**53}, "$.token", 0, limits.TOKEN_MAX),
    ("commit", {"token": 2**64}, "$.token", 0, limits.TOKEN_MAX),
    ("commit", {"slot": -1}, "$.slot", 0, limits.SEQ_MAX),
    ("commit", {"mode": "sequence", "seq": 2**53}, "$.seq", 0, limits.SEQ_MAX),
    ("commit", {"if_revision": -1}, "$.if_revision", 0, limits.SEQ_MAX),
    ("commit", {"digest": "d" * 257}, "$.digest", 0, 256),
    ("commit", {"op_id": "o" * 129}, "$.op_id", 1, 128),
    ("commit", {"value": "é" * 32_769}, "$.value", 0, 65_536),
    ("commit", {"value": in_base64(65_537), "value_encoding": "base64"}, "$.value", 0, 65_536),
    ("commit", {"value": "A" * 200_000, "value_encoding": "base64"}, "$.value", 0, 65_536),
    ("list_leases", {"limit": 0}, "$.limit", 1, PAGE_MAX),
    ("list_leases", {"limit": PAGE_MAX + 1}, "$.limit", 1, PAGE_MAX),
    ("list_leases", {"prefix": "p" * 513}, "$.prefix", 0, 512),
    ("open_session", {"ttl_ms": 0}, "$.ttl_ms", 3000, 86_400_000),
    ("delete_record", {"if_revision": -1}, "$.if_revision", 0, limits.SEQ_MAX),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "changes", "path", "low", "high"), OUT_OF_RANGE)
def test_what_lies_outside_its_bound_is_refused_with_the_bound(
    operation: str, changes: dict[str, Any], path: str, low: int, high: int
) -> None:
    problem = verdict(operation, **changes)
    assert problem is not None
    assert problem.code == "out_of_range"
    assert problem.extra == {"path": path, "min": low, "max": high}
    assert str(low) in problem.detail
    assert str(high) in problem.detail


@pytest.mark.parametrize(
    ("operation", "changes", "path"),
    [
        ("acquire", {"key": ...}, "$.key"),
        ("acquire", {"keys": ["k"]}, "$.keys"),
        ("acquire", {"key": ..., "keys": []}, "$.keys"),
        ("acquire", {"key": "a\0b"}, "$.key"),
        ("acquire", {"key": "a\nb"}, "$.key"),
        ("acquire", {"key": "a\x7f"}, "$.key"),
        ("acquire", {"key": "a\x85"}, "$.key"),
        ("acquire", {"key": "a\ud800"}, "$.key"),
        ("acquire", {"owner": "a\tb"}, "$.owner"),
        ("acquire", {"ttl_ms": ...}, "$.ttl_ms"),
        ("acquire", {"session_id": "s"}, "$.ttl_ms"),
        ("acquire", {"slots": 3}, "$.slots"),
        ("acquire", {"metadata": {"\udfff": "v"}}, "$.metadata"),
        ("acquire", {"metadata": {"k": "\udfff"}}, "$.metadata"),
        ("renew", {"lease_id": ...}, "$.lease_id"),
        ("renew", {"session_id": "s"}, "$.lease_id"),
        ("break", {"reason": "\ud800"}, "$.reason"),
        ("commit", {"seq": 1}, "$.seq"),
        ("commit", {"mode": "sequence"}, "$.seq"),
        ("commit", {"value": "no!", "value_encoding": "base64"}, "$.value"),
        ("commit", {"value": "é", "value_encoding": "base64"}, "$.value"),
        ("commit", {"value": "\ud800"}, "$.value"),
        ("list_leases", {"after": "a\0"}, "$.after"),
        ("get_session", {"session_id": "a\r"}, "$.session_id"),
    ],
)
def test_a_wrong_form_is_invalid_at_its_path(operation: str, changes: dict[str, Any], path: str) -> None:
    problem = verdict(operation, **changes)
    assert problem is not None
    assert (problem.code, problem.extra) == ("invalid", {"path": path})


@pytest.mark.parametrize(
    ("keys", "code", "path"),
    [
        (["a", "b", "a"], "invalid", "$.keys"),
        (["a", "b\n"], "invalid", "$.keys[1]"),
        ([f"k{number}" for number in range(65)], "out_of_range", "$.keys"),
    ],
)
def test_a_set_names_up_to_64_different_keys(keys: list[str], code: str, path: str) -> None:
    problem = verdict("acquire", key=..., keys=keys)
    assert problem is not None
    assert (problem.code, problem.extra["path"]) == (code, path)
    assert verdict("acquire", key=..., keys=[f"k{number}" for number in range(64)]) is None


@pytest.mark.parametrize(
    ("operation", "changes", "code", "path"),
    [
        ("acquire", {"progress_ms": 999}, "out_of_range", "$.progress_ms"),
        ("renew", {"lease_id": ..., "session_id": "s", "progress": {}}, "invalid", "$.progress"),
        ("renew", {"progress": {"step": "x" * 129}}, "out_of_range", "$.progress.step"),
        ("renew", {"progress": {"step": "a\n"}}, "invalid", "$.progress.step"),
        ("renew", {"progress": {"text": "x" * 513}}, "out_of_range", "$.progress.text"),
        ("renew", {"progress": {"counter": -1}}, "out_of_range", "$.progress.counter"),
        ("park", {"limit_ms": 999}, "out_of_range", "$.limit_ms"),
        ("park", {"limit_ms": 30 * 86_400_000 + 1}, "out_of_range", "$.limit_ms"),
        ("unpark", {"session_id": "s", "ttl_ms": 5_000}, "invalid", "$.ttl_ms"),
        ("unpark", {"ttl_ms": 1}, "out_of_range", "$.ttl_ms"),
    ],
)
def test_progress_and_parking_have_bounds(
    operation: str, changes: dict[str, Any], code: str, path: str
) -> None:
    problem = verdict(operation, **changes)
    assert problem is not None
    assert (problem.code, problem.extra["path"]) == (code, path)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"mode": "permit"}, "invalid"),
        ({"mode": "permit", "slots": 0}, "out_of_range"),
        ({"mode": "permit", "slots": 1_001}, "out_of_range"),
        ({"mode": "shared", "slots": 1}, "invalid"),
        ({"slots": 1}, "invalid"),
    ],
)
def test_slots_go_with_permits(changes: dict[str, Any], code: str) -> None:
    problem = verdict("acquire", **changes)
    assert problem is not None
    assert (problem.code, problem.extra["path"]) == (code, "$.slots")
    assert verdict("acquire", mode="permit", slots=1_000) is None


def test_the_ttl_bounds_are_the_configuration_s() -> None:
    request = msgspec.convert(VALID["acquire"] | {"ttl_ms": 1500}, OPERATIONS["acquire"])
    assert check(request, Leases(ttl_min_ms=1500)) is None  # type: ignore[arg-type]
    problem = check(request, Leases(ttl_min_ms=1501))  # type: ignore[arg-type]
    assert problem is not None
    assert problem.extra["min"] == 1501


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({}, None),
        ({"value": ""}, b""),
        ({"value": "grün"}, "grün".encode()),
        ({"value": "AP8=", "value_encoding": "base64"}, b"\0\xff"),
    ],
)
def test_a_checked_value_is_its_bytes(changes: dict[str, Any], value: bytes | None) -> None:
    request = msgspec.convert(VALID["commit"] | changes, OPERATIONS["commit"])
    assert check(request, BOUNDS) is None  # type: ignore[arg-type]
    assert commit_value(request) == value  # type: ignore[arg-type]


def test_every_code_has_its_status_and_title() -> None:
    for code, (status, title) in CODES.items():
        problem = Problem(code, "detail")
        assert (problem.status, problem.title) == (status, title)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, None),
        ({"id": "n/4"}, "$.id"),
        ({"peer": "10.0.0.4"}, "$.peer"),
        ({"peer": "n4..test:7701"}, "$.peer"),
        ({"http": "10.0.0.4:7601"}, "$.http"),
        ({"http": "http://[::1:7601"}, "$.http"),
        ({"http": "http://:7601"}, "$.http"),
        ({"http": "http://n4:port"}, "$.http"),
    ],
    ids=str,
)
def test_a_member_needs_addresses_that_are_some(changes: dict[str, str], path: str | None) -> None:
    good = {"id": "n4", "peer": "10.0.0.4:7701", "http": "http://10.0.0.4:7601"}
    told = check(AddMemberRequest(**(good | changes)), BOUNDS)
    assert (told.extra["path"] if told is not None else None) == path
