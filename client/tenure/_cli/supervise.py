"""A command that runs under a lease, and does not outlive it.

Theory of operation. The command gets a process group of its own, so that all of it can be stopped. What
counts is the handle's own validity, looked at again and again:

    kill grace before V    SIGTERM to the group: it may still bring its work to an end
    KILL_BEFORE_V_S        before V: SIGKILL. From V on somebody else may be granted the key.
    lost for another       SIGTERM at once, SIGKILL after the kill grace, or before V if that is sooner:
    reason (broken …)      the key may be somebody else's already

A renewal that is answered after SIGTERM was sent changes nothing: the command has been told to end. When the
command ends by itself, what it left in its group is ended, too, before the lease is released: stop acting
first. If this process is killed, the kernel kills the command (Linux).

A group of its own is a background group for the terminal, which must neither be read nor be interrupted by
Ctrl-C from there. So where this process is in the foreground, the command is put there in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from tenure.aio import Held

KILL_BEFORE_V_S: Final = 0.1
LOOK_S: Final = 0.5
"""Longest sleep: the loop's clock stands still while the machine is suspended."""
STRAGGLERS_LOOK_S: Final = 0.02

LEASE_LOST: Final = 4
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127

PASSED_ON: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
    if hasattr(signal, name)
)

_PR_SET_PDEATHSIG: Final = 1


async def supervise(
    held: Held, command: Sequence[str], *, kill_grace_s: float, say: Callable[[str], None]
) -> int:
    """Run the command under the lease. Returns its exit code, or 4 if it had to be stopped because the lease
    ended; the command and its group have ended then. Does not release."""
    environment = {**os.environ, **told_to_command(held)}
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, process_group=0, preexec_fn=_die_with_parent()
        )
    except FileNotFoundError:
        say(f"{command[0]}: command not found")
        return NOT_FOUND
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        return NOT_EXECUTABLE
    group = Group(process.pid)
    with group.in_foreground(), group.gets_our_signals():
        stopped = await _until_ended(held, process, group, kill_grace_s, say)
    await group.end(min(kill_grace_s, max(0.0, held.expires_in - KILL_BEFORE_V_S)))
    if stopped:
        return LEASE_LOST
    code = process.returncode or 0
    return 128 - code if code < 0 else code


def told_to_command(held: Held) -> dict[str, str]:
    """What the command finds in its environment."""
    told = {"TENURE_KEY": held.key, "TENURE_TOKEN": str(held.token), "TENURE_LEASE_ID": held.lease_id}
    if held.grants[0].mode == "permit":
        told["TENURE_SLOT"] = str(held.slot)
    if len(held.grants) > 1:
        told["TENURE_TOKENS"] = json.dumps(held.tokens)
    return told


async def _until_ended(
    held: Held,
    process: asyncio.subprocess.Process,
    group: Group,
    kill_grace_s: float,
    say: Callable[[str], None],
) -> bool:
    """Until the command has ended; true if it was told to, because of the lease."""
    ending = asyncio.ensure_future(process.wait())
    losing = asyncio.ensure_future(held.lost.wait())
    loop = asyncio.get_running_loop()
    told_at: float | None = None
    try:
        while not ending.done():
            step, wait_s = next_step(
                left_s=held.expires_in if held.is_held else None,
                expired=held.lost_reason == "expired",
                told_s_ago=None if told_at is None else loop.time() - told_at,
                kill_grace_s=kill_grace_s,
            )
            if step == "terminate":
                told_at = loop.time()
                why = "can't be kept any longer" if held.is_held else f"is lost ({held.lost_reason})"
                say(f"the lease on {held.key!r} {why}; stopping the command")
                group.signal(signal.SIGTERM)
            elif step == "kill":
                group.signal(signal.SIGKILL)
                await ending
            else:
                waits = {ending} if losing.done() else {ending, losing}
                timeout_s = min(wait_s, LOOK_S)
                await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        losing.cancel()
        if not ending.done():
            group.signal(signal.SIGKILL)
            await asyncio.shield(ending)
    return told_at is not None


def next_step(
    *, left_s: float | None, expired: bool, told_s_ago: float | None, kill_grace_s: float
) -> tuple[Literal["wait", "terminate", "kill"], float]:
    """What to do now, and for how many seconds nothing. ``left_s`` is the validity left, None once the lease
    is lost; ``told_s_ago`` when SIGTERM was sent."""
    if told_s_ago is None:
        if left_s is None or left_s <= kill_grace_s:
            return "terminate", 0.0
        return "wait", left_s - kill_grace_s
    until_kill_s = 0.0 if expired else kill_grace_s - told_s_ago
    if left_s is not None:
        until_kill_s = min(until_kill_s, left_s - KILL_BEFORE_V_S)
    return ("wait", until_kill_s) if until_kill_s > 0 else ("kill", 0.0)


class Group:
    """The process group of a command."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def signal(self, number: int) -> bool:
        """Send it to all; false if nobody is left."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # one of them runs as somebody else by now
        return True

    async def end(self, grace_s: float) -> None:
        """End what the command has left behind: by SIGTERM, and after ``grace_s`` by SIGKILL."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        if not self.signal(signal.SIGTERM):
            return
        while self.signal(0) and loop.time() < until:  # noqa: ASYNC110 -- nobody tells of their end
            await asyncio.sleep(STRAGGLERS_LOOK_S)
        self.signal(signal.SIGKILL)

    @contextlib.contextmanager
    def gets_our_signals(self) -> Iterator[None]:
        """What is sent to this process is passed on."""
        loop = asyncio.get_running_loop()
        for number in PASSED_ON:
            loop.add_signal_handler(number, self.signal, number)
        try:
            yield
        finally:
            for number in PASSED_ON:
                loop.remove_signal_handler(number)

    @contextlib.contextmanager
    def in_foreground(self) -> Iterator[None]:
        """The terminal, if this process has it, is the command's."""
        try:
            terminal = sys.stdin.fileno()
            ours = os.getpgrp()
            mine = os.tcgetpgrp(terminal) == ours
        except (OSError, ValueError, AttributeError):
            mine = False
        if not mine:
            yield
            return
        # Whoever takes the terminal from the background is stopped by SIGTTOU unless it is ignored.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(terminal, self.pid)
                # It may have been stopped for reading before the terminal was its own.
                self.signal(signal.SIGCONT)
            yield
        finally:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(terminal, ours)
            signal.signal(signal.SIGTTOU, before)


def _die_with_parent() -> Callable[[], None] | None:
    """What the child calls before it becomes the command; None where there is no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    parent = os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(NOT_EXECUTABLE)

    return before_exec
