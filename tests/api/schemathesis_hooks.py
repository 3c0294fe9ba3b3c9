"""What Schemathesis has to know beyond the document: MessagePack, and values that get past the first checks.

Loaded by the command line tool from SCHEMATHESIS_HOOKS.
"""

import unicodedata
from typing import Any

import msgspec
import schemathesis

NOT_MESSAGEPACK = b"\xc1"


@schemathesis.serializer("application/msgpack")
def to_messagepack(context: schemathesis.SerializationContext, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, TypeError, UnicodeEncodeError):  # JSON can say it, MessagePack can't
        return NOT_MESSAGEPACK


@schemathesis.deserializer("application/msgpack", "application/problem+msgpack")
def from_messagepack(context: schemathesis.DeserializationContext, response: schemathesis.Response) -> Any:
    return msgspec.msgpack.decode(response.content)


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    """Bring most bodies to where they reach the state machine, and let no acquire wait for long.

    Only values that the schema allows are replaced, and only by others that it allows: the bounds of a TTL
    are a setting, control characters in keys are refused, and slots go with permits alone.
    """
    if not isinstance(body, dict):
        return body
    wait_ms, ttl_ms, keys = body.get("wait_ms"), body.get("ttl_ms"), body.get("keys")
    if type(wait_ms) is int and wait_ms > 100:
        body["wait_ms"] = wait_ms % 100
    if type(ttl_ms) is int and ttl_ms > 0 and ttl_ms % 4:
        body["ttl_ms"] = 3_000 + ttl_ms % 60_000
    progress = body.get("progress")
    if isinstance(progress, dict):
        body["progress"] = {name: _printable(value) for name, value in progress.items()}
    if isinstance(body.get("owner"), str) and len(body["owner"]) % 4:
        body = {name: _printable(value) for name, value in body.items()}
        slots = body.get("slots")
        if slots is None or (type(slots) is int and 1 <= slots <= 1_000):
            body.pop("slots", None)
            if body.get("mode") == "permit":
                body["slots"] = 2
        if isinstance(keys, list) and all(type(key) is str for key in keys) and len(set(keys)) == len(keys):
            body["keys"] = list(dict.fromkeys(_printable(key) for key in keys[:3]))
    return body


def _printable(value: Any) -> Any:
    """Text with its control characters replaced; anything else as it is."""
    if not isinstance(value, str):
        return value
    return "".join("_" if unicodedata.category(character)[0] == "C" else character for character in value)
