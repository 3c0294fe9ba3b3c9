"""What the client sends: paths that hold any key, bodies without what was not asked."""

import json
from urllib.parse import unquote

import pytest

from tenure import _requests


@pytest.mark.parametrize("key", ["payment/security/42", "a//b", "..", "a/../b", "ü/%2F?#&= +", "k" * 512])
@pytest.mark.parametrize(
    "make", [_requests.lease, _requests.queue, _requests.record, _requests.delete_record]
)
def test_any_key_is_one_part_of_the_path(make, key: str) -> None:
    target = make(key).target()
    assert target.count("/") == 3
    assert "?" not in target
    assert unquote(target.rpartition("/")[2]) == key


def test_a_listing_asks_only_for_what_was_given() -> None:
    assert _requests.leases().target() == "/v1/leases"
    target = _requests.leases(prefix="a b/", limit=5, after="ü", owner="o").target()
    assert target == "/v1/leases?prefix=a+b%2F&limit=5&after=%C3%BC&owner=o"


def test_deleting_a_record_names_the_revision_even_if_it_is_zero() -> None:
    assert _requests.delete_record("k", if_revision=0).target() == "/v1/records/k?if_revision=0"


def test_what_was_not_given_is_not_sent() -> None:
    sent = json.loads(_requests.renew(lease_id="l").encode(0.0) or b"")
    assert sent == {"lease_id": "l"}


def test_an_acquire_that_does_not_wait_says_nothing_of_waiting() -> None:
    sent = json.loads(_requests.acquire({"key": "k", "owner": "o"}).encode(0.0) or b"")
    assert sent == {"key": "k", "owner": "o"}


def test_a_poll_whose_time_is_all_but_over_still_waits_for_a_whole_millisecond() -> None:
    request = _requests.acquire({"key": "k"}, wait_until=1.0)
    assert json.loads(request.encode(0.9999) or b"")["wait_ms"] == 1
    assert json.loads(request.encode(1.0) or b"")["wait_ms"] == 0
