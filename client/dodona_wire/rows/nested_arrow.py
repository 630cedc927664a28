"""Columns of nested types: from Arrow lists, structs and maps to stored values, and back.

Owns: the Arrow types of nested types, and how their columns are taken apart. All values of one part
are in one array, row after row. So each part is converted and checked as a column by itself, by the
functions that the caller passes. Only MessagePack is written
and read row by row, by msgspec.
Invariant: what a cell accepts is exactly what msgspec writes for the value. So one value has one
stored form, and no name of a map comes twice.
pyarrow and numpy are imported on first use: the light client works without them.
"""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import msgspec

from dodona_wire.rows.column_kinds import LogicalType, Member
from dodona_wire.rows.type_names import DICT, LIST

TypeOf = Callable[[LogicalType], Any]
MakeArray = Callable[[LogicalType, Sequence[Any]], Any]
"""Makes an array of stored values of one type, some of them None."""
ReadArray = Callable[[LogicalType, Any], list[Any]]
"""Returns the stored values of an array, with None for null."""
CheckArray = Callable[[LogicalType, Sequence[Any]], None]
"""Checks stored values of one type, some of them None. Raises SchemaViolation."""

_PYTHON: Final[dict[str, type]] = {
    "int64": int,
    "uint64": int,
    "double": float,
    "boolean": bool,
    "string": bytes,
    "utf8": str,
}
_EMPTY: Final[dict[str, Any]] = {
    "int64": 0,
    "uint64": 0,
    "double": 0.0,
    "boolean": False,
    "utf8": "",
    "any": "",
    "list": [],
    "struct": {},
    "dict": [],
}
_ARRAY_HEAD: Final = b"\xdd"
"""MessagePack: the head of an array, before the number of its items in 4 bytes."""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


def nested_arrow_type(kind: LogicalType, type_of: TypeOf) -> Any:
    """Return the Arrow type of a nested type. Only optional parts may be null."""
    import pyarrow

    types = [type_of(it.kind) for it in kind.members]
    fields = [
        pyarrow.field(it.name, found, nullable=it.is_optional)
        for it, found in zip(kind.members, types, strict=True)
    ]
    if kind.form == LIST:
        return pyarrow.list_(fields[0])
    return pyarrow.map_(types[0], fields[1]) if kind.form == DICT else pyarrow.struct(fields)


# ---- stored values to arrays


def array_of_nested(
    kind: LogicalType, values: Sequence[Any], leaf: MakeArray, type_of: TypeOf
) -> Any:
    """Return an Arrow array of stored values of a nested type, some of them None. `leaf` and
    `type_of` decide the types of its parts. A field that an older value lacks is null."""
    import pyarrow

    def made(kind: LogicalType, values: Sequence[Any]) -> Any:
        if not kind.members:
            return leaf(kind, values)
        is_null = [it is None for it in values]
        mask = pyarrow.array(is_null) if any(is_null) else None
        wanted = nested_arrow_type(kind, type_of)
        if kind.form not in (LIST, DICT):
            columns = [made(it.kind, _field_of(it, values)) for it in kind.members]
            return pyarrow.StructArray.from_arrays(columns, fields=[*wanted], mask=mask)
        offsets = pyarrow.array(_ends(values), pyarrow.int32())
        items = [*chain.from_iterable([it for it in values if it is not None])]
        if kind.form == LIST:
            inner = made(kind.members[0].kind, items)
            return pyarrow.ListArray.from_arrays(offsets, inner, type=wanted, mask=mask)
        keys, its = (
            made(it.kind, [pair[at] for pair in items]) for at, it in enumerate(kind.members)
        )
        return pyarrow.MapArray.from_arrays(offsets, keys, its, type=wanted, mask=mask)

    return made(kind, values)


def _field_of(member: Member, values: Sequence[Any]) -> list[Any]:
    """Return the values of a field. A field that is not optional has a value also where the struct
    is null, since Arrow calls such a field not nullable."""
    name = member.name
    found = [None if it is None else it.get(name) for it in values]
    if member.is_optional or None not in found:
        return found
    kind = member.kind
    empty = _EMPTY.get(kind.form, _EMPTY.get(kind.stored))
    if kind.form == "json":
        empty = "null"
    elif kind.stored == "string":
        empty = kind.lowest or bytes(kind.size_bytes)
    return [empty if it is None else it for it in found]


def _ends(values: Sequence[Any]) -> list[int]:
    """Return where each list begins in the sequence of all items, and where the last one ends."""
    ends, end = [0], 0
    for it in values:
        end += 0 if it is None else len(it)
        ends.append(end)
    return ends


# ---- arrays to stored values


