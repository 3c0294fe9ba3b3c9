"""``tenure members`` and ``tenure transfer``: which nodes the cluster has, and who of them leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from tenure._cli.base import Duration, Settings, command, common_options, perform
from tenure._cli.console import UNREACHABLE, Console
from tenure.errors import ClusterUnavailable, InvalidRequest

if TYPE_CHECKING:
    from tenure.aio import Client
    from tenure.answers import Cluster, Member, Members

LOOK_S: Final = 0.25
"""How often is looked whether a change has become possible, or a learner a voter."""

WAIT_MS: Final = 600_000


@command("transfer", examples="tenure transfer\ntenure transfer n2")
@click.argument("node", required=False)
def transfer(settings: Settings, console: Console, node: str | None) -> None:
    """Let NODE lead, or any node that is up to date. Needs the right admin."""
    done = perform(settings, lambda client: client.transfer(node))
    console.result(done, f"{done.leader or 'another node'} leads in term {done.term}")


@click.group("members", epilog="All but list need the right admin.")
def members() -> None:
    """List the members of the cluster, and change them, one at a time."""


members.params += common_options()


@command("list", examples="tenure members list\ntenure members list -o json")
def list_(settings: Settings, console: Console) -> None:
    """List the members as the node that is asked knows them."""
    view = perform(settings, lambda client: client.cluster())
    if console.output == "json":
        console.json({"members": view.members})
    else:
        rows = [_row(member) for member in view.members]
        console.table(["NODE", "ROLE", "VOTES", "PEER", "HTTP", "LAG"], rows)


def _addresses(function: Any) -> Any:
    function = click.option("--http", required=True, metavar="URL", help="What clients are told.")(function)
    return click.option("--peer", required=True, metavar="HOST:PORT", help="What the other members dial.")(
        function
    )


_wait = click.option(
    "--wait",
    "wait_ms",
    type=Duration(),
    default=WAIT_MS,
    show_default="10m",
    help="How long to wait until it votes, and for other changes to be over. 0: not at all.",
)


@command("add", examples="tenure members add n4 --peer 10.0.0.4:7701 --http http://10.0.0.4:7601")
@click.argument("node")
@_addresses
@_wait
def add(settings: Settings, console: Console, node: str, peer: str, http: str, wait_ms: int) -> None:
    """Make NODE, which was started with join = true, a member, and wait until it votes."""

    async def do(client: Client) -> Members | Cluster:
        return await _add(client, node, peer, http, wait_ms)

    console.result(perform(settings, do), f"{node} is a {'member' if wait_ms == 0 else 'voter'}")


@command("remove", examples="tenure members remove n2")
@click.argument("node")
@_wait
def remove(settings: Settings, console: Console, node: str, wait_ms: int) -> None:
    """Remove NODE for ever: it stops, and its name is not given again."""

    async def do(client: Client) -> Members:
        return await _remove(client, node, wait_ms)

    console.result(perform(settings, do), f"{node} is removed")


@command("replace", examples="tenure members replace n2 n4 --peer 10.0.0.4:7701 --http http://10.0.0.4:7601")
@click.argument("old")
@click.argument("node")
@_addresses
@_wait
def replace(
    settings: Settings, console: Console, old: str, node: str, peer: str, http: str, wait_ms: int
) -> None:
    """Add NODE, wait until it votes, and remove OLD, dead or alive."""

    async def do(client: Client) -> Members:
        await _add(client, node, peer, http, max(wait_ms, 1))
        return await _remove(client, old, wait_ms)

    console.result(perform(settings, do), f"{node} has taken the place of {old}")


@command("move", examples="tenure members move n2 --peer 10.0.0.7:7701 --http http://10.0.0.7:7601")
@click.argument("node")
@_addresses
@_wait
def move(settings: Settings, console: Console, node: str, peer: str, http: str, wait_ms: int) -> None:
    """Say where NODE, a member, is to be reached from now on."""

    async def do(client: Client) -> Members:
        return await _once_possible(
            lambda: client.add_member(node, peer=peer, http=http, readdress=True), wait_ms
        )

    console.result(perform(settings, do), f"{node} is at {peer}, {http}")


for _command in (list_, add, remove, replace, move):
    members.add_command(_command)


async def _once_possible(ask: Any, wait_ms: int) -> Members:
    """Ask, and again as long as the cluster says that it can't be so now."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    while True:
        try:
            made: Members = await ask()
        except InvalidRequest as refused:
            if refused.code != "change_refused" or loop.time() >= deadline:
                raise
        else:
            return made
        await asyncio.sleep(LOOK_S)


async def _add(client: Client, node: str, peer: str, http: str, wait_ms: int) -> Members | Cluster:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    made = await _once_possible(lambda: client.add_member(node, peer=peer, http=http), wait_ms)
    while wait_ms:
        try:
            view = await client.cluster()
        except ClusterUnavailable:
            view = None
        if view is not None and any(member.id == node and member.voter for member in view.members):
            return view
        if loop.time() >= deadline:
            click.echo(f"tenure: {node} is a member and does not vote yet: does it run, and join?", err=True)
            click.get_current_context().exit(UNREACHABLE)
        await asyncio.sleep(LOOK_S)
    return made


async def _remove(client: Client, node: str, wait_ms: int) -> Members:
    return await _once_possible(lambda: client.remove_member(node), wait_ms)


def _row(member: Member) -> list[str]:
    lag = "" if member.lag is None else str(member.lag)
    return [member.id, member.role, "yes" if member.voter else "not yet", member.peer, member.http, lag]
