"""How the command line speaks: text for people or one JSON document on standard output, what went wrong and
what to do next on standard error, and the exit codes.

With ``-o json`` standard output carries exactly one JSON document, of a refusal as well, so that a script
can always read it; for ``watch``, which has no end, one on each line.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import click
import msgspec

from tenure._durations import format_ms
from tenure.answers import Holder
from tenure.errors import (
    ClusterUnavailable,
    CommitRefused,
    InvalidRequest,
    LeaseLost,
    LeaseUnavailable,
    NotAuthorized,
    OutcomeUnknown,
    QuotaExceeded,
    TenureError,
)

Format = Literal["text", "json"]

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3


NO_SUCH_SESSION: Final = frozenset({"no_session", "session_expired"})
"""What is wrong with a request that names somebody else's session, and can't be told from its form."""


class Refused(TenureError):
    """The cluster answered, and the answer is no: nothing of that name is there."""


def exit_code(error: TenureError) -> int:
    if isinstance(error, (ClusterUnavailable, OutcomeUnknown)):
        return UNREACHABLE
    if isinstance(error, InvalidRequest):
        return REFUSED if error.code in NO_SUCH_SESSION else USAGE
    return REFUSED


class Console:
    def __init__(self, output: Format) -> None:
        self.output = output

    def result(self, document: Any, text: str) -> None:
        """What the command was asked for, in the one form or the other."""
        if self.output == "json":
            self.json(document)
        else:
            click.echo(text)

    def json(self, document: Any) -> None:
        click.echo(_encodable(msgspec.json.format(msgspec.json.encode(document), indent=2).decode(), 2))

    def json_line(self, document: Any) -> None:
        """One of many documents."""
        click.echo(_encodable(msgspec.json.encode(document).decode(), None))

    def note(self, text: str) -> None:
        click.echo(text, err=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Aligned columns, wrapped to the terminal if there is one. Only for text output."""
        from rich import box
        from rich.console import Console as RichConsole
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        for head in heads:
            table.add_column(head, overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        on_terminal = sys.stdout.isatty()
        console = RichConsole(highlight=False, width=None if on_terminal else 100_000)
        with console.capture() as capture:
            console.print(table)
        click.echo("\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n")))

    def refusal(
        self, error: TenureError, hints: Mapping[str, str] | None = None, *, key: str | None = None
    ) -> int:
        """Tell what went wrong and what to do next; returns the exit code. ``hints`` are by error code,
        ``key`` is what the command was about."""
        if self.output == "json":
            self.json(problem(error))
        self.note(f"tenure: {printable(_sentence(error, key))}")
        hint = (hints or {}).get(error.code) or _hint(error, "KEY" if key is None else argument(key))
        if hint:
            self.note(f"  {printable(hint)}")
        return exit_code(error)


def _encodable(document: str, indent: int | None) -> str:
    """JSON, escaped if what it is written to has no place for one of its characters."""
    try:
        document.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(json.loads(document), indent=indent)
    return document


def problem(error: TenureError) -> dict[str, Any]:
    """The error as a document: the members of the cluster's own problem answers, as far as they are known."""
    members: dict[str, Any] = {"code": error.code, "detail": str(error)}
    if error.request_id:
        members["x_request_id"] = error.request_id
    if isinstance(error, LeaseUnavailable):
        members |= {"holder": error.holder} | ({"reason": error.reason} if error.reason else {})
        if error.position:
            members |= {"position": error.position, "ahead": list(error.ahead)}
        if error.cycle:
            members |= {"cycle": list(error.cycle)}
    elif isinstance(error, LeaseLost):
        members |= {"reason": error.reason} | ({"cause": error.cause} if error.cause else {})
    elif isinstance(error, CommitRefused):
        members |= {"floor": error.floor, "revision": error.revision}
    elif isinstance(error, QuotaExceeded):
        members |= {"retry_after_s": error.retry_after}
    elif isinstance(error, InvalidRequest) and error.path:
        members |= {"path": error.path}
    return members


def _sentence(error: TenureError, key: str | None) -> str:
    held = isinstance(error, LeaseUnavailable) and error.code == "held" and error.reason in ("", "held")
    if held and isinstance(error, LeaseUnavailable) and error.holder and key is not None:
        return f"{key!r} is held: {describe_holder(error.holder)}"
    return str(error)


def argument(text: str) -> str:
    """As it is to be written in a shell."""
    return ("-- " if text.startswith("-") else "") + shlex.quote(text)


def _hint(error: TenureError, key: str) -> str:
    if isinstance(error, ClusterUnavailable):
        if error.code in ("no_leader", "no_quorum"):
            return "It was not executed. A majority of the nodes must run and reach each other: tenure status"
        return "Is the cluster running? Name its nodes by --endpoints or TENURE_ENDPOINTS; see: tenure status"
    if isinstance(error, OutcomeUnknown):
        return f"It may have been executed. Look before you ask again: tenure get {key}"
    if isinstance(error, LeaseUnavailable):
        return _unavailable_hint(error, key)
    if isinstance(error, LeaseLost):
        return f"Stop what the lease allowed, then acquire anew: tenure acquire {key}"
    if isinstance(error, CommitRefused):
        return _commit_hint(error, key)
    if isinstance(error, NotAuthorized):
        return "Give a credential that has the right by TENURE_CREDENTIAL or --credential-file."
    if isinstance(error, QuotaExceeded) and error.retry_after is not None:
        return f"Ask again in {error.retry_after:g} s."
    return ""


def _unavailable_hint(error: LeaseUnavailable, key: str) -> str:
    if error.code == "deadlock" and len(error.cycle) == 2:
        return "Let that call be answered, or ask in another session."
    if error.code == "deadlock":
        return "Release one of the keys of the cycle first."
    if error.code == "mode_conflict":
        return "Ask for the mode in which the key is in use, or wait until it is free."
    if error.holder is None:
        return "Wait longer for it: --wait 1m"
    wait = f"Wait for it: --wait 30s; see who waits: tenure queue {key}"
    return wait if error.code == "held" else f"{describe_holder(error.holder)}. {wait}"


def _commit_hint(error: CommitRefused, key: str) -> str:
    floor = "" if error.floor is None else f"; tokens below {error.floor} can't write any more"
    return {
        "stale_token": f"The key has been granted anew since{floor}. Discard the result, or acquire again.",
        "token_used": "This grant has made its one write. To write again, acquire again.",
        "seq_replayed": "Use a sequence number above the last one that was accepted.",
        "not_live": "The lease has ended. Acquire again; --no-require-live lets the token alone decide.",
        "revision_conflict": f"The record has changed. Read it (tenure record {key}) and decide again.",
        "mode_conflict": "A key's guard keeps the --mode of its first commit.",
    }.get(error.code, "")


def describe_holder(holder: Holder) -> str:
    return (
        f"{holder.owner!r} holds it with token {holder.token} for another {format_ms(holder.expires_in_ms)}"
    )


def block(title: str, fields: Sequence[tuple[str, object]]) -> str:
    """A title and indented fields below it."""
    width = max(len(name) for name, _ in fields)
    lines = [f"  {name:<{width}}  {printable(str(value))}" for name, value in fields]
    return "\n".join([printable(title), *lines])


def printable(text: str) -> str:
    """Control characters made visible: what others stored must not steer this terminal."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
