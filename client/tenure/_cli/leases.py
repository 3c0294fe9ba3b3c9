"""The commands about leases: acquire, renew, release, get, list, break."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tenure._cli.base import Duration, Settings, command, perform
from tenure._cli.console import Console, Refused, argument, block
from tenure._durations import format_ms

if TYPE_CHECKING:
    from tenure.aio import Client
    from tenure.answers import Grant, Holder, LeaseInfo, Progress


@command(
    "acquire",
    examples="""\
tenure acquire payment/security/42 --ttl 30s
tenure acquire payment/security/42 --ttl 30s --wait 1m --owner agent-a
tenure acquire account/1 account/2 --wait 10s
tenure acquire document/9 --shared
tenure acquire gpu --slots 4 --wait 1m
tenure acquire job/8 --session SESSION_ID
tenure acquire job/7 -o json | jq -r .lease.lease_id""",
)
@click.argument("keys", metavar="KEY…", nargs=-1, required=True)
@click.option(
    "--ttl",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long the lease lasts unless renewed.",
)
@click.option(
    "--wait", type=Duration(), default="0", help="How long to wait in the key's queue. [default: not at all]"
)
@click.option("--owner", metavar="NAME", help="Label of the holder, for people. [default: user@host]")
@click.option("--shared", is_flag=True, help="Hold together with other shared holders, and with nobody else.")
@click.option(
    "--slots", type=int, metavar="N", help="Take one of N permits; everybody has to name the same N."
)
@click.option(
    "--grace",
    type=Duration(),
    default="0",
    help="Pause before the next grant if the lease expires or is broken.",
)
@click.option(
    "--progress-within",
    type=Duration(),
    help="End the lease unless its holder tells of progress that often: tenure renew --step …",
)
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="Shown to everybody; may be repeated.")
@click.option("--request-id", metavar="ID", help="Ask again with the same id to find the same grant.")
@click.option(
    "--session",
    "session_id",
    metavar="SESSION_ID",
    help="Hold it by a session (of tenure sessions open), which has the TTL and is renewed as a whole.",
)
@click.option(
    "--if-held",
    type=click.Choice(["return", "conflict"]),
    default="return",
    show_default=True,
    help="What to do if the session holds it already: print that lease, or refuse.",
)
def acquire(
    settings: Settings,
    console: Console,
    keys: tuple[str, ...],
    ttl: int,
    wait: int,
    owner: str | None,
    shared: bool,
    slots: int | None,
    grace: int,
    progress_within: int | None,
    metadata: tuple[str, ...],
    request_id: str | None,
    session_id: str | None,
    if_held: str,
) -> None:
    """Acquire KEY, and print the lease with its fencing token. Several KEYs are granted together, or none.

    The lease ends after its TTL unless it is renewed by its lease id. Exit code 1 if somebody else holds
    a key. Ctrl-C leaves the queue at once; a waiter that is killed outright may stay in it for 50s.
    """
    if shared and slots is not None:
        raise click.UsageError("--shared and --slots exclude each other")
    ends = f"after {format_ms(ttl)}"
    if session_id is not None:
        if click.get_current_context().get_parameter_source("ttl") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--ttl goes without --session, which has its own")
        ends = "with its session"
        settings.hints["no_session"] = settings.hints["session_expired"] = (
            "Open another session: tenure sessions open"
        )
    settings.hints["outcome_unknown"] = (
        "It may have been granted. Run it again with the same --request-id to find out."
        if request_id
        else f"It may have been granted, and then ends {ends}: tenure get {argument(keys[0])}"
    )
    terms: dict[str, Any] = {
        "owner": owner or default_owner(),
        "ttl": ttl / 1000 if session_id is None else None,
        "session_id": session_id,
        "if_held": if_held,
        "wait": wait / 1000,
        "grace": grace / 1000,
        "progress": None if progress_within is None else progress_within / 1000,
        "request_id": request_id,
        "metadata": parse_metadata(metadata),
        "mode": "shared" if shared else "permit" if slots is not None else "exclusive",
        "slots": slots,
    }
    if len(keys) == 1:
        grant = perform(settings, lambda client: client.acquire(keys[0], **terms))
        console.result({"status": "granted", "lease": grant}, grant_text("granted", grant))
        return
    grants = perform(settings, lambda client: client.acquire_set(keys, **terms))
    console.result({"status": "granted", "leases": grants}, _set_text(grants))


@command(
    "renew",
    examples="""\
