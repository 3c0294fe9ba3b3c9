"""``tenure queue``: who has a key, who waits for it, and whom all of them wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenure._cli.base import Settings, command, perform
from tenure._cli.console import Console, printable
from tenure._cli.leases import mode_text, progress_text
from tenure._durations import format_ms

if TYPE_CHECKING:
    from tenure.answers import Blocker, Queue, QueuedWaiter


@command("queue", examples="tenure queue payment/security/42\ntenure queue job/7 -o json | jq .chain")
@click.argument("key")
def queue(settings: Settings, console: Console, key: str) -> None:
    """Show who holds KEY and who waits for it, in order, and since when.

    If the holder waits for another key itself, the chain goes on to the one that everybody waits for.
    """
    answer = perform(settings, lambda client: client.queue(key))
    if console.output == "json":
        console.json(answer)
        return
    rows = _rows(answer)
    if rows:
        console.table(["PLACE", "OWNER", "MODE", "SINCE", "STATE"], rows)
    elif not answer.blocked_ms:
        console.note(f"{key!r} is free and nobody waits for it")
    if answer.blocked_ms:
        console.note(f"{key!r} is granted again in {format_ms(answer.blocked_ms)}, after a grace period")
    if answer.waiters_total > len(answer.waiters):
        console.note(f"{answer.waiters_total} wait in all")
    if len(answer.chain) > 1:
        click.echo("\nwho blocks whom:")
        for link in answer.chain:
            click.echo(f"  {printable(_link(link))}")


def _rows(answer: Queue) -> list[list[str]]:
    holders = [
        [
            "holds" if holder.state == "held" else "parked",
            holder.owner,
            mode_text(holder),
            format_ms(holder.held_ms),
            f"token {holder.token}, expires in {format_ms(holder.expires_in_ms)}",
        ]
        for holder in answer.holders
    ]
    return holders + [
        [str(waiter.position), waiter.owner, waiter.mode, format_ms(waiter.waiting_ms), _waiting(waiter)]
        for waiter in answer.waiters
    ]


def _waiting(waiter: QueuedWaiter) -> str:
    return f"waits for all of {', '.join(waiter.keys)}" if waiter.keys else "waits"


def _link(link: Blocker) -> str:
    does = {"holding": "holds", "parked": "has parked", "waiting": "is the first to wait for"}[link.state]
    told = "" if link.progress is None else f"; {progress_text(link.progress)}"
    return f"{link.owner} {does} {link.key} since {format_ms(link.since_ms)}{told}"
