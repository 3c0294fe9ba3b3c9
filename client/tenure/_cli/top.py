"""``tenure top``: the dashboard's twin in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tenure._cli.base import Duration, Settings, command, perform
from tenure._cli.console import UNREACHABLE, Console
from tenure._cli.top_view import Seen, health, picture
from tenure.errors import ClusterUnavailable

if TYPE_CHECKING:
    from tenure.aio import Client
    from tenure.answers import LeaseInfo

PAGE: Final = 1_000
LISTED_MAX: Final = 5_000
"""Leases that are asked for; of more than these it is only said that there are more."""
PAST_EVENTS: Final = 2_000
"""In which refused commits of before are looked for."""
REDRAWS_PER_S: Final = 4
PAUSE_S_MAX: Final = 2.0


@command(
    "top",
    examples="""\
tenure top
tenure top payment/ --interval 5s
tenure top --once
tenure top --once -o json | jq -r .health.level""",
)
@click.argument("prefix", default="")
@click.option(
    "--interval",
    type=Duration(),
    default="1s",
    show_default=True,
    help="How often nodes and leases are asked for; what happens is told at once.",
)
@click.option("--once", is_flag=True, help="Print it once and end; so does every output but a terminal.")
def top(settings: Settings, console: Console, prefix: str, interval: int, once: bool) -> None:
    """Show health, nodes, and leases by the time that is left of them, until Ctrl-C.

    All leases, or those whose keys begin with PREFIX; refused commits are those of all keys. A page for
    browsers that shows the same is served by every node at /ui/. With --once, exit code 3 if the cluster
    doesn't serve.
    """
    if once or console.output == "json" or not sys.stdout.isatty():
        _print_once(settings, console, prefix)
        return
    with contextlib.suppress(KeyboardInterrupt):  # the way to leave it
        perform(settings, lambda client: _show(client, prefix, max(0.2, interval / 1000)))


def _print_once(settings: Settings, console: Console, prefix: str) -> None:
    seen = Seen()

    async def ask(client: Client) -> None:
        await _look_at_nodes(client, seen)
        if not seen.problem:
            await _look_at_leases(client, prefix, seen)
        seen.live = True  # nothing is followed, so nothing is interrupted

    perform(settings, ask)
    level, line = health(seen.nodes, seen.problem, seen.live, seen.counts())
    if console.output == "json":
        console.json(_document(seen, level, line))
    else:
        from rich.console import Console as RichConsole

        wide = RichConsole(highlight=False, width=None if sys.stdout.isatty() else 200)
        wide.print(picture(seen, time.monotonic(), None))
    if level == "bad" or seen.leases_problem:
        click.get_current_context().exit(UNREACHABLE)


def _document(seen: Seen, level: str, line: str) -> dict[str, Any]:
    ordered = sorted(seen.leases, key=lambda lease: (lease.expires_in_ms, lease.key))
    return {
        "health": {"level": level, "text": line},
        "nodes": msgspec.to_builtins(seen.nodes),
        "leases": msgspec.to_builtins(ordered),
        "more": seen.more,
        "problem": seen.problem or seen.leases_problem,
    }


async def _show(client: Client, prefix: str, interval_s: float) -> None:
    """Draw again and again until cancelled."""
    from rich.live import Live

    seen = Seen()
    changed = asyncio.Event()
    with Live(screen=True, auto_refresh=False) as live:

        async def draw() -> None:
            while True:
                live.update(picture(seen, time.monotonic(), live.console.height), refresh=True)
                await asyncio.sleep(1 / REDRAWS_PER_S)

        async def ask_nodes() -> None:
            while True:
                await _look_at_nodes(client, seen)
                await asyncio.sleep(interval_s)

        async def ask_leases() -> None:
            while True:
                began = time.monotonic()
                await _look_at_leases(client, prefix, seen)
                # A list that is long must not keep the cluster busy.
                await asyncio.sleep(min(PAUSE_S_MAX, 5 * (time.monotonic() - began)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval_s):
                        await changed.wait()
                        changed.clear()
                        await asyncio.sleep(1 / REDRAWS_PER_S)  # what happens together is asked for once

        following = _again(lambda: _follow(client, seen, changed), seen)
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (draw(), ask_nodes(), ask_leases(), following):
                    tasks.create_task(work)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None  # whatever it is, it is told as of any command


async def _look_at_nodes(client: Client, seen: Seen) -> None:
    """Ask for the nodes, who answer without a quorum too. What isn't answered leaves what was known."""
    try:
        seen.nodes = await client.nodes()
        seen.problem = ""
    except ClusterUnavailable as error:
        seen.problem = str(error)


async def _look_at_leases(client: Client, prefix: str, seen: Seen) -> None:
    """The same for the leases."""
    asked_at = time.monotonic()
    leases: list[LeaseInfo] = []
    after = None
    try:
        while len(leases) < LISTED_MAX:
            page = await client.leases_page(prefix, limit=PAGE, after=after)
            leases += page.leases
            after = page.next
            if after is None:
                break
    except ClusterUnavailable as error:
        seen.leases_problem = str(error)
        return
    seen.leases, seen.leases_at, seen.more = leases, asked_at, after is not None
    seen.leases_problem = ""


async def _follow(client: Client, seen: Seen, changed: asyncio.Event) -> None:
    now = (await client.leases_page(limit=1)).revision
    async with contextlib.aclosing(client.watch(after=max(0, now - PAST_EVENTS))) as events:
        seen.live = True
        async for event in events:
            if event.kind == "commit_refused":
                seen.refused.append(event)
            elif event.kind != "renewed" and event.revision > now:
                changed.set()


async def _again(work: Callable[[], Awaitable[None]], seen: Seen) -> None:
    """A cluster that is away may come back."""
    while True:
        with contextlib.suppress(ClusterUnavailable):
            await work()
        seen.live = False
        await asyncio.sleep(1)
