"""Commands that start processes, and end them before they end themselves."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import click

T = TypeVar("T")

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
STOPPED: Final = 128 + signal.SIGTERM
"""The exit code of a command that was told to stop."""


def run_until_told(work: Coroutine[Any, Any, T]) -> T:
    """Run it. SIGTERM and a terminal that goes away break it off as Ctrl-C does, so what it has started ends
    before; then exit."""
    try:
        return asyncio.run(_cancelled_by_signals(work))
    except asyncio.CancelledError:
        click.echo("tenure-chaos: told to stop; nodes, clients and proxies are ended", err=True)
        sys.exit(STOPPED)


async def _cancelled_by_signals(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await work
