"""What a caller with prefixes is told of keys that are not its own: nothing.

Most answers are about the keys that the call has named, and so were looked at before it went on
(authorize.py). Three lead on to others: the chain of those who wait for one another, which goes from key to
key; the keys of a set that waits for one of the caller's; and the cycle that a wait would close. The chain
ends before the first key that the caller may not touch, and elsewhere such keys are left out.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final, TypeVar, cast

from msgspec import UNSET
from msgspec.structs import replace

from tenure_cluster.auth.gate import Caller
from tenure_cluster.service.answers import deadlock
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import QueueReply, WaiterBody

Outcome = TypeVar("Outcome")

UNTOLD: Final = "(not told)"
"""Stands in a cycle for a key that the caller may not touch, and for who holds that."""


def shown(caller: Caller, outcome: Outcome) -> Outcome:
    """An answer, a reply or a Problem, as this caller may see it."""
    if not caller.prefixes:
        return outcome
    told: Any = outcome
    if type(told) is QueueReply:
        chain = list(takewhile(lambda link: caller.may_touch(link.key), told.chain))
        told = replace(told, chain=chain, waiters=[_waiter(caller, waiter) for waiter in told.waiters])
    elif type(told) is Problem and told.code == "deadlock":
        told = deadlock(_cycle(caller, told.extra["cycle"]))
    return cast(Outcome, told)


def _waiter(caller: Caller, waiter: WaiterBody) -> WaiterBody:
    if waiter.keys is UNSET:
        return waiter
    return replace(waiter, keys=[key for key in waiter.keys if caller.may_touch(key)])


def _cycle(caller: Caller, cycle: Sequence[str]) -> list[str]:
    """`[owner, key, owner, key, …]`: each owner holds the key before, the first one the last, and waits for
    the one behind."""
    told = []
    for place, name in enumerate(cycle):
        key = name if place % 2 else cycle[place - 1]
        told.append(name if caller.may_touch(key) else UNTOLD)
    return told
