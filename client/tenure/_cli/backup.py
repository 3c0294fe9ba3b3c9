"""``tenure backup``: the whole state of the cluster as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tenure._cli.base import Settings, command, common_options, perform
from tenure._cli.console import Console, Refused, block

_NEXT: Final = "It holds records and the digests of credentials: keep it as safe as the cluster."


@click.group("backup", epilog="It needs the right admin. `tenured restore` begins a new cluster with it.")
def backup() -> None:
    """Save the state of the whole cluster."""


backup.params += common_options()


@command(
    "save",
    examples="""\
tenure backup save orders.backup
tenure backup save /var/backups/tenure/$(date +%F).backup --credential-file admin.credential""",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def save(settings: Settings, console: Console, file: Path) -> None:
    """Save a consistent backup, while the cluster serves.

    It is written beside FILE and takes its name when it is whole and durable.
    """
    if not file.absolute().parent.is_dir():
        raise click.UsageError(f"{file.absolute().parent} is not a directory")
    try:
        saved = perform(settings, lambda client: client.backup(file.absolute()))
    except OSError as error:
        raise Refused(code="not_saved", detail=f"{file} can't be written: {error.strerror}") from error
    console.result(saved, block(f"saved {file}", [("bytes", saved.bytes), ("sha256", saved.sha256)]))
    if console.output == "text":
        console.note(_NEXT)


backup.add_command(save)