def values_of_nested(kind: LogicalType, array: Any, leaf: ReadArray) -> list[Any]:
    """Return the stored values of an Arrow array of a nested type, in `leaf`'s form of parts."""
    if not kind.members:
        return leaf(kind, array)
    if kind.form in (LIST, DICT):
        ends, items = parts_of_list(array)
        if kind.form == LIST:
            flat = values_of_nested(kind.members[0].kind, items, leaf)
        else:
            columns = [
                values_of_nested(it.kind, items.field(at), leaf)
                for at, it in enumerate(kind.members)
            ]
            flat = [[*pair] for pair in zip(*columns, strict=True)]
        values: list[Any] = [flat[start:end] for start, end in pairwise(ends)]
    else:
        names = [it.name for it in kind.members]
        columns = [
            values_of_nested(it.kind, array.field(at), leaf) for at, it in enumerate(kind.members)
        ]
        values = [dict(zip(names, its, strict=True)) for its in zip(*columns, strict=True)]
    if array.null_count:
        is_valid = array.is_valid().to_pylist()
        values = [it if is_there else None for it, is_there in zip(values, is_valid, strict=True)]
    return values


def parts_of_list(array: Any) -> tuple[list[int], Any]:
    """Return where the list of each row begins among all items, and where the last one ends; then
    these items. Null has none. The array may be of any kind of list, or of maps, whose items are
    structs."""
    import numpy
    import pyarrow
    import pyarrow.compute

    if pyarrow.types.is_map(array.type):
        kind = array.type
        item = pyarrow.struct([("key", kind.key_type), ("value", kind.item_type)])
        array = array.cast(pyarrow.list_(item))
    lengths = pyarrow.compute.list_value_length(array).fill_null(0)
    ends = numpy.concatenate([[0], numpy.cumsum(lengths.to_numpy(zero_copy_only=False))])
    return ends.astype("i8").tolist(), array.flatten()


# ---- MessagePack


def packed_array(values: Sequence[Any]) -> Any:
    """Return stored values as a binary array of MessagePack. None is null."""
    import pyarrow

    packed = [None if it is None else _encode(it) for it in values]
    return pyarrow.array(packed, pyarrow.binary())


def unpacked_values(array: Any) -> list[Any]:
    """Return the values of a binary array of MessagePack. All are read in one call. Raises the
    errors of msgspec, and ValueError."""
    packed = array.to_pylist()
    there = [it for it in packed if it is not None]
    if not there:
        return [None] * len(packed)
    read = _decode(b"".join([_ARRAY_HEAD, len(there).to_bytes(4, "big"), *there]))
    if len(read) == len(packed):
        values: list[Any] = read
        return values
    following = iter(read)
    return [None if it is None else next(following) for it in packed]


def are_stored(kind: LogicalType, array: Any, check: CheckArray) -> bool:
    """Return whether a binary array has only what Dodona writes for values of a nested type.
    `check` is called with all values of each part, and raises SchemaViolation. So do the errors of
    msgspec for what is not MessagePack."""
    values = [it for it in unpacked_values(array) if it is not None]
    packed = [it for it in array.to_pylist() if it is not None]
    return [*map(_encode, values)] == packed and _are_stored(kind, values, check)


def _are_stored(kind: LogicalType, values: Sequence[Any], check: CheckArray) -> bool:
    """Return whether these values, of which none is None, have the form of the type."""
    kinds = set(map(type, values))
    if not kind.members:
        wanted = _PYTHON.get(kind.stored)
        if wanted is not None and not kinds <= {wanted}:
            return False
        check(kind, values)
        return True
    if kind.form not in (LIST, DICT):
        names = tuple([it.name for it in kind.members])
        if not kinds <= {dict} or not set(map(tuple, values)) <= {names}:
            return False
        columns = zip(*[it.values() for it in values], strict=True)
        return all(
            _are_parts(it, column, check) for it, column in zip(kind.members, columns, strict=False)
        )
    if not kinds <= {list}:
        return False
    items = [*chain.from_iterable(values)]
    if kind.form == LIST:
        return _are_parts(kind.members[0], items, check)
    if not set(map(type, items)) <= {list} or not set(map(len, items)) <= {2}:
        return False
    keys, its = [[pair[at] for pair in items] for at in range(2)]
    key, value = kind.members
    return (_are_parts(key, keys, check) and _are_parts(value, its, check)) and all(
        len({key for key, _ in pairs}) == len(pairs) for pairs in values
    )


def _are_parts(member: Member, values: Sequence[Any], check: CheckArray) -> bool:
    if member.is_optional:
        values = [it for it in values if it is not None]
    elif None in values:
        return False
    return _are_stored(member.kind, values, check)
