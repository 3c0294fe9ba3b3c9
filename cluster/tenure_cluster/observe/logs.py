"""Structured logs on standard error: lines for people, or one JSON object a line.

Everything goes through the standard library's loggers, so that what aiohttp and the interpreter have to say
comes out in the same form. What a record carries in FIELDS stands beside its message, in JSON as members.
"""

import logging
import sys
from typing import Final, Literal, TextIO

import structlog
from structlog.typing import EventDict

from tenure_cluster.observe.request_context import REQUEST_ID
from tenure_cluster.observe.request_lines import JsonHandler

Format = Literal["text", "json"]

FIELDS: Final = ("request_id", "method", "operation", "status", "took_ms", "left_out")
"""Of a line about a request; see request_log.py. `left_out`: failed requests since the last line that have
none."""


def _of_request(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Whatever is written while a request is worked for has its id."""
    if request_id := REQUEST_ID.get():
        line.setdefault("request_id", request_id.decode("ascii", "backslashreplace"))
    return line


def configure(level: str, form: Format, stream: TextIO | None = None) -> None:
    """Set up logging for the whole process: `level` and above, to `stream` (standard error)."""
    stream = sys.stderr if stream is None else stream
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(FIELDS),
        _of_request,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    last: list[structlog.typing.Processor]
    if form == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # Plain: a traceback with the values of variables would show lease ids to whoever reads the log.
        plain = structlog.dev.plain_traceback
        last = [
            structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=0, exception_formatter=plain)
        ]
    handler = JsonHandler(stream) if form == "json" else logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
