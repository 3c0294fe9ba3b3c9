"""The trace of the caller, told to the nodes as W3C Trace Context has it.

Only where the program itself uses OpenTelemetry: without its API in the process no span can be active, and
nothing is loaded to find that out. A node that traces requests makes its spans a part of the caller's trace.

Renewals are never traced: they are made for all leases of a client together, behind whatever happened to be
active when the first was granted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

_UNTRACED: Final = frozenset({"renew"})


def is_traced(operation: str) -> bool:
    """Whether a call is part of a trace that is recorded."""
    current_span = _current_span()
    if current_span is None or operation in _UNTRACED:
        return False
    span = current_span()
    return bool(span.is_recording() and span.get_span_context().trace_flags.sampled)


def trace_headers(operation: str) -> dict[str, str]:
    """What to send with a call. Empty where no span is active."""
    current_span = _current_span()
    if current_span is None or operation in _UNTRACED:
        return {}
    span = current_span()
    context = span.get_span_context()
    # Of a sampled span that records nothing any more, the work is over.
    if not context.is_valid or (context.trace_flags.sampled and not span.is_recording()):
        return {}
    headers = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    if state := context.trace_state.to_header():
        headers["tracestate"] = state
    return headers


def _current_span() -> Callable[[], Any] | None:
    """The API's function, if the API is loaded; another thread may be loading it at this moment."""
    return getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
