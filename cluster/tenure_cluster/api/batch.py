"""Batches: many operations in one body, their answers in one answer.

An operation in a batch is the body of its single call with ``op`` beside it. Its result is what the
single call would have answered, flattened: ``status`` is the HTTP status, as it is in a problem document
anyway, and stands beside the members of the body. Answers that carry a word of their own in
``status`` (``granted``, ``released``, ``accepted`` …) have it under ``result``::

    {"results": [{"status": 200, "result": "granted", "lease": {…}},
                 {"status": 410, "code": "lost", "reason": "expired", …}]}

The types of both sides are derived from the types of the single calls, so they cannot fall apart.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, Union

import msgspec

from tenure_cluster.api.limits import OPS_PER_BATCH_MAX
from tenure_cluster.api.problems import document
from tenure_cluster.service import replies, requests
from tenure_cluster.service.errors import Problem
from tenure_cluster.service.replies import Reply
from tenure_cluster.service.requests import Request


def _operation_type(name: str) -> type[msgspec.Struct]:
    body = requests.OPERATIONS[name]
    return msgspec.defstruct(
        body.__name__.removesuffix("Request") + "Operation",
        [],
        bases=(body,),
        namespace={"__doc__": body.__doc__ if "__doc__" in vars(body) else None},
        tag_field="op",
        tag=name,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


OPERATION_TYPES: Final = {name: _operation_type(name) for name in sorted(requests.BATCH_OPERATIONS)}
"""The operations that a batch may hold, each with its ``op``."""

_names: Final = {operation_type: name for name, operation_type in OPERATION_TYPES.items()}

BatchBody: Final = msgspec.defstruct(
    "BatchRequest",
    [("ops", list[Union[tuple(OPERATION_TYPES.values())]])],  # type: ignore[misc]  # noqa: UP007
    namespace={
        "__doc__": f"Up to {OPS_PER_BATCH_MAX:,} operations, each the body of its call with `op` beside it."
    },
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)
"""The body of a batch, decoded in one pass: the path of a fault names the operation."""


def operations(body: Any) -> list[tuple[str, Request]] | Problem:
    """The operations of a decoded BatchBody, by name and as plain requests of the service."""
    if len(body.ops) > OPS_PER_BATCH_MAX:
        return Problem(
            "out_of_range",
            f"A batch holds at most {OPS_PER_BATCH_MAX} operations; this one has {len(body.ops)}",
            {"path": "$.ops", "max": OPS_PER_BATCH_MAX},
        )
    return [(name := _names[type(op)], _plain(op, requests.OPERATIONS[name])) for op in body.ops]


def _plain(operation: msgspec.Struct, body_type: type[msgspec.Struct]) -> Any:
    return msgspec.convert(operation, body_type, from_attributes=True)


def _result_type(
    reply: type[msgspec.Struct], status: int
) -> tuple[type[msgspec.Struct], Callable[[Any], Any]]:
    """The flattened type of a reply, and how to make one of (HTTP status, reply)."""
    fields = msgspec.structs.fields(reply)
    named = [
        ("result" if field.name == "status" else field.name, field.type, field.default) for field in fields
    ]
    result = msgspec.defstruct(
        reply.__name__.removesuffix("Reply") + "Result",
        [
            ("status", int),
            *(
                (name, kind) if default is not msgspec.UNSET else (name, kind, default)
                for name, kind, default in named
            ),
        ],
        frozen=True,
    )
    members = attrgetter(*(field.name for field in fields))
    if len(fields) == 1:
        return result, lambda answer: result(status, members(answer))
    return result, lambda answer: result(status, *members(answer))


_REPLIES: Final[dict[type[msgspec.Struct], int]] = {
    replies.GrantedReply: 200,
    replies.WaitingReply: 202,
    replies.RenewedReply: 200,
    replies.SessionReply: 200,
    replies.ReleasedReply: 200,
    replies.HandedOverReply: 200,
    replies.ParkedReply: 200,
    replies.UnparkedReply: 200,
    replies.AbandonedReply: 200,
    replies.BrokenReply: 200,
    replies.ResizedReply: 200,
    replies.ValidateReply: 200,
    replies.AcceptedReply: 200,
}
"""What the operations of a batch can answer, with the HTTP status. None of them waits, but an acquire whose
request is queued already is answered with its place."""

_results: Final = {reply: _result_type(reply, status) for reply, status in _REPLIES.items()}

RESULT_TYPES: Final = tuple(result for result, _ in _results.values())


def results(answers: list[Reply | Problem]) -> dict[str, list[Any]]:
    """The body of a batch's answer."""
    return {
        "results": [
            _refused(position, answer) if isinstance(answer, Problem) else _results[type(answer)][1](answer)
            for position, answer in enumerate(answers)
        ]
    }


def _refused(position: int, problem: Problem) -> dict[str, Any]:
    """The problem document of one operation; the path of a fault starts at the batch's own body."""
    result = document(problem)
    path = result.get("path")
    if isinstance(path, str) and not path.startswith("$.ops"):
        result["path"] = f"$.ops[{position}]{path[1:]}"
    return result
