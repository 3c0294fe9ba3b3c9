"""The commands by which a lease changes hands or rests: handover, park, unpark."""

from __future__ import annotations

import click

from tenure._cli.base import Duration, Settings, command, perform
from tenure._cli.console import Console, block
from tenure._cli.leases import grant_text
from tenure._durations import format_ms


@command(
    "handover",
    examples="""\
tenure handover LEASE_ID --to SESSION_ID
tenure handover "$TENURE_LEASE_ID" --to "$(cat successor.session)" """.rstrip(),
)
@click.argument("lease_id")
@click.option(
    "--to",
    "session_id",
    metavar="SESSION_ID",
    required=True,
    help="The successor's session; tenure sessions open makes one.",
)
def handover(settings: Settings, console: Console, lease_id: str, session_id: str) -> None:
    """Give a lease, by its LEASE_ID, to another session, past all who wait.

    Metadata and progress go with it. Stop acting first: its token can't write any more. Exit code 1 if it has
    ended, if there is no such session, or if that one can't have it.
    """
    settings.hints["outcome_unknown"] = "It may have been handed over. Run it again to find out."
    settings.hints["no_session"] = settings.hints["session_expired"] = (
        "Ask the successor for the id of a session that is alive."
    )
    lease = perform(settings, lambda client: client.handover(lease_id, session_id))
    text = block(
        f"handed over {lease.key} to {lease.owner}",
        [("token", f"{lease.token}, the successor's"), ("expires in", format_ms(lease.expires_in_ms))],
    )
    console.result({"status": "handed_over", "lease": lease}, text)


@command("park", examples="tenure park LEASE_ID --limit 24h")
@click.argument("lease_id")
@click.option(
    "--limit",
    type=Duration(),
    required=True,
    help="How long from now it lasts without being renewed; 30d at most.",
)
def park(settings: Settings, console: Console, lease_id: str, limit: int) -> None:
    """Keep a lease, by its LEASE_ID, without renewals, for a human in the loop.

    Nobody else gets its key, and its token can't write until it is taken up by tenure unpark. Run again, the
    limit counts anew. Exit code 1 if it has ended.
    """
    settings.hints["outcome_unknown"] = "It may be parked. Run it again to be sure."
    lease = perform(settings, lambda client: client.park(lease_id, limit=limit / 1000))
    text = block(
        f"parked {lease.key} of {lease.owner}",
        [
            ("lease id", lease.lease_id),
            ("lasts", f"{format_ms(lease.expires_in_ms)} unless taken up: tenure unpark {lease.lease_id}"),
        ],
    )
    console.result({"status": "parked", "lease": lease}, text)


@command(
    "unpark",
    examples="""\
tenure unpark LEASE_ID
tenure unpark LEASE_ID --session SESSION_ID
tenure unpark LEASE_ID --ttl 1m -o json | jq .lease.token""",
)
@click.argument("lease_id")
@click.option(
    "--ttl", type=Duration(), help="How long it lasts unless renewed. [default: as before it was parked]"
)
@click.option(
    "--session",
    "session_id",
    metavar="SESSION_ID",
    help="Hold it by a session from here on. [default: alone]",
)
def unpark(
    settings: Settings, console: Console, lease_id: str, ttl: int | None, session_id: str | None
) -> None:
    """Take up a parked lease by its LEASE_ID, and print it with its new token.

    From here on it has to be renewed again. One that is not parked is printed as it is. Exit code 1 if it has
    ended.
    """
    if ttl is not None and session_id is not None:
        raise click.UsageError("--ttl goes without --session, which has its own")
    settings.hints["no_session"] = settings.hints["session_expired"] = (
        "Open another session: tenure sessions open"
    )
    settings.hints["outcome_unknown"] = "It may have been taken up. Run it again to see its token."
    seconds = None if ttl is None else ttl / 1000
    lease = perform(settings, lambda client: client.unpark(lease_id, ttl=seconds, session_id=session_id))
    console.result({"status": "unparked", "lease": lease}, grant_text("taken up", lease))
