"""``tenure watch``: what happens, as it happens."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import click

from tenure._cli.base import Settings, command, perform
from tenure._cli.console import Console, printable

if TYPE_CHECKING:
    from tenure.aio import Client
    from tenure.answers import Event


@command(
    "watch",
    examples="""\
tenure watch
tenure watch payment/ --kind granted --kind expired
tenure watch job/ --from 1200 -o json | jq -r .kind""",
)
@click.argument("prefix", default="")
@click.option(
    "--from",
    "after",
    type=click.IntRange(0),
    metavar="REV",
    help="Begin after this revision; 0: with all that is remembered. [default: now]",
)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only these kinds; may be repeated.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many events.")
def watch(
    settings: Settings,
    console: Console,
    prefix: str,
    after: int | None,
    kinds: tuple[str, ...],
    count: int | None,
) -> None:
    """Follow what happens to all keys, or to those that begin with PREFIX, until Ctrl-C.

    Each event is told once, in the order of revisions, through lost connections and changes of leader. What
    no node remembers any more is told as a gap, on standard error if --kind leaves gaps out: then look at the
    state by tenure list. With -o json each line is a document of its own. Exit code 3 if no node could be
    reached at first.

    Kinds: granted, renewed, progress, parked, unparked, released, expired, broken, handed_over, resized,
    committed, commit_refused, record_deleted, queue_joined, queue_left, restored, gap.
    """
    unknown = set(kinds) - _kinds()
    if unknown:
        raise click.UsageError(f"--kind {sorted(unknown)[0]!r} is none of {', '.join(sorted(_kinds()))}")

    async def follow(client: Client) -> None:
        # Asked first, so that a cluster that is away is told of, and nothing that comes after is missed.
        now = (await client.leases_page(prefix, limit=1)).revision
        left = count
        async with contextlib.aclosing(client.watch(prefix, after=now if after is None else after)) as events:
            async for event in events:
                if kinds and event.kind not in kinds:
                    if event.kind == "gap":
                        console.note(_gap(event))
                    continue
                _print(console, event)
                if left is not None:
                    left -= 1
                    if not left:
                        return

    try:
        perform(settings, follow)
    except BrokenPipeError:
        # Whoever read it has enough. What is still buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _kinds() -> set[str]:
    from tenure.answers import EventKind

    return {kind.value for kind in EventKind}


def _gap(event: Event) -> str:
    return f"{event.revision:>8}  gap: events before it may be missing"


def _print(console: Console, event: Event) -> None:
    if console.output == "json":
        console.json_line(event)
        return
    if event.kind == "gap":
        click.echo(_gap(event))
        return
    parts = [f"{event.revision:>8}  {event.at}  {event.kind:<14} {event.key}"]
    if event.owner:
        parts.append(f"  {event.owner}")
    if event.token:
        parts.append(f"  token {event.token}")
    if event.mode == "permit" and event.kind not in ("queue_joined", "queue_left", "resized"):
        parts.append(f"  slot {event.slot}")
    if event.detail:
        parts.append(f"  ({event.detail})")
    click.echo(printable("".join(parts)))