tenure renew LEASE_ID
tenure renew LEASE_ID --ttl 1m
tenure renew LEASE_ID --step upload --text "12 of 80 files" --counter 12""",
)
@click.argument("lease_id")
@click.option(
    "--ttl", type=Duration(), help="A new TTL; the time left never becomes shorter. [default: as acquired]"
)
@click.option("--step", help="Tell of progress: what is being done.")
@click.option("--text", help="Tell of progress: a sentence for people.")
@click.option("--counter", type=click.IntRange(0), help="Tell of progress: how much is done.")
def renew(
    settings: Settings,
    console: Console,
    lease_id: str,
    ttl: int | None,
    step: str | None,
    text: str | None,
    counter: int | None,
) -> None:
    """Renew a lease by its LEASE_ID, and tell how far its holder is. Exit code 1 if it has ended.

    A lease of several keys is renewed by any of its ids. Only a note that is new is progress.
    """
    tells = (step, text, counter) != (None, None, None)
    if tells and ttl is not None:
        raise click.UsageError("--ttl goes without --step, --text and --counter")
    seconds = None if ttl is None else ttl / 1000
    grant = perform(
        settings,
        lambda client: (
            client.progress(lease_id, step or "", text=text or "", counter=counter or 0)
            if tells
            else client.renew(lease_id, ttl=seconds)
        ),
    )
    console.result({"lease": grant}, grant_text("renewed", grant))


@command("release", examples="tenure release LEASE_ID\ntenure release LEASE_ID --whole-set")
@click.argument("lease_id")
@click.option("--whole-set", is_flag=True, help="With the other keys that it was acquired together with.")
def release(settings: Settings, console: Console, lease_id: str, whole_set: bool) -> None:
    """Release a lease by its LEASE_ID; the next waiter gets the key. Exit code 1 if it had ended
    otherwise."""
    answer = perform(settings, lambda client: client.release(lease_id, whole_set=whole_set))
    console.result(answer, answer.status.replace("_", " "))


@command("get", examples="tenure get payment/security/42\ntenure get job/7 -o json | jq .token")
@click.argument("key")
def get(settings: Settings, console: Console, key: str) -> None:
    """Show who holds KEY. Exit code 1 if nobody does."""
    lease = perform(settings, lambda client: client.get(key))
    if lease is None:
        raise Refused(code="not_held", detail=f"{key!r} is not held")
    console.result(lease, _lease_text(f"{lease.key} is held", lease))


@command(
    "list",
    examples="tenure list\ntenure list payment/ --owner agent-a\ntenure list -o json | jq -r '.leases[].key'",
)
@click.argument("prefix", default="")
@click.option("--owner", help="Only leases of this owner.")
@click.option(
    "--limit", type=click.IntRange(1), default=1000, show_default=True, help="Most leases to print."
)
@click.option("--after", metavar="KEY", help="Begin after this key.")
def list_(
    settings: Settings, console: Console, prefix: str, owner: str | None, limit: int, after: str | None
) -> None:
    """List leases, in the order of their keys: all, or those whose key begins with PREFIX."""

    async def pages(client: Client) -> tuple[list[LeaseInfo], str | None]:
        found: list[LeaseInfo] = []
        position = after
        while True:
            page = await client.leases_page(prefix, owner=owner, after=position)
            found += page.leases
            position = page.next
            if len(found) > limit:
                return found[:limit], found[limit - 1].key
            if position is None or len(found) == limit:
                return found, position

    leases, more = perform(settings, pages)
    if console.output == "json":
        console.json({"leases": leases, "next": more})
    elif leases:
        rows = [
            [le.key, le.owner, str(le.token), mode_text(le), format_ms(le.expires_in_ms)] for le in leases
        ]
        console.table(["KEY", "OWNER", "TOKEN", "MODE", "EXPIRES IN"], rows)
    else:
        console.note("no leases" + (f" with prefix {prefix!r}" if prefix else ""))
    if more is not None:
        console.note(f"There are more. Go on with: --after {shlex.quote(more)}")


@command("break", examples='tenure break payment/security/42 --reason "agent-a is gone for good"')
@click.argument("key")
@click.option("--reason", required=True, help="Why; kept in the audit and told to the holder.")
def break_(settings: Settings, console: Console, key: str, reason: str) -> None:
    """Take KEY away from its holder. The holder's token can't write any more."""
    settings.hints["outcome_unknown"] = (
        f"It may have been broken. Look before you break again: tenure get {argument(key)}"
    )
    answer = perform(settings, lambda client: client.break_(key, reason=reason))
    broken = ", ".join(f"{lease.owner!r} (token {lease.token})" for lease in answer.broken)
    console.result(
        answer, f"broken: {broken}" if broken else f"{key!r} was not held; older tokens can't write"
    )


def default_owner() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def parse_metadata(items: tuple[str, ...]) -> dict[str, str]:
    parsed = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--metadata {item!r} is not NAME=VALUE")
        parsed[name] = value
    return parsed


def mode_text(lease: Holder) -> str:
    """The mode, with the slot of a permit, and whether it is parked."""
    mode = f"permit, slot {lease.slot}" if lease.mode == "permit" else lease.mode
    return f"{mode}, parked" if lease.state == "parked" else mode


def grant_text(what: str, grant: Grant) -> str:
    """A lease as its holder sees it."""
    time = format_ms(grant.expires_in_ms)
    lasts = ("expires in", f"{time} unless renewed: tenure renew {grant.lease_id}")
    if grant.progress_ms:
        lasts = ("expires in", f"{time} unless progress is told: tenure renew {grant.lease_id} --step …")
    if grant.state == "parked":
        lasts = ("parked for", f"{time}; no renewal prolongs that: tenure unpark {grant.lease_id}")
    return block(
        f"{what} {grant.key} to {grant.owner}",
        [
            ("token", grant.token),
            *([] if grant.mode == "exclusive" else [("mode", mode_text(grant))]),
            ("lease id", grant.lease_id),
            lasts,
        ],
    )


def _set_text(grants: list[Grant]) -> str:
    first = grants[0]
    renewing = f"{format_ms(first.expires_in_ms)} unless renewed: tenure renew {first.lease_id}"
    if first.progress_ms:
        renewing = renewing.replace("renewed", "progress is told", 1) + " --step …"
    return block(
        f"granted {len(grants)} keys to {first.owner}",
        [
            *((f"token of {grant.key}", f"{grant.token}, lease id {grant.lease_id}") for grant in grants),
            ("expire in", renewing),
            ("all given back by", f"tenure release --whole-set {first.lease_id}"),
        ],
    )


def progress_text(progress: Progress) -> str:
    """A note of progress in one line."""
    parts = [progress.step, progress.text, str(progress.counter) if progress.counter else ""]
    return (
        f"{', '.join(part for part in parts if part) or '(nothing said)'}, {format_ms(progress.age_ms)} ago"
    )


def _lease_text(title: str, lease: LeaseInfo) -> str:
    return block(
        title,
        [
            ("owner", lease.owner),
            ("token", lease.token),
            ("mode", mode_text(lease)),
            *([("holders", f"{lease.holders}, this is the first")] if lease.holders > 1 else []),
            *([("state", "parked: no heartbeats are needed")] if lease.state == "parked" else []),
            ("expires in", f"{format_ms(lease.expires_in_ms)} of {format_ms(lease.ttl_ms)}"),
            *([("progress", progress_text(lease.progress))] if lease.progress is not None else []),
            *([("demanded", f"every {format_ms(lease.progress_ms)}")] if lease.progress_ms else []),
            ("granted", lease.granted_at),
            ("renewed", lease.renewed_at),
            *((f"metadata {name}", value) for name, value in lease.metadata.items()),
        ],
    )
