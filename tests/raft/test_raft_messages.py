"""Frames are of the declared shapes or refused, and nothing else can happen."""

import pickle

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure_cluster.raft import messages as wire

SAMPLES = [
    wire.Ping(1),
    wire.Payload(b"x"),
    wire.Append(3, 4, 5, 2, 1, [(2, b"\x00a"), (3, b"\x01")]),
    wire.AppendReply(3, 4, True, 7),
    wire.Snapshot(3, 4, 5, 2, 100, 0, b"data"),
    wire.SnapshotReply(3, 4, 5, 100, True),
    wire.VoteRequest(3, 4, 2),
    wire.Vote(3),
    wire.PreVoteRequest(3, 4, 2),
    wire.PreVote(3, True, 4),
    wire.HigherTerm(9),
    wire.TimeoutNow(9),
]


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_every_message_is_decoded_as_it_was(message: wire.Inbound) -> None:
    assert wire.decode_inbound(wire.encode(message)) == message


def test_the_numbers_of_the_types_are_part_of_the_protocol() -> None:
    assert [msgpack.unpackb(wire.encode(message))[0] for message in SAMPLES] == [4, 6, *range(16, 26)]
    assert msgpack.unpackb(wire.encode(wire.Hello(1, "c", "a", "b", 2, 3, ["a"]))) == [
        1,
        1,
        "c",
        "a",
        "b",
        2,
        3,
        ["a"],
        *(0, ""),
        *(0, "", False, 0),
    ]


def test_a_greeting_of_before_it_told_what_it_knows_is_understood() -> None:
    body = msgpack.packb([1, 1, "c", "a", "b", 2, 3, ["a"]])
    assert wire.decode_greeting(body) == wire.Hello(1, "c", "a", "b", 2, 3, ["a"], 0, "")


def test_a_greeting_of_before_it_told_of_changes_of_members_is_understood() -> None:
    greeting = wire.decode_greeting(msgpack.packb([1, 1, "c", "a", "b", 2, 3, ["a"], 40, "9.0"]))
    assert (greeting.knows, greeting.software) == (40, "9.0")
    assert (greeting.members_index, greeting.address) == (0, "")
    assert (greeting.joining, greeting.features) == (False, 0)


def test_a_greeting_that_tells_more_than_is_known_here_is_understood() -> None:
    body = msgpack.packb([1, 1, "c", "a", "b", 2, 3, ["a"], 40, "9.0", 7, "h:1", False, 1, "and more"])
    known = wire.Hello(1, "c", "a", "b", 2, 3, ["a"], 40, "9.0", 7, "h:1", False, 1)
    assert wire.decode_greeting(body) == known


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"type": "append_entries"},
        [99, 1],
        [16, 1, 1, 1, 1, 1],
        [16, -1, 1, 1, 1, 1, []],
        [16, 1, 1, 1, 1, 1, [[1, "text"]]],
        [16, 1, 1, 1, 1, 1, [[1, b"", b""]]],
        [16, 1, 1, 1, 1, 1, {"transmission": "start"}],
        [17, 1, 1, "yes", 1],
        [1, 1, "c", "a", "b", 2, 3],
        [2, 1],
        [16, 1, 1, 1, 1, 1, [[1, msgpack.ExtType(1, b"")]]],
        msgpack.Timestamp(1),
        ["append_entries"],
    ],
    ids=str,
)
def test_any_other_shape_is_refused(value: object) -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.decode_inbound(msgpack.packb(value))


def test_a_pickle_is_just_bytes_that_are_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.decode_inbound(pickle.dumps({"type": "timeout_now"}))


@given(st.binary(max_size=200))
def test_random_bytes_raise_one_kind_of_error_or_are_a_message(data: bytes) -> None:
    try:
        message = wire.decode_inbound(data)
    except msgspec.DecodeError:
        return
    assert isinstance(message, msgspec.Struct)


@given(st.lists(st.tuples(st.integers(0, 1 << 53), st.binary(max_size=20)), min_size=1))
def test_an_entry_holds_its_stamps_and_commands(pairs: list[tuple[int, bytes]]) -> None:
    entry = wire.encode_entry(pairs)
    assert wire.is_entry(entry)
    assert wire.decode_entry(entry) == pairs


def test_only_two_types_of_entries_are_known() -> None:
    assert wire.decode_entry(wire.NO_OP) == []
    assert wire.is_entry(wire.NO_OP)
    for command in (b"", b"\x02", b"\x03", b"\x01\x00", b"x"):
        assert not wire.is_entry(command)
        with pytest.raises(msgspec.DecodeError):
            wire.decode_entry(command)


def test_a_payload_fits_the_frame_that_it_was_measured_for() -> None:
    assert len(wire.encode(wire.Payload(bytes(100_000)))) <= 100_000 + wire.PAYLOAD_OVERHEAD_BYTES
