"""Made-up histories of one key, right ones and wrong ones, on which checkers can be compared.

A history is made by a few clients that work on a key one operation after the other. Each operation has its
effect at a moment between its call and its return, and answers what is right then; so the history is
linearizable. In two of three something is then changed: an answer, a token, the moment of a call. Half of
those are not linearizable any more, the others still are, which is for a checker to find out.

    python -m tenure_chaos.checkers.generated 100 200        histories 100 to 199, one JSON array a line
"""

import json
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tenure_chaos.checkers.linearizability import NEVER, Operation
from tenure_chaos.model import Answered, Asked

SIZES: Final = ((1, 8), (9, 40), (41, 120))
CLIENTS_MAX: Final = 10

_KINDS: Final = ("acquire", "renew", "release", "commit", "break", "get", "record", "delete")
_WEIGHTS: Final = (5, 3, 3, 6, 1, 2, 2, 1)


def history(number: int) -> list[Operation]:
    """The history of that number, ordered by the calls."""
    rng = random.Random(f"history {number}")
    operations = list(_right(rng))
    if rng.random() < 0.67:
        for _ in range(rng.randint(1, 3)):
            _spoil(operations, rng)
    return sorted(operations, key=lambda operation: (operation.invoked_at, operation.returned_at))


def as_line(operations: Sequence[Operation]) -> str:
    """For programs in other languages; ``returned`` is null for NEVER, ``how`` is empty for no answer."""
    return json.dumps([_as_fields(operation) for operation in operations], separators=(",", ":"))


def _as_fields(operation: Operation) -> dict[str, Any]:
    asked, answer = operation.asked, operation.answer or Answered("")
    return {
        "kind": asked.kind,
        "token": asked.token,
        "value": asked.value,
        "require_live": asked.require_live,
        "mode": asked.mode,
        "seq": asked.seq,
        "how": answer.how,
        "got_token": answer.token,
        "got_value": answer.value,
        "invoked": operation.invoked_at,
        "returned": None if operation.returned_at == NEVER else operation.returned_at,
    }


# -- right ones


def _right(rng: random.Random) -> Iterator[Operation]:
    count = rng.randint(*rng.choices(SIZES, (5, 4, 1))[0])
    slowest = rng.choice((1, 5, 20, 60))
    free_at = [rng.randint(0, 20) for _ in range(rng.randint(1, CLIENTS_MAX))]
    spans = []
    for _ in range(count):
        client = min(range(len(free_at)), key=lambda client: (free_at[client], client))
        invoked = free_at[client]
        effect = invoked + rng.randint(0, slowest)
        returned = effect + rng.randint(0, slowest)
        free_at[client] = returned + rng.randint(1, 10)
        spans.append((effect, rng.random(), invoked, returned))
    key = _Key(rng)
    for _, _, invoked, returned in sorted(spans):
        asked, answer = key.work()
        if rng.random() < 0.04:
            # Nobody was told; or it is known that nothing happened.
            unsaid = answer if rng.random() < 0.7 or key.changed else None
            yield Operation(asked, unsaid, invoked, NEVER)
        else:
            yield Operation(asked, answer, invoked, returned)


