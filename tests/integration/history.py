"""The record of what clients asked and were told, with the times of both, for the checks of check_history.py.

One `Call` is one attempt on the wire. An operation that was asked again has several, tied together by its
request_id, lease_id or op_id. All times are of one monotonic clock, since one process makes all calls.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

Outcome = Literal["ok", "refused", "not_executed", "unknown", "broken"]
"""ok: done as asked (or queued). refused: the state machine said no. not_executed: the server, or the
connection that never came about, says that nothing was done. unknown: anything may have happened. broken: an
answer that no server may give."""


class Call(msgspec.Struct):
    """One attempt: who asked what of which node, when, and what came back."""

    process: str
    op: str
    body: dict[str, Any]
    node: str
    invoked_s: float
    returned_s: float
    outcome: Outcome
    status: int
    """0 if there was no answer."""
    answer: dict[str, Any]
    """The body of the answer, or {"error": …}."""

    @property
    def code(self) -> str:
        return str(self.answer.get("code", ""))


def outcome_of(status: int, answer: dict[str, Any]) -> Outcome:
    """What an answer's status says of the operation, by the table of errors."""
    if status in (200, 202):
        return "ok"
    if status in (503, 429):
        return "not_executed"
    if status == 504:
        return "unknown"
    if status in (404, 409, 410, 412):
        return "refused"
    return "broken"


class History:
    """All calls of a run, in the order of their returns."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def add(self, call: Call) -> None:
        self.calls.append(call)

    def save(self, path: Path) -> None:
        """Write the history as JSON lines, for a look after a failure."""
        encoder = msgspec.json.Encoder()
        with path.open("wb") as file:
            for call in self.calls:
                file.write(encoder.encode(call) + b"\n")

    @classmethod
    def load(cls, path: Path) -> "History":
        history = cls()
        decoder = msgspec.json.Decoder(Call)
        with path.open("rb") as file:
            history.calls = [decoder.decode(line) for line in file]
        return history
