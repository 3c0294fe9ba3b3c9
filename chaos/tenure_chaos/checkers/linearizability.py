"""Is a concurrent history linearizable against a sequential model?

Theory of operation. Wing and Gong's search with Lowe's memory: walk the history's calls and returns in the
order of time; at a call, try to take the operation next if the model allows its answer; at a return whose
operation has not been taken, go back to the last choice. A configuration (the set of operations taken, the
model's state) that was reached before need not be searched again. An operation without an answer may take
effect at any time after its call, or never.

The search is exponential in the worst case, so it is bounded: past ``steps_max`` the verdict is "unknown",
which a caller must report and not count as good.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

State = TypeVar("State", bound=Hashable)

Verdict = Literal["linearizable", "not_linearizable", "unknown"]

NEVER = float("inf")


@dataclass(frozen=True)
class Operation:
    """One call. ``returned_at`` is NEVER and ``answer`` is None if the outcome is unknown."""

    asked: Any
    answer: Any
    invoked_at: float
    returned_at: float


@dataclass(frozen=True)
class Model(Generic[State]):
    """``step(state, asked, answer)`` yields every state after an operation that may be answered so; none if
    it may not be.

    ``answer`` None stands for an unknown outcome: every state that the operation may lead to.
    """

    initial: State
    step: Callable[[State, Any, Any], Sequence[State]]


@dataclass(frozen=True)
class Outcome:
    """``deepest`` are the indexes of the longest prefix found, in the order taken: where to look when it
    failed.
    """

    verdict: Verdict
    steps: int
    deepest: tuple[int, ...]


class _Entry:
    """A call or a return in the doubly linked list of what is still to be placed."""

    __slots__ = ("is_call", "match", "next", "number", "previous")

    def __init__(self, number: int, is_call: bool) -> None:
        self.number, self.is_call = number, is_call
        self.previous: _Entry | None = None
        self.next: _Entry | None = None
        self.match: _Entry | None = None


def _linked(operations: Sequence[Operation]) -> _Entry:
    """The head of the list. At equal times calls come before returns, which allows more and so never
    accuses wrongly.
    """
    events: list[tuple[float, int, int, _Entry]] = []
    for number, operation in enumerate(operations):
        call, ret = _Entry(number, True), _Entry(number, False)
        call.match = ret
        events.append((operation.invoked_at, 0, number, call))
        events.append((operation.returned_at, 1, number, ret))
    events.sort(key=lambda event: event[:3])
    head = last = _Entry(-1, True)
    for *_, entry in events:
        last.next, entry.previous = entry, last
        last = entry
    return head


def _lift(call: _Entry) -> None:
    """Take a call and its return out of the list."""
    ret = call.match
    assert ret is not None
    assert call.previous is not None
    assert ret.previous is not None
    call.previous.next = call.next
    if call.next is not None:
        call.next.previous = call.previous
    ret.previous.next = ret.next
    if ret.next is not None:
        ret.next.previous = ret.previous


def _unlift(call: _Entry) -> None:
    """Put both back where they were."""
    ret = call.match
    assert ret is not None
    assert call.previous is not None
    assert ret.previous is not None
    ret.previous.next = ret
    if ret.next is not None:
        ret.next.previous = ret
    call.previous.next = call
    if call.next is not None:
        call.next.previous = call


def check(model: Model[State], operations: Sequence[Operation], *, steps_max: int = 1_000_000) -> Outcome:
    """Search for an order. See the module's docstring for the theory and the bound."""
    head = _linked(operations)
    must = sum(1 for operation in operations if operation.returned_at != NEVER)
    state = model.initial
    taken, placed = 0, 0
    seen: set[tuple[int, State]] = {(0, state)}
    choices: list[tuple[_Entry, State, list[State]]] = []
    deepest: tuple[int, ...] = ()
    steps = 0
    entry = head.next
    pending: list[State] | None = None
    while placed < must:
        steps += 1
        if steps > steps_max:
            return Outcome("unknown", steps, max(deepest, _numbers(choices), key=len))
        if entry is not None and entry.is_call:
            operation = operations[entry.number]
            after = (
                pending if pending is not None else list(model.step(state, operation.asked, operation.answer))
            )
            pending = None
            bit = taken | (1 << entry.number)
            while after:
                candidate = after.pop()
                if (bit, candidate) in seen:
                    continue
                seen.add((bit, candidate))
                choices.append((entry, state, after))
                state, taken = candidate, bit
                placed += operation.returned_at != NEVER
                _lift(entry)
                entry = head.next
                break
            else:
                entry = entry.next
            continue
        if len(choices) > len(deepest):
            deepest = _numbers(choices)
        if not choices:
            return Outcome("not_linearizable", steps, deepest)
        entry, state, pending = choices.pop()
        taken &= ~(1 << entry.number)
        placed -= operations[entry.number].returned_at != NEVER
        _unlift(entry)
    return Outcome("linearizable", steps, _numbers(choices))


def _numbers(choices: Sequence[tuple[_Entry, Any, Any]]) -> tuple[int, ...]:
    return tuple(entry.number for entry, _, _ in choices)
