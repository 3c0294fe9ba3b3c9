"""``tenure run``: a command that is started under a lease, and stopped when that ends."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import click

from tenure._cli.base import Duration, Settings, command
from tenure._cli.console import Console
from tenure._cli.leases import default_owner, parse_metadata
from tenure.errors import LeaseLost, TenureError

if TYPE_CHECKING:
    from tenure.aio import Held

PROGRAM = "tenure.program"
"""Where what stands after ``--`` is kept while the rest is read."""
KILL_GRACE_MS_MAX = 5_000
KILL_GRACE_OF_TTL = 1 / 6


class RunCommand(click.Command):
    """Keeps what stands after the first ``--`` apart: it is the program, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[PROGRAM] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@command(
    "run",
    cls=RunCommand,
    examples="""\
tenure run nightly-report -- ./report.sh
tenure run payment/security/42 --ttl 1m --wait 10m -- python job.py
tenure run account/1 account/2 --wait 1m -- ./transfer.sh
tenure run gpu --slots 4 --wait 1h -- sh -c 'train --device $TENURE_SLOT'
tenure run migrate --kill-grace 10s -- alembic upgrade head""",
)
@click.argument("words", metavar="KEY… -- COMMAND …", nargs=-1)
@click.option(
    "--ttl",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long the lease outlives us.",
)
@click.option(
    "--wait", type=Duration(), default="0", help="How long to wait in the key's queue. [default: not at all]"
)
@click.option("--owner", metavar="NAME", help="Label of the holder, for people. [default: user@host]")
@click.option("--shared", is_flag=True, help="Hold together with other shared holders, and with nobody else.")
@click.option("--slots", type=int, metavar="N", help="Take one of N permits; all have to name the same N.")
@click.option(
    "--kill-grace",
    type=Duration(),
    help="Time between SIGTERM and SIGKILL when the lease can't be kept. [default: a sixth of the TTL, 5s "
    "at most]",
)
@click.option(
    "--grace",
    type=Duration(),
    default="0",
    help="Pause before the next grant if the lease expires or is broken, for what can't check a token. "
    "[default: none]",
)
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="Shown to everybody; may be repeated.")
def run(
    settings: Settings,
    console: Console,
    words: tuple[str, ...],
    ttl: int,
    wait: int,
    owner: str | None,
    shared: bool,
    slots: int | None,
    kill_grace: int | None,
    grace: int,
    metadata: tuple[str, ...],
) -> None:
    """Run COMMAND while holding KEY, and release KEY when it ends. Several KEYs are held together.

    The lease is renewed as long as COMMAND runs. If it can't be kept, COMMAND and its process group get
    SIGTERM, and SIGKILL before anybody else can be granted KEY. Signals are passed on. COMMAND finds
    TENURE_KEY, TENURE_TOKEN and TENURE_LEASE_ID in its environment; TENURE_SLOT, the number of its permit,
    from 0; and of several keys those of the first, with TENURE_TOKENS, a JSON object of all.

    Exit codes: COMMAND's own; 128 + N if signal N ended it; 1 if KEY was not acquired; 3 if no node could
    be reached; 4 if COMMAND was stopped because the lease ended; 126 or 127 if it could not be started.
    """
    if shared and slots is not None:
        raise click.UsageError("--shared and --slots exclude each other")
    keys, program = _keys_and_program(words)
    if kill_grace is None:
        kill_grace = min(KILL_GRACE_MS_MAX, round(ttl * KILL_GRACE_OF_TTL))
    if kill_grace > ttl / 3:
        raise click.UsageError(
            "--kill-grace is more than a third of the TTL: one missed renewal would end all"
        )
    terms = {
        "ttl": ttl / 1000,
        "wait": wait / 1000,
        "owner": owner or default_owner(),
        "mode": "shared" if shared else "exclusive" if slots is None else "permit",
        "slots": slots,
        "grace": grace / 1000,
        "metadata": parse_metadata(metadata),
    }
    settings.keys = keys
    key = keys[0] if len(keys) == 1 else list(keys)
    work = _run(settings, console, key, list(program), terms, kill_grace_s=kill_grace / 1000)
    click.get_current_context().exit(asyncio.run(work))


def _keys_and_program(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is to be held, and what is to be run."""
    program: tuple[str, ...] = click.get_current_context().meta.get(PROGRAM, ())
    if not words:
        # `-- KEY COMMAND …`: for a key that begins with a dash.
        words, program = program[:1], program[1:]
        program = program[1:] if program[:1] == ("--",) else program
    if not program:
        words, program = words[:1], words[1:]
    if not words or not program:
        raise click.UsageError("give a KEY, and after -- the COMMAND to run")
    return words, program


async def _run(
    settings: Settings,
    console: Console,
    key: str | list[str],
    program: list[str],
    terms: dict[str, Any],
    *,
    kill_grace_s: float,
) -> int:
    from tenure._cli.supervise import LEASE_LOST, supervise

    def say(text: str) -> None:
        console.note(f"tenure: {text}")

    async with settings.client() as client:
        held = await _acquired(client.lease(key, **terms).acquire())
        if isinstance(held, int):
            return held
        code = await supervise(held, program, kill_grace_s=kill_grace_s, say=say)
        try:
            await held.release()
        except LeaseLost as lost:
            if code != LEASE_LOST:
                say(f"the command had ended, but {lost}")
            return LEASE_LOST
        except TenureError as error:
            say(f"the lease could not be released and ends by itself: {error}")
        return code


async def _acquired(acquiring: Any) -> Held | int:
    """The handle, or the exit code if a signal came meanwhile: then nothing is left behind."""
    task: asyncio.Future[Held] = asyncio.ensure_future(acquiring)
    loop = asyncio.get_running_loop()
    came: list[int] = []

    def give_up(number: int) -> None:
        came.append(number)
        task.cancel()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, give_up, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not came:
            raise
        return 128 + came[0]
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
