"""``tenure audit``: who did what, and what was refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tenure._cli.base import Settings, command, perform
from tenure._cli.console import Console, Refused, printable

if TYPE_CHECKING:
    from tenure.aio import Client
    from tenure.answers import AuditPage


if TYPE_CHECKING:
    _Pair = click.ParamType[tuple[int, str]]
else:
    _Pair = click.ParamType  # generic for the type checker only, in older versions of click


class _Position(_Pair):
    """SEQ, or SEQ:HASH."""

    name = "SEQ[:HASH]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str]:
        match = re.fullmatch(r"(\d{1,15})(?::([0-9a-f]{64}))?", str(value))
        if match is None:
            self.fail(f"{value!r} is neither a number nor a number with a hash behind it", param, ctx)
        return int(match[1]), match[2] or ""


@command(
    "audit",
    examples="""\
tenure audit
tenure audit -o json --verify > audit.jsonl
tenure audit -o json --after 57:9f86d0… --verify >> audit.jsonl
tenure audit --file audit.jsonl""",
)
@click.option(
    "--after",
    type=_Position(),
    help="Only what came after this record. With its hash, as `--verify` told it, what follows must continue "
    "it.",
)
@click.option("--verify", is_flag=True, help="Verify that nothing was changed, left out or put in.")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False),
    help="Verify what was exported to this file, and ask no cluster.",
)
def audit(
    settings: Settings, console: Console, after: tuple[int, str] | None, verify: bool, file: str | None
) -> None:
    """Tell who did what to which key, and what was refused, oldest first; with -o json one record a line.

    Needs the right admin. Records are kept for as long as the nodes' configuration says. Exit code 1 if the
    chain is broken; of a file that names the line."""
    from tenure.audit import AuditBroken, End, verify_lines
    from tenure.audit import verify as verified

    seq, known = after if after is not None else (0, "")
    end = End(seq, known) if after is not None else None

    if file is not None:
        with open(file, "rb") as lines:
            end = verify_lines(lines, end)
        console.note(f"verified up to {end.seq}:{end.hash}" if end.seq else "there is nothing to verify")
        return

    def tell(page: AuditPage) -> None:
        nonlocal end
        for record in page.records:
            click.echo(_line(record, console))
        if verify:
            end = verified(page.records, end)

    async def run(client: Client) -> AuditPage:
        page = await client.audit(after=seq)
        if after is not None and page.first_seq > seq + 1:
            raise Refused(
                code="compacted",
                detail=f"the records after {seq} are not kept any more; the oldest is {page.first_seq}",
            )
        tell(page)
        while page.next is not None:
            page = await client.audit(after=page.next)
            tell(page)
        return page

    last = perform(settings, run)
    if verify:
        end = end or End(last.head_seq, last.head)
        if last.head_seq == end.seq and end.hash and last.head != end.hash:
            raise AuditBroken(end.seq, f"the cluster's head is not the hash of record {end.seq}")
        if last.head_seq < end.seq:
            raise AuditBroken(end.seq, f"the cluster has recorded {last.head_seq} records, not {end.seq}")
        console.note(f"verified up to {end.seq}:{end.hash}" if end.hash else "there is nothing to verify")
    if not last.recording:
        console.note("nothing is recorded now: audit.records_max is 0, or not every node knows how yet")


def _line(record: Mapping[str, Any], console: Console) -> str:
    if console.output == "json":
        # ASCII alone: what others stored holds no line ends for any reader, and nothing for a terminal.
        return json.dumps(record, separators=(",", ":"))
    return printable(" ".join(_words(record)))


def _words(record: Mapping[str, Any]) -> list[str]:
    """A record for people: what does not apply is left out."""
    words = [str(record.get("at", "")), str(record["kind"])]
    if record.get("subject"):
        words.append(str(record["subject"]))
    if record.get("key"):
        words.append(repr(record["key"]))
    if record.get("token"):
        words.append(f"token {record['token']}")
    if record.get("owner"):
        words.append(f"of {record['owner']}")
    if record.get("code"):
        words.append(f"refused: {record['code']}")
    if record.get("count", 1) != 1:
        words.append(f"({record['count']} times)")
    words.append(f"by {record.get('actor') or 'anybody'}")
    if record.get("origin"):
        words.append(f"from {record['origin']}")
    if record.get("detail"):
        words.append(f"- {record['detail']}")
    return words
