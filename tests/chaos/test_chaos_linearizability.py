"""The search agrees with trying every order on small histories; the model of a key allows what it should."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tenure_chaos.checkers.linearizability import NEVER, Model, Operation, check
from tenure_chaos.model import KEY, Answered, Asked


def step(state: int, asked: Any, answer: Any) -> Sequence[int]:
    """A register: ("write", v) answers "ok"; ("read",) the value; ("cas", a, b) whether it wrote."""
    kind = asked[0]
    if kind == "write":
        return [asked[1]]
    if kind == "read":
        return [state] if answer in (None, state) else []
    won = state == asked[1]
    return [asked[2] if won else state] if answer in (None, won) else []


REGISTER = Model(0, step)


def by_trying_everything(operations: Sequence[Operation]) -> bool:
    certain = [n for n, operation in enumerate(operations) if operation.returned_at != NEVER]
    open_ended = [n for n, operation in enumerate(operations) if operation.returned_at == NEVER]
    for count in range(len(open_ended) + 1):
        for extra in itertools.combinations(open_ended, count):
            for order in itertools.permutations([*certain, *extra]):
                if respects_time(operations, order) and runs(operations, order):
                    return True
    return False


def respects_time(operations: Sequence[Operation], order: Sequence[int]) -> bool:
    return all(
        operations[later].returned_at >= operations[earlier].invoked_at
        for place, earlier in enumerate(order)
        for later in order[place + 1 :]
    )


def runs(operations: Sequence[Operation], order: Sequence[int]) -> bool:
    state = 0
    for number in order:
        after = step(state, operations[number].asked, operations[number].answer)
        if not after:
            return False
        state = after[0]
    return True


def random_history(rng: random.Random) -> list[Operation]:
    operations = []
    for _ in range(rng.randint(1, 6)):
        asked = rng.choice(
            [("write", rng.randint(0, 2)), ("read",), ("cas", rng.randint(0, 2), rng.randint(0, 2))]
        )
        start = rng.randint(0, 12)
        if rng.random() < 0.25:
            operations.append(Operation(asked, None, start, NEVER))
            continue
        answer: Any = {"write": "ok", "read": rng.randint(0, 2), "cas": rng.random() < 0.5}[asked[0]]
        operations.append(Operation(asked, answer, start, start + rng.randint(1, 6)))
    return operations


def test_agrees_with_trying_every_order() -> None:
    rng = random.Random(1)
    verdicts = {True: 0, False: 0}
    for _ in range(2_000):
        operations = random_history(rng)
        expected = by_trying_everything(operations)
        verdicts[expected] += 1
        assert check(REGISTER, operations).verdict == ("linearizable" if expected else "not_linearizable"), (
            operations
        )
    assert min(verdicts.values()) > 300


def test_a_read_of_a_value_that_was_overwritten_before_is_refused() -> None:
    history = [
        Operation(("write", 1), "ok", 0, 1),
        Operation(("write", 2), "ok", 2, 3),
        Operation(("read",), 1, 4, 5),
    ]
    assert check(REGISTER, history).verdict == "not_linearizable"


def test_an_unknown_write_may_show_later_or_never() -> None:
    unknown = Operation(("write", 2), None, 0, NEVER)
    assert (
        check(REGISTER, [unknown, Operation(("read",), 0, 1, 2), Operation(("read",), 2, 3, 4)]).verdict
        == "linearizable"
    )
    assert check(REGISTER, [unknown, Operation(("read",), 0, 5, 6)]).verdict == "linearizable"


def test_the_search_is_bounded_and_says_so() -> None:
    crowd = [Operation(("cas", n % 7, n % 5), None, 0, NEVER) for n in range(40)]
    history = [*crowd, Operation(("read",), 99, 1, 2)]
    assert check(REGISTER, history, steps_max=2_000).verdict == "unknown"


@pytest.mark.parametrize("count", [1_000])
def test_a_long_sequential_history_is_quick(count: int) -> None:
    history = [Operation(("write", n), "ok", 2 * n, 2 * n + 1) for n in range(count)]
    assert check(REGISTER, history).steps <= 2 * count + 1


GRANT_1 = (Asked("acquire"), Answered("granted", 1))
GRANT_2 = (Asked("acquire"), Answered("granted", 2))
RELEASE_1 = (Asked("release", 1), Answered("released"))
BREAK_1 = (Asked("break"), Answered("broken", 1))
BREAK_FREE = (Asked("break"), Answered("broken"))
ONCE = Asked("commit", 1, "a", True, "once")
ACCEPTED = Answered("accepted")


def write(value: str | None, seq: int = 0, mode: str = "current", live: bool = True) -> Asked:
    return Asked("commit", 1, value, live, mode, seq)


def explained(*pairs: tuple[Asked, Answered]) -> bool:
    """Whether the model allows these one after another."""
    operations = [Operation(*pair, 2 * n, 2 * n + 1) for n, pair in enumerate(pairs)]
    return check(KEY, operations).verdict == "linearizable"


@pytest.mark.parametrize(
    "pairs",
    [
        [GRANT_1, GRANT_2],  # The first may have expired.
        [GRANT_1, (Asked("acquire"), Answered("held", 1)), (Asked("acquire"), Answered("again", 1))],
        [GRANT_1, (Asked("renew", 1), Answered("renewed")), RELEASE_1, (Asked("renew", 1), Answered("lost"))],
        [GRANT_1, RELEASE_1, (Asked("release", 1), Answered("over")), (Asked("get"), Answered("free"))],
        [GRANT_1, (write("a"), ACCEPTED), (Asked("record"), Answered("record", 1, "a"))],
        [
            GRANT_1,
            (write("a"), ACCEPTED),
            (write(None), ACCEPTED),
            (Asked("record"), Answered("record", 1, "a")),
        ],
        [GRANT_1, RELEASE_1, (write("a", live=False), ACCEPTED)],
        [GRANT_1, RELEASE_1, (write("a"), Answered("not_live"))],
        [GRANT_1, RELEASE_1, GRANT_2, (write("a", live=False), Answered("stale_token"))],
        [GRANT_1, BREAK_1, (write("a", live=False), Answered("stale_token"))],
        [GRANT_1, RELEASE_1, BREAK_FREE, (write("a", live=False), Answered("stale_token"))],
        [GRANT_1, (ONCE, ACCEPTED), (ONCE, Answered("token_used"))],
        [
            GRANT_1,
            (write("a", 4, "sequence"), ACCEPTED),
            (write("b", 4, "sequence"), Answered("seq_replayed")),
        ],
        [
            GRANT_1,
            (write("a"), ACCEPTED),
            (Asked("delete"), Answered("deleted")),
            (Asked("record"), Answered("none")),
        ],
    ],
)
def test_the_model_allows(pairs: list[tuple[Asked, Answered]]) -> None:
    assert explained(*pairs)


@pytest.mark.parametrize(
    "pairs",
    [
        [GRANT_2, RELEASE_1],
        [GRANT_2, (Asked("acquire"), Answered("granted", 2))],
        [GRANT_2, (Asked("acquire"), Answered("granted", 1))],
        [GRANT_1, GRANT_2, (Asked("renew", 1), Answered("renewed"))],
        [GRANT_1, RELEASE_1, (Asked("acquire"), Answered("held", 1))],
        [GRANT_1, RELEASE_1, (Asked("acquire"), Answered("again", 1))],
        [GRANT_1, RELEASE_1, RELEASE_1],
        [GRANT_1, (Asked("get"), Answered("held", 2))],
        [GRANT_1, RELEASE_1, (Asked("get"), Answered("held", 1))],
        [GRANT_1, RELEASE_1, (write("a"), ACCEPTED)],
        [GRANT_1, GRANT_2, (write("a", live=False), ACCEPTED)],
        [GRANT_1, BREAK_1, (write("a", live=False), ACCEPTED)],
        [GRANT_1, BREAK_1, BREAK_1],
        [GRANT_1, (write("a"), Answered("stale_token"))],
        [GRANT_1, (write("a"), Answered("not_live")), (Asked("renew", 1), Answered("renewed"))],
        [GRANT_1, (ONCE, ACCEPTED), (ONCE, ACCEPTED)],
        [GRANT_1, (ONCE, Answered("token_used"))],
        [GRANT_1, (write("a", 4, "sequence"), ACCEPTED), (write("b", 3, "sequence"), ACCEPTED)],
        [GRANT_1, (write("a", 4, "sequence"), Answered("seq_replayed"))],
        [GRANT_1, (write("a"), ACCEPTED), (Asked("record"), Answered("record", 1, "b"))],
        [GRANT_1, (write("a"), ACCEPTED), (Asked("record"), Answered("none"))],
        [(Asked("delete"), Answered("deleted"))],
    ],
)
def test_the_model_refuses(pairs: list[tuple[Asked, Answered]]) -> None:
    assert not explained(*pairs)
