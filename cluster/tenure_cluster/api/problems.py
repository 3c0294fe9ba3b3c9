"""Problems on the wire: RFC 9457 documents with our ``code``."""

import math
from typing import Any, Final

from tenure_cluster.service.errors import CODES, Problem

TYPE_PREFIX: Final = "urn:tenure:problem:"

_RETRY_STATUSES: Final = frozenset({429, 503})
_RETRY_AFTER_S: Final = 1.0
"""The hint where the service gave none."""


def document(problem: Problem) -> dict[str, Any]:
    """The members of the problem document."""
    status, title = CODES[problem.code]
    standard = {
        "type": TYPE_PREFIX + problem.code,
        "title": title,
        "status": status,
        "detail": problem.detail,
        "code": problem.code,
    }
    return {**standard, **problem.extra, **standard} if problem.extra else standard


def retry_after_s(problem: Problem) -> float | None:
    """How long to wait before asking again, if the problem is of that kind."""
    if problem.retry_after_s is None and problem.status in _RETRY_STATUSES:
        return _RETRY_AFTER_S
    return problem.retry_after_s


def headers(problem: Problem) -> bytes:
    """The header lines that belong to the problem: ``Retry-After``, in whole seconds and never 0."""
    wait_s = retry_after_s(problem)
    return b"" if wait_s is None else b"Retry-After: %d\r\n" % max(1, math.ceil(wait_s))


def invalid(detail: str, path: str) -> Problem:
    """The request is malformed at ``path``: ``$`` for the whole, ``$.field`` for a field of body or query."""
    return Problem("invalid", detail, {"path": path})


def schema() -> dict[str, Any]:
    """JSON Schema of a problem document."""
    return {
        "title": "Problem",
        "description": "RFC 9457 problem document. `code` is what programs should look at.",
        "type": "object",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": {"type": "string", "format": "uri", "examples": [TYPE_PREFIX + "held"]},
            "title": {"type": "string", "description": "The same for every problem of a code."},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "What went wrong this time, in one sentence."},
            "code": {"type": "string", "enum": sorted(CODES)},
            "path": {
                "type": "string",
                "description": "Where the fault is, in the body or query: `$.ttl_ms`, `$.ops[3].key`.",
            },
            "holder": {
                "anyOf": [{"$ref": "#/components/schemas/HolderBody"}, {"type": "null"}],
                "description": "Who holds the key.",
            },
            "reason": {"type": "string", "description": "Why the lease is over."},
        },
    }
