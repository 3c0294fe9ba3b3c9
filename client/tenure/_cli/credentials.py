"""``tenure credentials``: who may ask for what."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tenure._cli.base import Duration, Settings, command, common_options, perform
from tenure._cli.console import Console, Refused, argument, block

if TYPE_CHECKING:
    from tenure.answers import Credential, NewCredential

RIGHTS: Final = ("acquire", "observe", "commit", "force", "admin")

_UNKNOWN: Final = "It may have been made, with a secret that nobody has. Look for it and revoke it: "


@click.group("credentials", epilog="Each needs the right admin.")
def credentials() -> None:
    """Make, list, rotate and revoke credentials."""


credentials.params += common_options()


@command(
    "create",
    examples="""\
tenure credentials create agent-a --right acquire --right commit --prefix payment/
tenure credentials create ci --tenant build --right acquire --lifetime 90d --to ci.credential""",
)
@click.argument("name")
@click.option(
    "--right",
    "rights",
    type=click.Choice(RIGHTS),
    multiple=True,
    required=True,
    help="What it is for; may be given several times.",
)
@click.option("--tenant", default="default", show_default=True, help="Whose it is.")
@click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    help="Keys that begin with this, exactly; may be given several times. [default: all keys]",
)
@click.option("--lifetime", type=Duration(), help="For how long it is valid. [default: without an end]")
@click.option("--to", type=click.Path(path_type=Path), help="Write it to this new file, for its owner alone.")
def create(
    settings: Settings,
    console: Console,
    name: str,
    rights: tuple[str, ...],
    tenant: str,
    prefixes: tuple[str, ...],
    lifetime: int | None,
    to: Path | None,
) -> None:
    """Make a credential, and show it once."""
    settings.hints["outcome_unknown"] = f"{_UNKNOWN}tenure credentials list --tenant {argument(tenant)}"
    file = _open_new(to)
    try:
        made = perform(
            settings,
            lambda client: client.create_credential(
                name,
                rights=rights,
                tenant=tenant,
                prefixes=prefixes or ("",),
                lifetime=None if lifetime is None else lifetime / 1000,
            ),
        )
    except BaseException:
        _give_up(file, to)
        raise
    _tell(console, made, file, to)


@command("list", examples="tenure credentials list\ntenure credentials list --tenant build -o json")
@click.option("--tenant", help="Those of one tenant alone.")
def list_(settings: Settings, console: Console, tenant: str | None) -> None:
    """List credentials, without their secrets."""
    found = perform(settings, lambda client: client.credentials(tenant=tenant))
    if console.output == "json":
        console.json({"credentials": found})
    elif found:
        heads = ["ID", "NAME", "TENANT", "RIGHTS", "KEYS", "EXPIRES", "ROTATED"]
        console.table(heads, [_row(credential) for credential in found])
    else:
        console.note("there are no credentials")


@command("rotate", examples="tenure credentials rotate x3Kc0Zr9Qm1t --overlap 1h --to new.credential")
@click.argument("credential_id")
@click.option(
    "--overlap",
    type=Duration(),
    default="1h",
    show_default=True,
    help="For how long the present secret stays valid; with 0 all others are over at once.",
)
@click.option("--to", type=click.Path(path_type=Path), help="Write it to this new file, for its owner alone.")
def rotate(settings: Settings, console: Console, credential_id: str, overlap: int, to: Path | None) -> None:
    """Give a credential a new secret, and show it once."""
    settings.hints["outcome_unknown"] = "Rotate it again: what is in its overlap stays valid."
    file = _open_new(to)
    try:
        made = perform(
            settings, lambda client: client.rotate_credential(credential_id, overlap=overlap / 1000)
        )
    except BaseException:
        _give_up(file, to)
        raise
    _tell(console, made, file, to)


@command("revoke", examples="tenure credentials revoke x3Kc0Zr9Qm1t")
@click.argument("credential_id")
def revoke(settings: Settings, console: Console, credential_id: str) -> None:
    """Take a credential away. What it holds ends by its TTL."""
    if not perform(settings, lambda client: client.revoke_credential(credential_id)):
        raise Refused(code="no_credential", detail=f"there is no credential {credential_id!r}")
    console.result({"status": "revoked"}, "revoked")


for _command in (create, list_, rotate, revoke):
    credentials.add_command(_command)


def _open_new(to: Path | None) -> int | None:
    """The file before the secret: no secret is made that can't be kept."""
    if to is None:
        return None
    try:
        return os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.UsageError(f"--to: {error}") from None


def _give_up(file: int | None, to: Path | None) -> None:
    if file is not None and to is not None:
        os.close(file)
        to.unlink(missing_ok=True)


def _tell(console: Console, made: NewCredential, file: int | None, to: Path | None) -> None:
    credential = made.credential
    if file is None or to is None:
        text = f"{_described(credential)}\n\n{made.bearer}"
        console.result(made, text)
        if console.output == "text":
            console.note("This is the only time that it is shown. Use it by TENURE_CREDENTIAL.")
        return
    with os.fdopen(file, "w", encoding="ascii") as kept:
        kept.write(made.bearer + "\n")
        kept.flush()
        os.fsync(kept.fileno())
    console.result({"credential": credential, "file": str(to)}, f"{_described(credential)}\n\nin {to}")


def _described(credential: Credential) -> str:
    fields: list[tuple[str, object]] = [
        ("name", credential.name),
        ("tenant", credential.tenant),
        ("rights", ", ".join(credential.rights)),
        ("keys", _keys(credential)),
        ("expires", credential.expires_at or "never"),
        *([("overlap until", credential.overlap_until)] if credential.overlap_until else []),
    ]
    return block(f"credential {credential.credential_id}", fields)


def _keys(credential: Credential) -> str:
    return "all" if "" in credential.prefixes else ", ".join(f"{prefix}…" for prefix in credential.prefixes)


def _row(credential: Credential) -> list[str]:
    return [
        credential.credential_id,
        credential.name,
        credential.tenant,
        " ".join(credential.rights),
        _keys(credential),
        credential.expires_at or "never",
        credential.rotated_at,
    ]
