"""apply answers any value of the command types, however wild, and the table stays whole."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_compare import COMMANDS, command_of
from model_lease import Model
from model_scripts import STEP_BYTES, Writer

from tenure_cluster.lease import commands, results, snapshot
from tenure_cluster.lease.machine import LeaseMachine

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
        st.tuples(stamps, st.one_of([wild(kind) for kind in COMMANDS.values()])),
        st.binary(min_size=STEP_BYTES, max_size=STEP_BYTES),
    ),
    max_size=60,
)


@settings(
    max_examples=300, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(wild_histories)
def test_any_command_is_answered_and_leaves_a_whole_table(
    history: list[bytes | tuple[int, commands.Command]],
) -> None:
    machine, replica, model = LeaseMachine(), LeaseMachine(), Model()
    writer = Writer(model)
    for step in history:
        if isinstance(step, bytes):
            written = writer.command(step)
            if written is None:
                continue
            model.step(*written)
            at_ms, command = written[0], command_of(written[1])
        else:
            at_ms, command = step
        applied = machine.apply(at_ms, command)
        assert isinstance(applied.result, typing.get_args(results.Result))
        assert applied == replica.apply(at_ms, commands.decode(commands.encode(command)))
        machine.check()
    chunks = list(snapshot.dump(machine.table))
    assert chunks == list(snapshot.dump(replica.table))
    again = snapshot.load(chunks)
    assert snapshot.digest(again) == snapshot.digest(machine.table)
    assert list(snapshot.dump(again)) == chunks
