"""What one key may do, as a sequential object: written from the promises alone, naive on purpose.

Imports nothing of the server or the client. Time is left out: a lease may end by itself at any moment, so
this model refuses what can never be right whatever the clocks did. That nothing ends too early is another
rule's business (checkers/rules.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

from tenure_chaos.checkers.linearizability import Model

NO_RECORD = (0, "")


class KeyState(NamedTuple):
    """``holder`` is the token of the lease that holds, 0 if none; ``floor`` the greatest token ever granted
    here; ``written`` the token and value of the record; ``last`` the token and seq of the last commit.
    """

    holder: int = 0
    floor: int = 0
    written: tuple[int, str] = NO_RECORD
    last: tuple[int, int] = (0, 0)


class Asked(NamedTuple):
    """``kind`` and what of the request decides: the caller's token (0 if none), the value to write (None: the
    record stays), the guard's mode.
    """

    kind: str
    token: int = 0
    value: str | None = ""
    require_live: bool = True
    mode: str = "current"
    seq: int = 0


class Answered(NamedTuple):
    """``how`` is the kind of the answer; ``token`` and ``value`` what it told."""

    how: str
    token: int = 0
    value: str = ""


def step(state: KeyState, asked: Asked, answer: Answered | None) -> Sequence[KeyState]:
    """Every state in which the answer leaves the key; none if it can't be given. Before each operation the
    lease may have ended.
    """
    if answer is None:
        return [state]
    found: list[KeyState] = []
    for before in (state, state._replace(holder=0)) if state.holder else (state,):
        found += _STEPS[asked.kind](before, asked, answer)
    return list(dict.fromkeys(found))


def _acquire(state: KeyState, asked: Asked, answer: Answered) -> list[KeyState]:
    if answer.how == "granted":
        if state.holder == 0 and answer.token > state.floor:
            return [state._replace(holder=answer.token, floor=answer.token)]
        return []
    if answer.how == "again":
        return [state] if state.holder == answer.token else []
    if answer.how == "held":
        return [state] if answer.token in (0, state.holder) else []
    return [state]


def _renew(state: KeyState, asked: Asked, answer: Answered) -> list[KeyState]:
    holds = state.holder == asked.token
    return [state] if holds == (answer.how == "renewed") else []


def _release(state: KeyState, asked: Asked, answer: Answered) -> list[KeyState]:
    holds = state.holder == asked.token
    if answer.how == "released":
        return [state._replace(holder=0)] if holds else []
    return [] if holds else [state]


def _commit(state: KeyState, asked: Asked, answer: Answered) -> list[KeyState]:
    write = (asked.token, asked.seq)
    if answer.how == "accepted":
        fits = asked.token >= state.floor and (state.holder == asked.token or not asked.require_live)
        if not fits or (asked.mode == "once" and asked.token <= state.last[0]):
            return []
        if asked.mode == "sequence" and write <= state.last:
            return []
        written = state.written if asked.value is None else (asked.token, asked.value)
        return [state._replace(written=written, last=write)]
    if answer.how == "stale_token":
        return [state] if asked.token < state.floor or state.floor == 0 else []
    if answer.how == "not_live":
        return [state] if state.holder != asked.token else []
    if answer.how == "token_used":
        return [state] if asked.token <= state.last[0] else []
    if answer.how == "seq_replayed":
        return [state] if write <= state.last else []
    return [state]


def _break(state: KeyState, asked: Asked, answer: Answered) -> list[KeyState]:
    if answer.token != state.holder:
        return []
    # A break ends whatever was issued before, also what has ended: its floor is a token that nobody gets. A
    # key that was forgotten meanwhile has no floor to raise.
    raised = state._replace(holder=0, floor=state.floor + 1)
    return [raised] if answer.token else [raised, state]


def _get(state: KeyState, asked: Asked, answer: Answered) -> list[KeyState]:
    return [state] if state.holder == answer.token else []


def _read(state: KeyState, asked: Asked, answer: Answered) -> list[KeyState]:
    return [state] if state.written == (answer.token, answer.value) else []


def _delete(state: KeyState, asked: Asked, answer: Answered) -> list[KeyState]:
    return [state._replace(written=NO_RECORD)] if state.written != NO_RECORD else []


_STEPS = {
    "acquire": _acquire,
    "renew": _renew,
    "release": _release,
    "commit": _commit,
    "break": _break,
    "get": _get,
    "record": _read,
    "delete": _delete,
}

KEY = Model(KeyState(), step)
