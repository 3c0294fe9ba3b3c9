"""What two nodes' services say to one another survives the link, and what is none of it is refused."""

from typing import get_args

import msgspec
import pytest

from tenure_cluster.service import peer_messages
from tenure_cluster.service.asks import Ask, NoAnswer, Outcome
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.peer_messages import Answered, Asked, BadMessage
from tenure_cluster.service.replies import AcceptedReply, AheadBody, LeaseBody, Reply, WaitingReply
from tenure_cluster.service.requests import AcquireRequest, CommitRequest, ReleaseRequest


def test_a_question_arrives_as_it_was_asked() -> None:
    asks = [
        Ask("acquire", "t", AcquireRequest(owner="a", key="k", ttl_ms=5000, request_id="r"), remember=False),
        Ask("release", "t", ReleaseRequest(lease_id="l")),
    ]
    message = peer_messages.decode(peer_messages.encode_asked(7, 3, "t", asks))
    assert isinstance(message, Asked)
    assert (message.number, message.term) == (7, 3)
    arrived = peer_messages.asks_of(message)
    assert [(ask.operation, ask.tenant, ask.request, ask.remember) for ask in arrived] == [
        (ask.operation, ask.tenant, ask.request, ask.remember) for ask in asks
    ]


def test_an_answer_arrives_as_it_was_given() -> None:
    lease = LeaseBody(
        key="k", owner="a", token=3, mode="exclusive", slot=0, ttl_ms=5000, expires_in_ms=4000, metadata={},
        granted_at="2026-01-01T00:00:00.000Z", renewed_at="2026-01-01T00:00:00.000Z", revision=9,
    )  # fmt: skip
    outcomes: list[Outcome] = [
        NoAnswer.NOT_EXECUTED,
        NoAnswer.UNKNOWN,
        Problem("held", "held by another", {"waiters": 2}, 1.5),
        AcceptedReply(revision=4),
        WaitingReply(position=2, ahead=[AheadBody(owner="b", state="holding")], request_id="r"),
        lease,
    ]
    message = peer_messages.decode(peer_messages.encode_answered(8, outcomes))
    assert isinstance(message, Answered)
    assert message.number == 8
    assert peer_messages.outcomes_of(message) == outcomes


def test_that_nobody_waits_any_more_is_told_by_number() -> None:
    assert peer_messages.decode(peer_messages.encode_forgotten(9)) == peer_messages.Forgotten(9)


def test_every_reply_of_the_contract_can_be_passed_on() -> None:
    names = {shape.__name__ for shape in get_args(Reply)}
    assert len(names) == len(get_args(Reply))
    assert set(peer_messages._replies) == names


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([9, 1, 2]),
        msgspec.msgpack.encode([1, "number", 1, "t", []]),
        msgspec.msgpack.encode({"number": 1}),
    ],
)
def test_bytes_that_are_no_message_are_refused(payload: bytes) -> None:
    with pytest.raises(BadMessage):
        peer_messages.decode(payload)


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("shutdown", msgspec.msgpack.encode({})),
        ("release", msgspec.msgpack.encode({"lease_id": 4})),
        ("release", msgspec.msgpack.encode({"lease_id": "l", "force": True})),
        ("release", b"\xc1"),
    ],
)
def test_an_operation_that_does_not_exist_or_has_another_shape_is_refused(
    operation: str, body: bytes
) -> None:
    message = Asked(1, 1, "t", [peer_messages.AskedItem(operation, True, body)])
    with pytest.raises(BadMessage):
        peer_messages.asks_of(message)


def test_a_question_is_never_empty_nor_longer_than_a_batch() -> None:
    item = peer_messages.AskedItem("release", True, msgspec.msgpack.encode({"lease_id": "l"}))
    for items in ([], [item] * (peer_messages.OPERATIONS_MAX + 1)):
        with pytest.raises(BadMessage):
            peer_messages.asks_of(Asked(1, 1, "t", items))


@pytest.mark.parametrize(
    "item",
    [
        peer_messages.AnsweredItem(9, "", b""),
        peer_messages.AnsweredItem(3, "SecretReply", msgspec.msgpack.encode({})),
        peer_messages.AnsweredItem(3, "AcceptedReply", msgspec.msgpack.encode({"revision": "x"})),
        peer_messages.AnsweredItem(2, "", msgspec.msgpack.encode({"code": "odd", "detail": ""})),
    ],
)
def test_an_answer_of_no_known_kind_is_refused(item: peer_messages.AnsweredItem) -> None:
    with pytest.raises(BadMessage):
        peer_messages.outcomes_of(Answered(1, [item]))


def test_what_is_idempotent_is_what_can_be_asked_again_without_harm() -> None:
    commit = CommitRequest(key="k", lease_id="l", token=1, mode="once")
    assert not Ask("commit", "t", commit).idempotent
    assert Ask("commit", "t", msgspec.structs.replace(commit, op_id="o")).idempotent
    assert Ask("release", "t", ReleaseRequest(lease_id="l")).idempotent
    for operation in ("break", "open_session", "close_session", "delete_record"):
        assert not Ask(operation, "t", ReleaseRequest(lease_id="l")).idempotent
