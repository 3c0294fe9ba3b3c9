"""What the services of two nodes say to one another, with the requests and replies inside."""

import msgspec
from fuzz_examples import examples
from fuzz_kit import PACKED_WORDS, Target, deepened

from tenure_cluster.service import peer_messages
from tenure_cluster.service.asks import Ask, NoAnswer
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.peer_messages import Answered, Asked, BadMessage, Described
from tenure_cluster.service.replies import OwnBody, Reply
from tenure_cluster.service.requests import ALL_OPERATIONS

_encode = msgspec.msgpack.encode


def check(data: bytes) -> bool:
    """Whatever is understood can be passed on, and is understood the same."""
    try:
        message = peer_messages.decode(data)
        passed_on = _passed_on(message)
    except BadMessage as refused:
        assert str(refused)
        return False
    again = peer_messages.decode(passed_on)
    assert _passed_on(again) == passed_on
    return True


def _passed_on(message: peer_messages.Message) -> bytes:
    if isinstance(message, Asked):
        asks = peer_messages.asks_of(message)
        assert len(asks) == len(message.items) <= peer_messages.OPERATIONS_MAX
        assert all(ask.tenant == message.tenant for ask in asks)
        return peer_messages.encode_asked(message.number, message.term, message.tenant, asks)
    if isinstance(message, Answered):
        outcomes = peer_messages.outcomes_of(message)
        assert len(outcomes) == len(message.items)
        return peer_messages.encode_answered(message.number, outcomes)
    if isinstance(message, Described):
        return peer_messages.encode_described(message.number, peer_messages.own_of(message))
    return _encode(message)


def seeds() -> list[bytes]:
    found = []
    for operation, shape in ALL_OPERATIONS.items():
        for request in examples(shape):
            asks = [Ask(operation, "t", request, remember=True)] * 2
            found.append(peer_messages.encode_asked(7, 3, "t", asks, "trace"))
    for reply in examples(Reply, 1):
        found.append(peer_messages.encode_answered(8, [reply]))
    outcomes = [NoAnswer.NOT_EXECUTED, NoAnswer.UNKNOWN, Problem("held", "held", {"waiters": 2}, 1.5)]
    found.append(peer_messages.encode_answered(9, outcomes))
    found += [peer_messages.encode_described(1, own) for own in examples(OwnBody)]
    found += [peer_messages.encode_forgotten(9), peer_messages.encode_describe(1)]
    deep = peer_messages.encode_answered(9, [Problem("held", "", {"deep": _raw(deepened(b"\x90"))})])
    return [*found, deep, *(deepened(message) for message in found[:2] + found[-2:])]


def _raw(packed: bytes) -> msgspec.Raw:
    return msgspec.Raw(packed + b"\xc0")


TARGET = Target("peer_messages", check, seeds, PACKED_WORDS, 4096)
