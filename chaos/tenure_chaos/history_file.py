"""A history as a file of JSON lines: first a header, then one record a line.

    {"format": "tenure-chaos history", "version": 1, "complete": true, "duration_s": 63.2, …}
    {"record": "call", "number": 0, "client": "c1", …}
    {"record": "effect", "index": 3, …}

A field that has its default is left out, so a field added later does not make old files unreadable. Bytes
are written as ``{"$bytes": base64}``.
"""

import base64
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure_chaos.history import (
    AppliedEntry,
    Belief,
    CallRecord,
    Effect,
    Elected,
    Fault,
    History,
    NodeState,
    RaftState,
    RegisterWrite,
    Watch,
    Watched,
)

FORMAT: Final = "tenure-chaos history"
VERSION: Final = 1

RECORDS: Final[dict[str, tuple[str, Any]]] = {
    "call": ("calls", CallRecord),
    "effect": ("effects", Effect),
    "fault": ("faults", Fault),
    "belief": ("beliefs", Belief),
    "write": ("writes", RegisterWrite),
    "watch": ("watches", Watch),
    "watched": ("watched", Watched),
    "elected": ("elected", Elected),
    "raft": ("raft", RaftState),
    "applied": ("applied", AppliedEntry),
    "digest": ("digests", tuple[str, int, str]),
    "final": ("final", NodeState),
}
"""kind of a line -> (list of the history, type of its items)"""

_LISTS: Final = frozenset(name for name, _ in RECORDS.values())


class Unreadable(Exception):
    """The file is not a history. The message names the file and the line."""


def save(history: History, path: Path) -> None:
    """Write the history. The file is complete or, if this raises, not there under that name."""
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("w") as file:
        for line in _lines(history):
            file.write(json.dumps(line, default=_plain, allow_nan=False, separators=(",", ":")) + "\n")
    unfinished.replace(path)


def _lines(history: History) -> Iterator[dict[str, Any]]:
    yield {"format": FORMAT, "version": VERSION, **_fields(history)}
    for kind, (name, _) in RECORDS.items():
        for item in getattr(history, name):
            yield {"record": kind, **({"is": item} if isinstance(item, tuple) else _fields(item))}


def _fields(item: Any) -> dict[str, Any]:
    said = {}
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if field.default_factory is not dataclasses.MISSING:
            left_out = value == field.default_factory() or field.name in _LISTS
        else:
            left_out = value == field.default
        if not left_out:
            said[field.name] = value
    return said


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    raise TypeError(f"a history holds no {type(value).__name__}")


def _restored(value: dict[str, Any]) -> Any:
    if value.keys() == {"$bytes"}:
        return base64.b64decode(value["$bytes"])
    return value


def load(path: Path) -> History:
    """Read a history. Raises Unreadable."""
    number = 1
    try:
        with path.open() as file:
            history = _header(json.loads(file.readline(), object_hook=_restored))
            for line in file:
                number += 1
                _add(history, json.loads(line, object_hook=_restored))
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise Unreadable(f"{path}:{number}: not JSON: {error.msg}") from error
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise Unreadable(f"{path}:{number}: {error}") from error
    return history


def _header(said: Any) -> History:
    if not isinstance(said, dict) or said.pop("format", None) != FORMAT:
        raise ValueError(f"not a {FORMAT}")
    if (version := said.pop("version", None)) != VERSION:
        raise ValueError(f"version {version} of the format; this program reads version {VERSION}")
    return msgspec.convert(said, History, strict=False)


def _add(history: History, said: Any) -> None:
    kind = said.pop("record", None) if isinstance(said, dict) else None
    if kind not in RECORDS:
        raise ValueError(f"no record of a known kind: {kind!r}")
    name, item_type = RECORDS[kind]
    getattr(history, name).append(msgspec.convert(said.get("is", said), item_type))
