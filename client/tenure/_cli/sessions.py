"""``tenure sessions``: what keeps any number of leases alive by one heartbeat, and takes over others'."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenure._cli.base import Duration, Settings, command, common_options, perform
from tenure._cli.console import Console, Refused, block
from tenure._cli.leases import default_owner, parse_metadata
from tenure._durations import format_ms

if TYPE_CHECKING:
    from tenure.answers import Session


@click.group("sessions")
def sessions() -> None:
    """Open, show, renew and close sessions.

    A session holds any number of leases (tenure acquire --session), which live and end with it. It can be
    handed the leases of others (tenure handover --to).
    """


sessions.params += common_options()


@command(
    "open",
    examples="""\
tenure sessions open --ttl 1m --owner agent-a
tenure sessions open -o json | jq -r .session.session_id > successor.session""",
)
@click.option(
    "--ttl",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long it lasts, with all its leases, unless renewed.",
)
@click.option("--owner", metavar="NAME", help="Label of the holder, for people. [default: user@host]")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="Kept with it; may be repeated.")
def open_(
    settings: Settings, console: Console, ttl: int, owner: str | None, metadata: tuple[str, ...]
) -> None:
    """Open a session, and print it with its id. Whoever knows the id can renew and close it."""
    settings.hints["outcome_unknown"] = (
        f"It may have been opened. One whose id nobody knows ends after {format_ms(ttl)}."
    )
    given = parse_metadata(metadata)
    session = perform(
        settings,
        lambda client: client.open_session(owner=owner or default_owner(), ttl=ttl / 1000, metadata=given),
    )
    console.result({"session": session}, _text("opened a session", session))


@command("show", examples="tenure sessions show SESSION_ID")
@click.argument("session_id")
def show(settings: Settings, console: Console, session_id: str) -> None:
    """Show a session by its SESSION_ID. Exit code 1 if it is over."""
    session = perform(settings, lambda client: client.session(session_id))
    if session is None:
        raise _over()
    console.result({"session": session}, _text("a session", session))


@command("renew", examples="tenure sessions renew SESSION_ID\ntenure sessions renew SESSION_ID --ttl 5m")
@click.argument("session_id")
@click.option(
    "--ttl", type=Duration(), help="A new TTL; the time left never becomes shorter. [default: as opened]"
)
def renew(settings: Settings, console: Console, session_id: str, ttl: int | None) -> None:
    """Renew a session by its SESSION_ID, and with it all its leases. Exit code 1 if it is over."""
    settings.hints["no_session"] = settings.hints["session_expired"] = (
        "Its leases are over too. Stop what they allowed, then open another: tenure sessions open"
    )
    seconds = None if ttl is None else ttl / 1000
    session = perform(settings, lambda client: client.renew_session(session_id, ttl=seconds))
    console.result({"session": session}, _text("renewed a session", session))


@command("close", examples="tenure sessions close SESSION_ID")
@click.argument("session_id")
def close(settings: Settings, console: Console, session_id: str) -> None:
    """End a session by its SESSION_ID: its leases are given back, and it leaves all queues. Exit code 1 if it
    was over already."""
    if not perform(settings, lambda client: client.close_session(session_id)):
        raise _over()
    console.result({"status": "closed"}, "closed")


for _command in (open_, show, renew, close):
    sessions.add_command(_command)


def _over() -> Refused:
    return Refused(code="no_session", detail="no such session is alive")


def _text(what: str, session: Session) -> str:
    left = f"{format_ms(session.expires_in_ms)} unless renewed: tenure sessions renew {session.session_id}"
    return block(
        f"{what} of {session.owner}",
        [
            ("session id", session.session_id),
            ("leases", session.leases),
            ("expires in", left),
            ("opened", session.opened_at),
            ("renewed", session.renewed_at),
            *((f"metadata {name}", value) for name, value in session.metadata.items()),
        ],
    )
