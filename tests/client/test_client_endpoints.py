"""Which node the client asks."""

import pytest

from tenure._endpoints import HINT_SUSPICION_S, SUSPICION_S, Endpoints, parse_endpoints
from tenure.errors import InvalidRequest

A, B, C, X = "http://a:1", "http://b:1", "http://c:1", "http://x:1"


def test_a_client_stays_with_a_node_that_answers() -> None:
    endpoints = Endpoints([A, B, C], first=1)
    assert endpoints.choose(0.0) == B
    endpoints.served(B)
    assert endpoints.choose(1.0) == B


def test_clients_begin_at_different_nodes() -> None:
    assert [Endpoints([A, B, C], first=n).choose(0.0) for n in range(4)] == [A, B, C, A]


def test_a_failed_node_is_left_for_the_next_and_not_asked_again_by_turn_at_once() -> None:
    endpoints = Endpoints([A, B, C])
    endpoints.failed(A, 0.0)
    assert endpoints.choose(0.0) == B
    endpoints.failed(B, 0.0)
    assert endpoints.choose(0.0) == C
    endpoints.served(C)
    assert endpoints.choose(SUSPICION_S + 0.1) == C


def test_when_all_have_failed_the_one_that_failed_longest_ago_is_asked() -> None:
    endpoints = Endpoints([A, B, C])
    for at, url in enumerate((B, C, A)):
        endpoints.failed(url, at / 10)
    assert endpoints.choose(0.3) == B


def test_none_is_left_when_all_were_tried() -> None:
    endpoints = Endpoints([A, B])
    assert endpoints.choose(0.0, {A}) == B
    assert endpoints.choose(0.0, {A, B}) is None


def test_a_hinted_leader_comes_first_even_if_it_was_not_configured() -> None:
    endpoints = Endpoints([A, B])
    endpoints.hint(A, f"{X}/")
    assert endpoints.choose(0.0) == X
    assert endpoints.choose(0.0, {X}) == A


def test_a_hinted_leader_that_fails_is_forgotten_and_a_stranger_for_a_good_while() -> None:
    """An advertised address that only the nodes can reach must not cost every call a connection's
    time-out."""
    endpoints = Endpoints([A, B])
    endpoints.hint(A, X)
    endpoints.failed(X, 0.0)
    assert endpoints.choose(0.0) == A
    endpoints.hint(A, X)
    assert endpoints.choose(HINT_SUSPICION_S - 1) == A
    assert endpoints.choose(HINT_SUSPICION_S + 1) == X


def test_hints_cannot_fill_the_memory() -> None:
    endpoints = Endpoints([A, B])
    for n in range(1000):
        endpoints.hint(A, f"http://x{n}:1")
        endpoints.failed(f"http://x{n}:1", 0.0)
    assert len(endpoints._suspected_until) <= 3


@pytest.mark.parametrize("hint", [None, "", "garbage://x", "http://", "http://user:pw@x:1", "http://x:99999"])
def test_a_hint_that_is_no_url_is_ignored(hint: str | None) -> None:
    endpoints = Endpoints([A, B])
    endpoints.hint(A, hint)
    assert endpoints.leader is None


def test_a_hint_never_leads_from_tls_to_plain_text() -> None:
    endpoints = Endpoints(["https://a:1"])
    endpoints.hint("https://a:1", "http://b:1")
    assert endpoints.leader is None
    endpoints.hint("https://a:1", "https://b:1")
    assert endpoints.leader == "https://b:1"


def test_endpoints_are_read_with_their_oddities() -> None:
    assert parse_endpoints(" http://a:1/ ,b:2,, http://a:1,https://[::1]:7601/base/ ") == [
        "http://a:1",
        "http://b:2",
        "https://[::1]:7601/base",
    ]
    assert parse_endpoints(["http://a:1"]) == ["http://a:1"]


@pytest.mark.parametrize(
    "text",
    ["", " , ", "ftp://a:1", "http://", "http://a:port", "http://a:70000", "http://a/?x=1", "http://u@a"],
)
def test_an_endpoint_that_is_no_url_is_refused_and_named(text: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_endpoints(text)
    assert text.strip(" ,") in str(raised.value)
