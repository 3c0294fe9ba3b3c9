"""The commands about guards and records: commit, record."""

from __future__ import annotations

import secrets
import sys
from typing import Final, Literal

import click

from tenure._cli.base import Settings, command, perform
from tenure._cli.console import Console, Refused, argument, block

VALUE_FILE_BYTES_MAX: Final = 1 << 20
"""Most that is read of a value file; the cluster's own bound is lower and is named in its answer."""


@command(
    "commit",
    examples="""\
tenure commit job/7 --token 7 --lease-id LEASE_ID --value "42 tests generated"
tenure commit job/7 --token 7 --lease-id LEASE_ID --mode sequence --seq 3 --value-file out.json""",
)
@click.argument("key")
@click.option("--token", type=int, required=True, help="The lease's fencing token.")
@click.option("--lease-id", required=True, help="The lease's id.")
@click.option(
    "--mode",
    type=click.Choice(["current", "once", "sequence"]),
    help="Rule of the key's guard. [default: sequence with --seq, else once]",
)
@click.option("--value", help="The value to store as the key's record. [default: only use the token]")
@click.option("--value-file", metavar="FILE", help="The same from a file; - is standard input.")
@click.option("--seq", type=int, help="Sequence number of the write, for mode sequence.")
@click.option("--slot", type=int, help="Slot of a permit; each has a guard of its own.")
@click.option("--op-id", metavar="ID", help="Ask again with the same id to get the first answer.")
@click.option(
    "--if-revision", type=int, help="Only if the record has this revision; 0: only if there is none."
)
@click.option("--digest", help="Kept with the value.")
@click.option(
    "--no-require-live", is_flag=True, help="Let the token alone decide, also after the lease has ended."
)
def commit(
    settings: Settings,
    console: Console,
    key: str,
    token: int,
    lease_id: str,
    mode: Literal["current", "once", "sequence"] | None,
    value: str | None,
    value_file: str | None,
    seq: int | None,
    slot: int | None,
    op_id: str | None,
    if_revision: int | None,
    digest: str | None,
    no_require_live: bool,
) -> None:
    """Write to KEY through its guard. Exit code 1 if the guard refuses: nothing is written then."""
    if value is not None and value_file is not None:
        raise click.UsageError("--value and --value-file exclude each other")
    content = value if value_file is None else _read_value(value_file)
    op_id = op_id or secrets.token_urlsafe(16)
    settings.hints["outcome_unknown"] = (
        f"It may have been written. Run it again with --op-id {op_id} to find out."
    )
    if slot is None:
        settings.hints["not_live"] = (
            "The lease has ended, is parked, or is a permit, which is written with its --slot. Acquire "
            "again, or take it up by tenure unpark; --no-require-live lets the token alone decide."
        )
    answer = perform(
        settings,
        lambda client: client.commit(
            key,
            lease_id=lease_id,
            token=token,
            mode=mode or ("once" if seq is None else "sequence"),
            value=content,
            seq=seq,
            slot=slot,
            op_id=op_id,
            if_revision=if_revision,
            require_live=not no_require_live,
            digest=digest,
        ),
    )
    text = f"accepted, revision {answer.revision}"
    if content is None:
        text += "; no value given, the record is unchanged"
    console.result({"status": "accepted", "revision": answer.revision}, text)


@command(
    "record",
    examples="""\
tenure record job/7
tenure record job/7 --raw > result.bin
tenure record job/7 --delete --if-revision 12""",
)
@click.argument("key")
@click.option("--raw", is_flag=True, help="Print the bare value and nothing else.")
@click.option("--delete", is_flag=True, help="Delete the record.")
@click.option("--if-revision", type=int, help="With --delete: only if the record has this revision.")
def record(
    settings: Settings, console: Console, key: str, raw: bool, delete: bool, if_revision: int | None
) -> None:
    """Show the value last accepted for KEY, or delete it. Exit code 1 if there is none."""
    if if_revision is not None and not delete:
        raise click.UsageError("--if-revision goes with --delete")
    if raw and delete:
        raise click.UsageError("--raw and --delete exclude each other")
    none = Refused(code="no_record", detail=f"{key!r} has no record")
    if delete:
        settings.hints["outcome_unknown"] = f"It may have been deleted. Look: tenure record {argument(key)}"
        if not perform(settings, lambda client: client.delete_record(key, if_revision=if_revision)):
            raise none
        console.result({"status": "deleted"}, "deleted")
        return
    found = perform(settings, lambda client: client.record(key))
    if found is None:
        raise none
    if raw:
        sys.stdout.buffer.write(found.data())
        return
    shown = found.value if found.value_encoding == "utf8" else f"(base64) {found.value}"
    fields: list[tuple[str, object]] = [
        ("owner", found.owner),
        ("token", found.token),
        ("revision", found.revision),
        ("committed", found.committed_at),
        *([("digest", found.digest)] if found.digest else []),
        ("value", shown),
    ]
    console.result(found, block(f"record of {found.key}", fields))


def _read_value(name: str) -> str | bytes:
    """Text if it is UTF-8, else bytes."""
    try:
        if name == "-":
            content = sys.stdin.buffer.read(VALUE_FILE_BYTES_MAX + 1)
        else:
            with open(name, "rb") as file:
                content = file.read(VALUE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise click.UsageError(f"--value-file: {error}") from None
    if len(content) > VALUE_FILE_BYTES_MAX:
        raise click.UsageError(f"--value-file: {name} is longer than {VALUE_FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
