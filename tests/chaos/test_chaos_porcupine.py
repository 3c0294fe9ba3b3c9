"""Our search for linearizability and our model of a key agree with Porcupine and a model written in Go.

Porcupine's verdicts on three thousand generated histories are kept in porcupine_verdicts.json; where Go is
installed they are also made anew.
"""

from collections.abc import Sequence
from pathlib import Path

import porcupine_kit
import pytest

from tenure_chaos.checkers.generated import CLIENTS_MAX, SIZES, history
from tenure_chaos.checkers.linearizability import NEVER, Model, Operation, check
from tenure_chaos.model import KEY, Answered, Asked, KeyState, step

STEPS_MAX = 1_000_000
"""Enough for our search to decide them all."""


@pytest.fixture(scope="module")
def histories() -> list[list[Operation]]:
    return [history(number) for number in range(porcupine_kit.COUNT)]


@pytest.fixture(scope="module")
def theirs() -> list[bool]:
    return porcupine_kit.recorded()[1]


def test_the_recorded_verdicts_are_on_these_histories() -> None:
    sha256, verdicts = porcupine_kit.recorded()
    assert sha256 == porcupine_kit.digest(porcupine_kit.histories()), "python tests/chaos/porcupine_kit.py"
    assert len(verdicts) == porcupine_kit.COUNT


def test_our_verdicts_are_theirs(histories: list[list[Operation]], theirs: list[bool]) -> None:
    ours = [check(KEY, operations, steps_max=STEPS_MAX).verdict for operations in histories]
    expected = ["linearizable" if good else "not_linearizable" for good in theirs]
    assert [
        number for number, pair in enumerate(zip(ours, expected, strict=True)) if len(set(pair)) > 1
    ] == []


def test_histories_of_every_size_are_judged_both_ways(
    histories: list[list[Operation]], theirs: list[bool]
) -> None:
    for smallest, largest in SIZES:
        verdicts = [
            good
            for operations, good in zip(histories, theirs, strict=True)
            if smallest <= len(operations) <= largest
        ]
        assert min(verdicts.count(True), verdicts.count(False)) > 50, (smallest, largest)


def test_the_histories_have_concurrency_and_unknown_outcomes(histories: list[list[Operation]]) -> None:
    def most_at_a_time(operations: Sequence[Operation]) -> int:
        certain = [operation for operation in operations if operation.returned_at != NEVER]
        return max(
            (
                sum(other.invoked_at <= operation.invoked_at <= other.returned_at for other in certain)
                for operation in certain
            ),
            default=0,
        )

    widest = [most_at_a_time(operations) for operations in histories]
    assert sum(width == 1 for width in widest) > 100
    assert sum(width >= 4 for width in widest) > 500
    assert CLIENTS_MAX <= max(widest) <= CLIENTS_MAX + 3  # what was moved in time may meet more
    unknown = [op for operations in histories for op in operations if op.returned_at == NEVER]
    assert sum(operation.answer is None for operation in unknown) > 50
    assert sum(operation.answer is not None for operation in unknown) > 500


def test_every_answer_of_the_model_occurs(histories: list[list[Operation]]) -> None:
    seen = {
        (operation.asked.kind, operation.answer.how)
        for operations in histories
        for operation in operations
        if operation.answer is not None
    }
    assert seen == {
        *(("acquire", how) for how in ("granted", "again", "held")),
        *(("renew", how) for how in ("renewed", "lost")),
        *(("release", how) for how in ("released", "over")),
        *(("commit", how) for how in ("accepted", "stale_token", "not_live", "token_used", "seq_replayed")),
        *(("get", how) for how in ("held", "free")),
        *(("record", how) for how in ("record", "none")),
        ("break", "broken"),
        ("delete", "deleted"),
    }


def tokens_may_repeat(state: KeyState, asked: Asked, answer: Answered) -> Sequence[KeyState]:
    if asked.kind == "acquire" and answer is not None and answer.how == "granted":
        return [state._replace(holder=answer.token, floor=max(state.floor, answer.token))]
    return step(state, asked, answer)


def stale_writes_pass(state: KeyState, asked: Asked, answer: Answered) -> Sequence[KeyState]:
    return step(state._replace(floor=0) if asked.kind == "commit" else state, asked, answer)


def leases_never_end(state: KeyState, asked: Asked, answer: Answered) -> Sequence[KeyState]:
    return [
        after for after in step(state, asked, answer) if asked.kind != "get" or after.holder == state.holder
    ]


def breaks_raise_nothing(state: KeyState, asked: Asked, answer: Answered) -> Sequence[KeyState]:
    floor = state.floor
    return [after._replace(floor=max(floor, after.holder)) for after in step(state, asked, answer)]


@pytest.mark.parametrize(
    "wrong", [tokens_may_repeat, stale_writes_pass, leases_never_end, breaks_raise_nothing]
)
def test_a_wrong_model_does_not_agree(
    wrong: object, histories: list[list[Operation]], theirs: list[bool]
) -> None:
    model: Model[KeyState] = Model(KeyState(), wrong)  # type: ignore[arg-type]
    differ = sum(
        (check(model, operations, steps_max=20_000).verdict == "linearizable") != good
        for operations, good in zip(histories[:1_000], theirs[:1_000], strict=True)
        if len(operations) <= 40
    )
    assert differ > 0


@pytest.mark.slow
@pytest.mark.skipif(not porcupine_kit.has_go(), reason="Go is not installed; the recorded verdicts stand")
def test_porcupine_still_says_what_is_recorded(tmp_path: Path, theirs: list[bool]) -> None:
    assert porcupine_kit.judge(porcupine_kit.histories(), tmp_path) == theirs
