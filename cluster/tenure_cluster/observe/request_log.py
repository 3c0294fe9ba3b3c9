"""Lines about single requests: all of them, those that the server failed, or none.

A failed request is one that was answered with 5xx. Of those at most `FAILED_PER_S_MAX` are written in a
second, since they come in crowds: a node without a leader refuses everything. What was left out is counted in
the next line. A path is not written: it may hold a session's id, which is a right to use it.
"""

import logging
from collections.abc import Callable
from typing import Final, Literal

from tenure_cluster.observe.request_lines import EVENT, LOGGER, request_lines

FAILED_PER_S_MAX: Final = 10
SERVER_ERROR: Final = 500

_log = logging.getLogger(LOGGER)


class RequestLog:
    """Decides what is worth a line and writes it."""

    def __init__(self, which: Literal["failed", "all"], monotonic: Callable[[], float]) -> None:
        self.all = which == "all"
        self._monotonic = monotonic
        self._second = 0
        self._written = 0
        self._left_out = 0
        self._lines = request_lines() if self.all else None

    def now_s(self) -> float:
        """For `started_s`."""
        return self._monotonic()

    def note(
        self,
        method: str,
        operation: Callable[[], str],
        status: int,
        request_id: bytes,
        started_s: float | None,
    ) -> None:
        """A request was answered. `operation` names it, asked only for what is written."""
        if status < SERVER_ERROR:
            if self._lines is not None and started_s is not None:
                took_ms = round((self._monotonic() - started_s) * 1000, 1)
                self._lines.add(request_id.decode(), method, operation(), status, took_ms)
            elif self.all:
                self._write(logging.INFO, method, operation(), status, request_id, started_s)
            return
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._written = second, 0
        if self._written >= FAILED_PER_S_MAX and not self.all:
            self._left_out += 1
            return
        self._written += 1
        self._write(logging.WARNING, method, operation(), status, request_id, started_s)

    def _write(
        self,
        level: int,
        method: str,
        operation: str,
        status: int,
        request_id: bytes,
        started_s: float | None,
    ) -> None:
        fields: dict[str, object] = {
            "request_id": request_id.decode(),
            "method": method,
            "operation": operation,
            "status": status,
        }
        if started_s is not None:
            fields["took_ms"] = round((self._monotonic() - started_s) * 1000, 1)
        if self._left_out:
            fields["left_out"], self._left_out = self._left_out, 0
        _log.log(level, EVENT, extra=fields)
