"""``tenure status``: every node asked for its own view."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from tenure._cli.base import Settings, command, perform
from tenure._cli.console import UNREACHABLE, Console
from tenure.errors import NotAuthorized, TenureError

if TYPE_CHECKING:
    from tenure.aio import Client
    from tenure.answers import Cluster

NODE_TIMEOUT_MS: Final = 1_500
"""How long each node may take: a view of the cluster that comes late is no view of it."""


@command(
    "status", examples="tenure status\ntenure status --endpoints http://10.0.0.1:7601,http://10.0.0.2:7601"
)
def status(settings: Settings, console: Console) -> None:
    """Ask every node how it sees the cluster. Exit code 3 if there is no leader."""

    async def ask(client: Client) -> dict[str, Cluster | TenureError]:
        async def one(endpoint: str) -> Cluster | TenureError:
            try:
                return await client.cluster(endpoint=endpoint)
            except TenureError as error:
                return error

        views = dict(zip(client.endpoints, await asyncio.gather(*map(one, client.endpoints)), strict=True))
        # Nodes that weren't named are asked as well, by the address that the others know.
        known = {m.http for view in views.values() if not isinstance(view, TenureError) for m in view.members}
        seen = {view.node for view in views.values() if not isinstance(view, TenureError)}
        rest = [
            m.http
            for view in views.values()
            if not isinstance(view, TenureError)
            for m in view.members
            if m.id not in seen and m.http not in views
        ]
        more = [url for url in dict.fromkeys(rest) if url in known]
        return views | dict(zip(more, await asyncio.gather(*map(one, more)), strict=True))

    settings.timeout_ms = min(settings.timeout_ms, NODE_TIMEOUT_MS)
    views = perform(settings, ask)
    refusal = next((view for view in views.values() if isinstance(view, NotAuthorized)), None)
    if refusal is not None and all(isinstance(view, TenureError) for view in views.values()):
        raise refusal  # the nodes may be well: it is the credential that is not
    _print_status(console, views)
    if not any(not isinstance(view, TenureError) and view.role == "leader" for view in views.values()):
        console.note("tenure: no leader answered; a majority of the nodes must run and reach each other")
        click.get_current_context().exit(UNREACHABLE)


def _leadership(best: Cluster) -> str:
    if best.role == "leader":
        return f"leader {best.node}, term {best.term}"
    last = f" ({best.leader} was the last known)" if best.leader else ""
    return f"no leader{last}, term {best.term}"


def _print_status(console: Console, views: Mapping[str, Cluster | TenureError]) -> None:
    answered = {url: view for url, view in views.items() if not isinstance(view, TenureError)}
    # The leader's view is the best, and of several leaders the one of the highest term.
    best = max(answered.values(), key=lambda view: (view.role == "leader", view.term), default=None)
    if console.output == "json":
        nodes = [
            {"endpoint": url, "reachable": False, "error": str(view)}
            if isinstance(view, TenureError)
            else {"endpoint": url, "reachable": True, "view": view}
            for url, view in views.items()
        ]
        console.json({"cluster": best, "nodes": nodes})
        return
    lag = {member.id: member.lag for member in best.members} if best is not None else {}
    if best is not None:
        size = len(best.members)
        click.echo(
            f"cluster {best.cluster_id}: {_leadership(best)}, {size} member{'' if size == 1 else 's'}, "
            f"durability {best.durability}"
        )
    names = {member.http: member.id for view in answered.values() for member in view.members}
    rows = []
    for url, view in views.items():
        if isinstance(view, TenureError):
            refused = isinstance(view, NotAuthorized)
            rows.append([names.get(url, "?"), "refused" if refused else "unreachable", url, "", "", ""])
            continue
        behind = lag.get(view.node)
        rows.append(
            [
                view.node,
                view.role,
                url,
                str(view.term),
                str(view.applied_index),
                "" if behind is None else str(behind),
            ]
        )
    console.table(["NODE", "ROLE", "URL", "TERM", "APPLIED", "LAG"], rows)
