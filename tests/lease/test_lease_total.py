"""apply answers any value of the command types, however wild, and the table stays whole.

Two kinds of histories: values from all over the ranges of their types; and tidy commands whose ids are drawn
from three letters, so that lease ids, session ids and request ids of every age collide all the time, which
the random ids of a leader never do.
"""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_compare import command_of
from model_lease import Model
from model_scripts import STEP_BYTES, Writer
from msgspec.structs import replace

from tenure_cluster.lease import commands, results, snapshot
from tenure_cluster.lease.audit_trail import Noted
from tenure_cluster.lease.credentials import CredentialResult
from tenure_cluster.lease.machine import LeaseMachine
from tenure_cluster.lease.quota import QuotaResult

NUMBERS = [0, 1, -1, 2, 500, 5_000, 2**31, 2**53 - 1, 2**53, 2**63 - 1, -(2**63)]
TEXTS = ["", "acme", "k1", "k2", "s1", "l1", "q1", "ann", "a\x00b", "\n", "ä" * 300, "0:q1", "2:s1q1"]
MESSAGE_PACK_NUMBERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation as MessagePack could bring them."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([anything(argument) for argument in arguments])
    if origin is list:
        return st.lists(anything(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(anything(arguments[0]), anything(arguments[1]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return wild(kind)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.one_of(st.sampled_from(NUMBERS), MESSAGE_PACK_NUMBERS),
        str: st.one_of(st.sampled_from(TEXTS), st.text(st.characters(codec="utf-8"), max_size=5)),
        bytes: st.binary(max_size=5),
        type(None): st.none(),
    }
    return plain[kind]


def wild(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: anything(hints[name]) for name in kind.__struct_fields__})


stamps = st.one_of(st.sampled_from([0, 1, 5_000, 2**40, -5, -(2**63)]), st.integers(0, 2**53))
wild_histories = st.lists(
    st.one_of(
        st.tuples(stamps, st.one_of([wild(kind) for kind in typing.get_args(commands.AnyCommand)])),
        st.binary(min_size=STEP_BYTES, max_size=STEP_BYTES),
    ),
    max_size=60,
)


RESULTS = (
    *typing.get_args(results.Result),
    *typing.get_args(CredentialResult),
    *typing.get_args(QuotaResult),
    Noted,
)


HISTORIES = settings(
    max_examples=300, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


class Pair:
    """A machine and its replica, which hears every command through its encoding."""

    def __init__(self) -> None:
        self.machine = LeaseMachine()
        self.replica = LeaseMachine()

    def apply(self, at_ms: int, command: commands.Command) -> None:
        applied = self.machine.apply(at_ms, command)
        assert isinstance(applied.result, RESULTS)
        assert applied == self.replica.apply(at_ms, commands.decode(commands.encode(command)))
        self.machine.check()

    def finish(self) -> None:
        """The table can be written and read back, and goes on from there as it was."""
        chunks = list(snapshot.dump(self.machine.table))
        assert chunks == list(snapshot.dump(self.replica.table))
        again = snapshot.load(chunks)
        assert snapshot.digest(again) == snapshot.digest(self.machine.table)
        assert list(snapshot.dump(again)) == chunks


@HISTORIES
@given(wild_histories)
def test_any_command_is_answered_and_leaves_a_whole_table(
    history: list[bytes | tuple[int, commands.Command]],
) -> None:
    pair, model = Pair(), Model()
    writer = Writer(model)
    for step in history:
        if isinstance(step, bytes):
            written = writer.command(step)
            if written is None:
                continue
            model.step(*written)
            pair.apply(written[0], command_of(written[1]))
        else:
            pair.apply(*step)
    pair.finish()


ids = st.sampled_from("abc")
some_id = st.none() | ids
keys = st.sampled_from(["k", "l"])
durations = st.sampled_from([1, 1_000, 5_000, 80_000])
pauses = st.sampled_from([0, 0, 0, 1, 500, 1_000, 5_000, 49_999, 60_000])
acquires = st.builds(
    commands.Acquire,
    tenant=st.just("t"),
    keys=keys.map(lambda key: [key]) | st.just(["k", "l"]) | st.just(["m", "k"]),
    lease_ids=ids.map(lambda lease_id: [lease_id]) | st.just(["a", "b"]) | st.just(["c", "a"]),
    owner=st.just("ann"),
    session_id=some_id,
    ttl_ms=durations,
    request_id=ids,
    remember=st.booleans(),
    wait=st.booleans(),
    mode=st.sampled_from(["exclusive", "exclusive", "shared", "permit"]),
    slots=st.sampled_from([1, 2]),
    grace_ms=st.sampled_from([0, 3_000]),
    if_held=st.sampled_from(["return", "conflict"]),
    metadata=st.just({}),
    wall_ms=st.just(1),
    progress_ms=st.sampled_from([0, 0, 2_000]),
).map(lambda asked: asked if asked.session_id is None else replace(asked, ttl_ms=None))
colliding = st.one_of(
    acquires,
    acquires,
    st.builds(commands.Claim, st.just("t"), ids, st.just(1)),
    st.builds(
        commands.Renew,
        *(st.just("t"), ids, st.none(), st.none(), st.just(1)),
        st.none() | st.builds(commands.ProgressNote, ids, st.just(""), st.just(1)),
    ),
    st.builds(commands.Renew, st.just("t"), st.none(), ids, durations, st.just(1)),
    st.builds(commands.Release, st.just("t"), ids, st.just(1), st.booleans()),
    st.builds(commands.Handover, st.just("t"), ids, ids, ids, st.just(1)),
    st.builds(commands.Park, st.just("t"), ids, durations, st.just(1), st.sampled_from([None, 1, 2])),
    st.builds(commands.Unpark, st.just("t"), ids, some_id, st.none(), st.just(1), st.sampled_from([None, 1])),
    st.builds(commands.Unpark, st.just("t"), ids, st.none(), durations, st.just(1)),
    st.builds(commands.Abandon, st.just("t"), ids, some_id, st.just(1)),
    st.builds(commands.Break, st.just("t"), keys, st.just("stuck"), st.just("me"), st.just(1)),
    st.builds(commands.Resize, st.just("t"), keys, st.integers(-1, 4), st.just("me"), st.just(1)),
    st.builds(commands.OpenSession, st.just("t"), ids, st.just("bob"), durations, st.just({}), st.just(1)),
    st.builds(commands.CloseSession, st.just("t"), ids, st.just(1)),
    st.just("reap"),
    st.just("reap"),
)


@settings(HISTORIES, max_examples=150)
@given(st.lists(st.tuples(pauses, colliding), min_size=20, max_size=60))
def test_ids_that_collide_leave_a_whole_table(history: list[tuple[int, commands.Command | str]]) -> None:
    pair = Pair()
    for pause_ms, step in history:
        table = pair.machine.table
        at_ms = table.time_ms + pause_ms
        pair.apply(at_ms, commands.Expire(table.due(at_ms, 10), 1) if isinstance(step, str) else step)
    pair.finish()
