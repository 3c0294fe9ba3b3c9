"""Which request the code that runs works for: what ties its log lines and its spans together.

Context variables: the HTTP front sets them where a request comes in, a leader where another node hands an
operation on, and tasks and callbacks that are made meanwhile inherit them. The rounds of consensus work for
many requests at once, and so for none of them (raft/pump.py). Costs next to nothing where nobody looks.
"""

from contextvars import ContextVar
from typing import Final

REQUEST_ID: Final[ContextVar[bytes]] = ContextVar("tenure_request_id", default=b"")
"""What the caller got, or gets, as X-Request-Id; empty outside of requests."""

SPAN: Final[ContextVar[object]] = ContextVar("tenure_span", default=None)
"""The span that what is done now belongs to, a tracing.Parent; None where nothing is traced."""
