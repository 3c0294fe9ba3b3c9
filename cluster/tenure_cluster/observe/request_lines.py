"""The lines of requests that went well, where all have one: as many as there are requests, so they must not
cost what a request costs.

A record that goes through the standard library's loggers and structlog's processors takes a good part of the
time of an acquire. These lines have few fields, always the same, so each is encoded by itself, and those of
a moment are written together. They keep their place among the other lines.
"""

import asyncio
import contextlib
import datetime as dt
import logging
from collections import deque
from typing import Final, TextIO

import msgspec

LOGGER: Final = "tenure.requests"
EVENT: Final = "answered"

WRITE_AFTER_S: Final = 0.05
"""How long a line may wait for others. A process that is killed takes those that wait with it."""

WAITING_MAX: Final = 500
"""Lines that wait; one more, and they are written."""


class RequestLine(msgspec.Struct):
    """As the processors of logs.py have it."""

    event: str
    level: str
    logger: str
    request_id: str
    method: str
    operation: str
    status: int
    took_ms: float
    timestamp: str


class JsonHandler(logging.StreamHandler[TextIO]):
    """Writes records, and lines of requests between them. A log that can't be written harms nobody."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._encode = msgspec.json.Encoder().encode

    def add(self, request_id: str, method: str, operation: str, status: int, took_ms: float) -> None:
        """A request was answered. Belongs to the event loop; without one it is written at once."""
        timestamp = dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
        line = RequestLine(EVENT, "info", LOGGER, request_id, method, operation, status, took_ms, timestamp)
        self._waiting.append(self._encode(line))
        if len(self._waiting) >= WAITING_MAX:
            self.flush()
        elif self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(WRITE_AFTER_S, self._due)
            except RuntimeError:
                self.flush()

    def _due(self) -> None:
        self._timer = None
        self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        self._write()
        super().emit(record)

    def flush(self) -> None:
        self._write()
        with contextlib.suppress(OSError, ValueError):
            super().flush()

    def _write(self) -> None:
        if not self._waiting:
            return
        with self.lock or contextlib.nullcontext(), contextlib.suppress(OSError, ValueError):
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            self.stream.write(b"\n".join((*lines, b"")).decode())


def request_lines() -> JsonHandler | None:
    """Where this process writes such lines; None if they go the way of all others, or nowhere."""
    if not logging.getLogger(LOGGER).isEnabledFor(logging.INFO):
        return None
    handlers = logging.getLogger().handlers
    return next((handler for handler in handlers if isinstance(handler, JsonHandler)), None)
