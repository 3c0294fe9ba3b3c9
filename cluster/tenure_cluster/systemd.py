"""What systemd is told of the process: that it has started, how it is, that it lives, that it stops.

The protocol is sd_notify(3): datagrams of NAME=VALUE lines to the socket that NOTIFY_SOCKET names. Without
it nothing is sent. The sign of life comes from the event loop, at half of the period that WATCHDOG_USEC
gives, so a loop that hangs is ended and started anew; a node that is merely without a leader is alive.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

from tenure_cluster.service.leadership import Leadership


class Systemd:
    """The line to the service manager. Nothing that is sent can fail or block the node."""

    def __init__(self, environ: Mapping[str, str], pid: int | None = None) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract address.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._period_s = _watchdog_period_s(environ, os.getpid() if pid is None else pid)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def present(self) -> bool:
        """Whether systemd has started this process. It takes an end by SIGHUP for one that was meant, and
        does not start the process again."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """The node takes part and its front is open. From now on the event loop gives signs of life."""
        self._send(f"READY=1\nSTATUS={status}")
        if self._address and self._period_s:
            self._beat()

    def follow(self, leadership: Leadership) -> None:
        """The node has started: say so, and from now on what it is."""
        leadership.listeners.append(lambda: self.status(f"{leadership.role}, term {leadership.term}"))
        self.ready(f"{leadership.role}, term {leadership.term}")

    def status(self, status: str) -> None:
        """One line about how it is, for `systemctl status`."""
        self._send(f"STATUS={status}")

    def stopping(self) -> None:
        """The node stops; signs of life go on until it has."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self._period_s / 2, self._beat)

    def _send(self, lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)
            line.sendto(lines.encode(), self._address)


def _watchdog_period_s(environ: Mapping[str, str], pid: int) -> float:
    """0 if this process is not watched."""
    period, watched = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    return int(period) / 1e6 if period.isascii() and period.isdigit() and watched == str(pid) else 0.0
