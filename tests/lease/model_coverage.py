"""What random histories must meet, read off the machine's own vocabulary.

Whatever is added to it and is never written by a script, or never comes about, is named by the test that
plays the histories.
"""

from __future__ import annotations

import typing
from collections import Counter
from typing import Any

from model_state import Row

from tenure_cluster.lease import commands, events, results, types

AT_BOUNDS_ONLY = {"QueueFull", "TokensExhausted"}
"""Results that only histories with narrow bounds come to."""

NOT_BY_A_COMMAND = {"restored"}
"""Reasons and kinds of events that come from outside of the machine: of a state put back to a backup."""


def words_of(annotation: Any) -> list[str]:
    return list(typing.get_args(annotation))


MODES = words_of(types.Mode)
COMMANDS = [kind.__name__ for kind in typing.get_args(commands.Command)]
EVENTS = [kind for kind in words_of(events.EventKind) if kind not in NOT_BY_A_COMMAND]
RESULTS = [kind.__name__ for kind in typing.get_args(results.Result)]
REASONS = [reason for reason in words_of(types.EndReason) if reason not in NOT_BY_A_COMMAND]
GUARD_MODES = words_of(types.GuardMode)
REFUSALS = words_of(typing.get_type_hints(results.CommitRefused)["code"])
ITEMS = words_of(typing.get_type_hints(commands.ExpireItem)["kind"])
IF_HELD = words_of(typing.get_type_hints(commands.Acquire)["if_held"])


def everything() -> list[str]:
    """The marks of all that exists, as count_marks() names them."""
    marks = [f"command {name}" for name in COMMANDS]
    marks += [f"event {kind}" for kind in EVENTS]
    marks += [f"result {name}" for name in RESULTS if name not in AT_BOUNDS_ONLY]
    marks += [f"reason {reason}" for reason in REASONS]
    marks += [f"refusal {code}" for code in REFUSALS]
    marks += [f"committed in mode {mode}" for mode in GUARD_MODES]
    marks += [f"item {kind}" for kind in ITEMS]
    marks += [f"held and {word}" for word in IF_HELD]
    for mode in MODES:
        marks += [f"{kind} in mode {mode}" for kind in ("granted", "queue_joined", "broken", "handed_over")]
        marks += [f"set granted in mode {mode}", f"set waits in mode {mode}"]
    return [*marks, "parked in mode exclusive", "parked in mode permit"]


def count_marks(counts: Counter[str], command_name: str, command: Row, result: Row, told: list[Row]) -> None:
    """Note what one step came to."""
    counts[f"command {command_name}"] += 1
    counts[f"result {result['is']}"] += 1
    for event in told:
        counts[f"event {event['kind']}"] += 1
        if event["mode"]:
            counts[f"{event['kind']} in mode {event['mode']}"] += 1
    if "reason" in result:
        counts[f"reason {result['reason']}"] += 1
    if "code" in result:
        counts[f"refusal {result['code']}"] += 1
    if result["is"] == "Committed":
        counts[f"committed in mode {command['mode']}"] += 1
    if command["op"] == "acquire":
        _count_acquire(counts, command, result)


def _count_acquire(counts: Counter[str], command: Row, result: Row) -> None:
    kind, mode = result["is"], command["mode"]
    if kind == "Granted" and not result["replayed"]:
        requests = {grant["lease"]["request_id"] for grant in result["grants"]}
        if requests != {command["request_id"]}:
            counts["held and return"] += 1
    if kind == "Held" and command["session_id"] and command["if_held"] == "conflict":
        counts["held and conflict"] += 1
    if len(command["keys"]) > 1 and kind in ("Granted", "Waiting"):
        counts[f"set {'granted' if kind == 'Granted' else 'waits'} in mode {mode}"] += 1
