"""The JSON form of messages: a message is an array, and its struct has named fields. Pure.

Owns: the JSON form of a message. Bytes (keys) are base64. Attributes of nodes, which travel as
MessagePack elsewhere, are JSON values. The struct of a request accepts no other fields than its
own. It leaves out fields that have their defaults, because an older server may not know them.
"""

from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from dodona_wire.messages.base import Message
from dodona_wire.messages.catalog import CatalogRequest, CreateTable, ListTables
from dodona_wire.messages.data import GenerateTimestamps
from dodona_wire.messages.tree import CreateDirectory, NodeValue, SetNode
from dodona_wire.types import KEY_MIN

_REQUESTS: Final = frozenset((*get_args(CatalogRequest), GenerateTimestamps))

_defaults: Final[dict[tuple[type[Any], str], Any]] = {
    (CreateTable, "atomicity"): "full",
    (CreateTable, "pivot_keys"): (KEY_MIN,),
    (ListTables, "prefix"): "//",
}
"""Fields that a request written by hand may leave out."""

_packed: Final[dict[tuple[type[Any], str], Any]] = {
    (CreateTable, "attributes"): dict[str, Any],
    (CreateDirectory, "attributes"): dict[str, Any],
    (SetNode, "value"): Any,
    (NodeValue, "value"): Any,
}
"""Fields that hold MessagePack, and are JSON values here."""

_json_structs: Final[dict[type[Any], type[Any]]] = {}
_originals: Final[dict[type[Any], type[Any]]] = {}


def json_struct_of(message: type[Any]) -> type[Any]:
    """Return the struct from which JSON is made, and which its schema describes."""
    if message not in _json_structs:
        fields: list[Any] = []
        for field in msgspec.structs.fields(message):
            default = _defaults.get((message, field.name), field.default)
            if field.default_factory is not msgspec.NODEFAULT:
                default = msgspec.field(default_factory=field.default_factory)
            annotation = _packed.get((message, field.name)) or _json_annotation(field.type)
            if (message, field.name) in _packed and default is not msgspec.NODEFAULT:
                default = msgspec.field(default_factory=dict)
            required = default is msgspec.NODEFAULT
            fields.append((field.name, annotation, *(() if required else (default,))))
        is_request = message in _REQUESTS
        struct = msgspec.defstruct(
            message.__name__,
            fields,
            frozen=True,
            forbid_unknown_fields=is_request,
            omit_defaults=is_request,
        )
        struct.__doc__ = message.__doc__
        _json_structs[message] = struct
        _originals[struct] = message
    return _json_structs[message]


def _json_annotation(annotation: Any) -> Any:
    """Return the annotation with every message in it replaced by its struct."""
    if isinstance(annotation, type) and issubclass(annotation, Message):
        return json_struct_of(annotation)
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if not arguments or origin is None or not any(map(_mentions_message, arguments)):
        return annotation
    replaced = tuple(_json_annotation(argument) for argument in arguments)
    return Union[replaced] if origin in (Union, UnionType) else origin[replaced]  # noqa: UP007


def _mentions_message(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Message):
        return True
    return any(map(_mentions_message, get_args(annotation)))


def to_json_struct(value: Any) -> Any:
    """Return what JSON shows of a message."""
    if isinstance(value, Message):
        kind = type(value)
        names = value.__struct_fields__
        return json_struct_of(kind)(
            *[
                msgspec.msgpack.decode(getattr(value, name))
                if (kind, name) in _packed
                else to_json_struct(getattr(value, name))
                for name in names
            ]
        )
    if isinstance(value, tuple):
        return tuple(map(to_json_struct, value))
    return value


def from_json_struct(value: Any) -> Any:
    """Return the message that JSON showed."""
    original = _originals.get(type(value))
    if original is not None:
        names = original.__struct_fields__
        return original(
            *[
                msgspec.msgpack.encode(getattr(value, name))
                if (original, name) in _packed
                else from_json_struct(getattr(value, name))
                for name in names
            ]
        )
    if isinstance(value, tuple):
        return tuple(map(from_json_struct, value))
    return value
