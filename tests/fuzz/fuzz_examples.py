"""Values of any type of a schema, so that the seeds of a target have every type that there is, also those of
tomorrow."""

import typing
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect


def examples(kinds: Any, variants: int = 2) -> list[Any]:
    """So many values of each of these types, or of each of a union."""
    members: Iterable[Any] = typing.get_args(kinds) or (
        kinds if isinstance(kinds, (list, tuple)) else [kinds]
    )
    return [_example(inspect.type_info(kind), pick) for kind in members for pick in range(variants)]


def _example(info: inspect.Type, pick: int) -> Any:
    match info:
        case inspect.StructType():
            told = [field for field in info.fields if field.required or pick]
            return info.cls(**{field.name: _example(field.type, pick) for field in told})
        case inspect.Metadata():
            return _example(info.type, pick)
        case inspect.UnionType():
            return _example(info.types[pick % len(info.types)], pick)
        case inspect.LiteralType():
            return info.values[pick % len(info.values)]
        case inspect.IntType():
            return (info.ge or 0) + pick * 7
        case inspect.StrType():
            return "k" * max(info.min_length or 0, 1 + pick)
        case inspect.BytesType():
            return b"\0x"[: pick + 1]
        case inspect.BoolType():
            return pick % 2 == 1
        case inspect.FloatType():
            return 1.5
        case inspect.ListType():
            return [_example(info.item_type, pick)]
        case inspect.VarTupleType():
            return (_example(info.item_type, pick),)
        case inspect.TupleType():
            return tuple(_example(item, pick) for item in info.item_types)
        case inspect.DictType():
            return {_example(info.key_type, pick): _example(info.value_type, pick)}
        case inspect.RawType():
            return msgspec.Raw(b"\xc0")
        case inspect.NoneType() | inspect.AnyType():
            return None
        case _:
            raise TypeError(f"no example of {info}")
