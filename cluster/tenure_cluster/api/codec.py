"""Bodies: media types, decoding with the path of the fault, encoding.

JSON is decoded strictly: no NaN, no trailing text, no lone surrogates, no numbers for strings or the
reverse. If an object names a member twice the last one counts, which is what most parsers do; whoever
needs more sends MessagePack or does not repeat members. Unknown fields are refused by the types themselves.

Which content types are JSON
----------------------------
A newcomer's first call is ``curl -d '{…}'``, which says ``application/x-www-form-urlencoded``, and many
clients say nothing at all. Refusing those helps nobody, so both are read as JSON. A browser, however,
lets any web page send exactly these without asking first, and a server without credentials listens on the
loopback interface of somebody who browses. So a request that carries ``Origin`` or ``Sec-Fetch-Site``, which
pages cannot leave out, must say ``application/json`` or ``application/msgpack``: for those the browser asks
first, and is not answered.
"""

import re
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tenure_cluster.api.limits import DETAIL_CHARS_MAX
from tenure_cluster.api.problems import invalid
from tenure_cluster.api.target import field_path
from tenure_cluster.service.errors import Problem

Format: TypeAlias = Literal["json", "msgpack"]

CONTENT_TYPES: Final[dict[Format, bytes]] = {"json": b"application/json", "msgpack": b"application/msgpack"}
PROBLEM_TYPES: Final[dict[Format, bytes]] = {
    "json": b"application/problem+json",
    "msgpack": b"application/problem+msgpack",
}

_JSON_TYPES = frozenset({"application/json", "text/json"})
_MSGPACK_TYPES = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})
_UNSAID_TYPE = "application/x-www-form-urlencoded"
"""What curl says if it was told nothing."""

_json_encoder = msgspec.json.Encoder()
_msgpack_encoder = msgspec.msgpack.Encoder()
ENCODE: Final = {"json": _json_encoder.encode, "msgpack": _msgpack_encoder.encode}

_MEMOIZED_HEADERS_MAX: Final = 256


@lru_cache(_MEMOIZED_HEADERS_MAX)
def body_format(content_type: str, from_browser: bool) -> Format | None:
    """How a body with this ``Content-Type`` is read (empty string: none given); None if it is not."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in _JSON_TYPES or (media_type.startswith("application/") and media_type.endswith("+json")):
        return "json"
    if media_type in _MSGPACK_TYPES:
        return "msgpack"
    if not from_browser and (content_type == "" or media_type == _UNSAID_TYPE):
        return "json"
    return None


@lru_cache(_MEMOIZED_HEADERS_MAX)
def answer_format(accept: str, content_type: str) -> Format:
    """MessagePack if ``Accept`` prefers it to JSON, or says nothing of either and the body was MessagePack.

    An ``Accept`` that names neither is answered in JSON all the same: a body helps more than a 406.
    """
    qualities = {"json": -1.0, "msgpack": -1.0}
    for part in accept.lower().split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((_quality(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        if media_type in _MSGPACK_TYPES or media_type == "application/problem+msgpack":
            qualities["msgpack"] = max(qualities["msgpack"], quality)
        elif media_type in _JSON_TYPES or media_type == "application/problem+json":
            qualities["json"] = max(qualities["json"], quality)
    if qualities["msgpack"] == qualities["json"] == -1.0:
        return "msgpack" if body_format(content_type, False) == "msgpack" else "json"
    return "msgpack" if qualities["msgpack"] > max(qualities["json"], 0.0) else "json"


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


class Decoders:
    """The decoders of one type of body, one for each format."""

    __slots__ = ("_json", "_msgpack")

    def __init__(self, body_type: Any) -> None:
        self._json = msgspec.json.Decoder(body_type)
        self._msgpack = msgspec.msgpack.Decoder(body_type)

    def decode(self, body: bytes, body_format: Format) -> Any | Problem:
        try:
            return self._json.decode(body) if body_format == "json" else self._msgpack.decode(body)
        except msgspec.ValidationError as error:
            return fault(str(error))
        except msgspec.DecodeError as error:
            if not body:
                return invalid("The body is empty", "$")
            name = "JSON" if body_format == "json" else "MessagePack"
            return invalid(f"The body is not {name}: {_cut(str(error))}", "$")
        except RecursionError:
            return invalid("The body is nested too deeply", "$")


_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)


def fault(message: str) -> Problem:
    """The problem for a message of msgspec's validation, whose path is moved into ``path``.

    A field that is unknown or missing is named by its own path, not by that of the object around it.
    """
    what, at, where = message.rpartition(" - at `")
    if at:
        path = where.rstrip("`").rpartition("`")[
            2
        ]  # "$.ops[3].key", or the last part of "key` in `$.metadata"
    else:
        what, path = message, "$"
    field = _FIELD.fullmatch(what)
    if field is not None:
        path = field_path(path, field["name"])
    return invalid(_cut(what), _cut(path))


def _cut(text: str) -> str:
    return text if len(text) <= DETAIL_CHARS_MAX else text[:DETAIL_CHARS_MAX] + "…"
