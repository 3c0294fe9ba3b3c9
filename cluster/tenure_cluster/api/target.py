"""Request targets: from the bytes that came to a path, a key and query fields.

Keys are exact bytes and may hold ``/``, so paths are never normalised: ``a/../b``, ``a//b`` and ``a/`` are
keys of their own. Everything is percent-decoded exactly once. What cannot be decoded without guessing
(``%zz``, bytes that are not UTF-8, a fragment) is refused.
"""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

from tenure_cluster.api.limits import DETAIL_CHARS_MAX, QUERY_FIELDS_MAX
from tenure_cluster.api.problems import invalid
from tenure_cluster.service.errors import Problem

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"-?[0-9]{1,40}")


def split(target: str) -> tuple[str, str | None]:
    """(path, query) of a request target, as they came. The query is None if there is no ``?``."""
    if not target.startswith("/") and "://" in target:  # absolute form, as a proxy sends it
        authority = target.partition("://")[2]
        slash = authority.find("/")
        target = authority[slash:] if slash >= 0 else "/"
    path, mark, query = target.partition("?")
    return path, query if mark else None


def decode(text: str, field_path: str) -> str | Problem:
    """Percent-decode a part of a target once. ``text`` holds bytes that aren't UTF-8 as surrogate escapes."""
    if text.isascii() and "%" not in text and "#" not in text:
        return text
    if "#" in text:
        return invalid("A request target has no fragment; write # as %23", field_path)
    if _BAD_ESCAPE.search(text):
        return invalid("A % that is not followed by two hexadecimal digits; write % as %25", field_path)
    try:
        return unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeError:
        return invalid("Not UTF-8 after percent-decoding", field_path)


def query_fields(query: str, integers: frozenset[str]) -> dict[str, Any] | Problem:
    """The fields of a query by name; those named in ``integers`` become integers if they look like one.

    Refused: a field given twice, more than QUERY_FIELDS_MAX fields, and what ``decode`` refuses.
    """
    fields: dict[str, Any] = {}
    parts = query.split("&", QUERY_FIELDS_MAX)
    if len(parts) > QUERY_FIELDS_MAX:
        return invalid(f"The query has more than {QUERY_FIELDS_MAX} fields", "$")
    for part in parts:
        if not part:
            continue
        raw_name, _, raw_value = part.replace("+", " ").partition("=")
        name = decode(raw_name, "$")
        if isinstance(name, Problem):
            return name
        path = field_path("$", name)
        value = decode(raw_value, path)
        if isinstance(value, Problem):
            return value
        if name in fields:
            return invalid("The field is given twice", path)
        fields[name] = int(value) if name in integers and _INTEGER.fullmatch(value) else value
    return fields


def field_path(base: str, name: str) -> str:
    """Path of a field below ``base``; a name from outside is cut at DETAIL_CHARS_MAX."""
    return f"{base}.{name[:DETAIL_CHARS_MAX]}"
