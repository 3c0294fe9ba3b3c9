"""``tenure transfer``: who of the nodes leads."""

from __future__ import annotations

import click

from tenure._cli.base import Settings, command, perform
from tenure._cli.console import Console


@command("transfer", examples="tenure transfer\ntenure transfer n2")
@click.argument("node", required=False)
def transfer(settings: Settings, console: Console, node: str | None) -> None:
    """Let NODE lead, or any node that is up to date. Needs the right admin."""
    done = perform(settings, lambda client: client.transfer(node))
    console.result(done, f"{done.leader or 'another node'} leads in term {done.term}")
