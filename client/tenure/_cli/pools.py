"""``tenure resize``: the number of slots of a pool that is in use."""

from __future__ import annotations

import click

from tenure._cli.base import Settings, command, perform
from tenure._cli.console import Console


@command("resize", examples="tenure resize gpu --slots 8")
@click.argument("key")
@click.option("--slots", type=click.IntRange(min=1), required=True, help="As many permits from now on.")
def resize(settings: Settings, console: Console, key: str, slots: int) -> None:
    """Give the pool of permits KEY another number of slots while it is in use.

    Needs the right force. With more slots those who wait are granted at once. With fewer nobody loses a
    permit, and none is granted until there is room. Whoever asks from then on has to name the new number.
    Exit code 1 if nobody holds a permit or waits for one, or if KEY is no pool.
    """
    answer = perform(settings, lambda client: client.resize(key, slots=slots))
    now = f"{answer.slots} slot{'' if answer.slots == 1 else 's'}"
    text = f"{key!r} has {now}, had {answer.before}, and is held by {answer.holders}"
    console.result(answer, text)