class _Key:
    """A key and what its clients may know of it: grants, in order, and the values written."""

    def __init__(self, rng: random.Random) -> None:
        self.changed = False
        """By the last operation."""
        self._rng = rng
        self._holder = self._floor = self._values = 0
        self._record = (0, "")
        self._last = (0, 0)
        self._tokens = [0]
        self._answers: Final = {
            "acquire": self._acquire,
            "renew": self._renew,
            "release": self._release,
            "commit": self._commit,
            "break": self._break,
            "get": self._get,
            "record": self._read,
            "delete": self._delete,
        }

    def work(self) -> tuple[Asked, Answered]:
        """One operation: what is asked, and the right answer."""
        rng = self._rng
        if rng.random() < 0.08:
            self._holder = 0  # its time is over
        kind = rng.choices(_KINDS, _WEIGHTS)[0]
        asked = Asked(kind)
        if kind in ("renew", "release"):
            asked = Asked(kind, self._some_token())
        elif kind == "commit":
            asked = self._some_commit()
        elif kind == "delete" and self._record == (0, ""):
            asked = Asked("record")
        before = (self._holder, self._floor, self._record, self._last)
        answer = self._answers[asked.kind](asked)
        self.changed = before != (self._holder, self._floor, self._record, self._last)
        return asked, answer

    def _some_token(self) -> int:
        if self._holder and self._rng.random() < 0.7:
            return self._holder
        if self._rng.random() < 0.9:
            return self._rng.choice(self._tokens[-4:])
        return self._floor + self._rng.randint(1, 3)

    def _some_commit(self) -> Asked:
        self._values += 1
        return Asked(
            "commit",
            self._some_token(),
            None if self._rng.random() < 0.1 else f"v{self._values}",
            self._rng.random() < 0.7,
            self._rng.choice(("current", "current", "once", "sequence")),
            self._rng.randint(0, 4),
        )

    def _acquire(self, asked: Asked) -> Answered:
        if self._holder == 0:
            self._holder = self._floor = self._floor + self._rng.choice((1, 1, 1, 2, 5))
            self._tokens.append(self._holder)
            return Answered("granted", self._holder)
        if self._rng.random() < 0.2:
            return Answered("again", self._holder)
        return Answered("held", self._rng.choice((self._holder, self._holder, 0)))

    def _renew(self, asked: Asked) -> Answered:
        return Answered("renewed" if self._holder == asked.token else "lost")

    def _release(self, asked: Asked) -> Answered:
        if self._holder != asked.token:
            return Answered("over")
        self._holder = 0
        return Answered("released")

    def _commit(self, asked: Asked) -> Answered:
        write = (asked.token, asked.seq)
        refusals = [
            how
            for how, fits in (
                ("stale_token", asked.token < self._floor),
                ("not_live", asked.require_live and self._holder != asked.token),
                ("token_used", asked.mode == "once" and asked.token <= self._last[0]),
                ("seq_replayed", asked.mode == "sequence" and write <= self._last),
            )
            if fits
        ]
        if refusals:
            return Answered(self._rng.choice(refusals))
        if asked.value is not None:
            self._record = (asked.token, asked.value)
        self._last = write
        return Answered("accepted")

    def _break(self, asked: Asked) -> Answered:
        ended = self._holder
        if ended or self._rng.random() < 0.5:
            self._floor += 1
        self._holder = 0
        return Answered("broken", ended)

    def _get(self, asked: Asked) -> Answered:
        return Answered("held", self._holder) if self._holder else Answered("free")

    def _read(self, asked: Asked) -> Answered:
        return Answered("record", *self._record) if self._record != (0, "") else Answered("none")

    def _delete(self, asked: Asked) -> Answered:
        self._record = (0, "")
        return Answered("deleted")


# -- wrong ones


def _spoil(operations: list[Operation], rng: random.Random) -> None:
    """Change one thing, in place."""
    at = rng.randrange(len(operations))
    operation = operations[at]
    how = rng.choice(("time", "token", "token", "answer", "swap", "twice"))
    if how == "time":
        operations[at] = _moved(operation, rng)
    elif how == "swap":
        _swap_answers(operations, at, rng)
    elif how == "twice":
        operations.append(_moved(operation, rng))
    elif operation.answer is not None:
        answer = operation.answer
        if how == "token":
            answer = answer._replace(token=max(0, answer.token + rng.choice((-2, -1, 1, 2))))
        else:
            answer = answer._replace(how=rng.choice(_OTHER_ANSWERS[operation.asked.kind]))
        operations[at] = replace(operation, answer=answer)


_OTHER_ANSWERS: Final = {
    "acquire": ("granted", "again", "held"),
    "renew": ("renewed", "lost"),
    "release": ("released", "over"),
    "commit": ("accepted", "stale_token", "not_live", "token_used", "seq_replayed"),
    "break": ("broken",),
    "get": ("held", "free"),
    "record": ("record", "none"),
    "delete": ("deleted",),
}


def _moved(operation: Operation, rng: random.Random) -> Operation:
    by = rng.choice((-100, -30, -10, 10, 30, 100))
    return replace(operation, invoked_at=operation.invoked_at + by, returned_at=operation.returned_at + by)


def _swap_answers(operations: list[Operation], at: int, rng: random.Random) -> None:
    kind = operations[at].asked.kind
    others = [n for n, other in enumerate(operations) if other.asked.kind == kind]
    other = rng.choice(others)
    mine, theirs = operations[at].answer, operations[other].answer
    operations[at] = replace(operations[at], answer=theirs)
    operations[other] = replace(operations[other], answer=mine)


def lines(numbers: Iterable[int]) -> Iterator[str]:
    """The histories of these numbers."""
    return (as_line(history(number)) for number in numbers)


if __name__ == "__main__":
    for line in lines(range(int(sys.argv[1]), int(sys.argv[2]))):
        print(line)  # noqa: T201
