"""MessagePack for what nodes send one another and what the journal keeps: plain data, bounded, no pickle.

Only None, booleans, integers, floats, bytes, strings, tuples and dictionaries with string or bytes keys come
out of :func:`unpack`; arrays are tuples. Extension types (timestamps among them) are refused. Which *shapes*
are allowed is for the reader of a message to say; what stands here is that bytes from elsewhere can neither
run code nor claim much more memory than they occupy.
"""

from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

ITEMS_MAX: Final = 16_384
"""Most items that one array or map may have, unless the caller says otherwise. The decoder reserves room for
an array as soon as it reads its length, so this bounds what a small message of nested arrays can claim."""


class Malformed(Exception):
    """The bytes are not one value of plain MessagePack within the bounds."""


def pack(value: object) -> bytes:
    """Encode plain data. Tuples and lists both become arrays.

    Raises TypeError, ValueError or OverflowError for a value that is not plain data: a bug of the caller.
    """
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(data: bytes, *, bytes_max: int, items_max: int = ITEMS_MAX) -> Any:
    """Decode exactly one value, arrays as tuples. Raises :class:`Malformed`, whatever the bytes are."""
    if len(data) > bytes_max:
        raise Malformed(f"{len(data)} bytes, at most {bytes_max} are accepted")
    try:
        return msgpack.unpackb(
            data,
            use_list=False,
            max_array_len=items_max,
            max_map_len=items_max,
            max_ext_len=0,
            ext_hook=_refuse_extension,
        )
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise Malformed(f"not plain MessagePack: {error or type(error).__name__}") from error


def _refuse_extension(code: int, data: bytes) -> None:
    raise ValueError(f"an extension of type {code}")
