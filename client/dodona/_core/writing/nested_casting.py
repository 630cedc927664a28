"""Cast a user's Arrow column to the Arrow type of a nested type, part by part.

Owns: which types of Arrow a list, a struct and a dict take, and the place of the first value that
does not fit. All values of one part are cast together, as a column by itself. Only the row that is
refused becomes a Python value, which `logical_values` refuses with the place inside it.
A dict takes maps, and also lists of structs of key and value, which polars has instead of maps.
pyarrow is imported on first use: the light client works without it.
"""

from collections.abc import Callable
from typing import Any, Final

from dodona._core.writing.arrow_casting import at_row, cast_column, check_text, plain_array
from dodona._core.writing.column_types import advice_for
from dodona_wire.errors import SchemaViolation
from dodona_wire.handlers import is_of_handler
from dodona_wire.rows.column_kinds import LogicalType, Member
from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_arrow import arrow_type_of, stored_array
from dodona_wire.rows.logical_checks import check_stored_array
from dodona_wire.rows.logical_values import store_of
from dodona_wire.rows.nested_arrow import parts_of_list
from dodona_wire.rows.nested_values import null_refusal
from dodona_wire.rows.packed_names import nulls_in_packed
from dodona_wire.rows.type_names import DICT, LIST, field_word
from dodona_wire.shown import shown

_PAIR: Final = ("key", "value")
_ENDS_MAX: Final = (1 << 31) - 1
"""The most items of one array: Arrow's lists have 32 bits for their ends."""


def stored_nested(column: Column, array: Any) -> Any:
    """Return a user's column of a nested type in the form in which cells store it. Raises
    SchemaViolation with the row and with the place in it."""
    kind = column.logical
    try:
        return _stored(column, array)
    except SchemaViolation:
        if not len(array):
            return _explained(kind, column, array)
        return at_row(array, lambda part: _explained(kind, column, part))


def _stored(column: Column, array: Any) -> Any:
    return stored_array(column.logical, column.name, _cast(column.logical, array, column.name))


def _explained(kind: LogicalType, column: Column, part: Any) -> Any:
    """Return what `_stored` does. A row that is refused is refused as a Python value, if it is one,
    for the place."""
    try:
        return _stored(column, part)
    except SchemaViolation as error:
        error.attributes.pop("row_index", None)
        if error.attributes.get("column") != column.name:
            error.attributes.update(place=error.attributes["column"], column=column.name)
        if len(part) == 1:
            _check_value(kind, column.name, part)
        raise


def _check_value(kind: LogicalType, column: str, part: Any) -> None:
    try:
        value = part[0].as_py()
    except (ValueError, OverflowError) as error:
        if is_of_handler(error):
            raise
        return  # Python has no such value
    if value is not None:
        store_of(kind)(value, column)


def _cast(kind: LogicalType, array: Any, place: str) -> Any:
    """Return an array in the Arrow type of a type. `place` names the part in errors."""
    import pyarrow

    if not kind.members:
        column = Column(place, kind.name)
        wanted = arrow_type_of(kind)
        if not array.type.equals(wanted):
            array = cast_column(column, wanted, array)
        check_text(column, array)
        return _checked_texts(kind, array, place)
    given = array.type
    try:
        array, extension = plain_array(array)
    except pyarrow.ArrowNotImplementedError:
        raise _refusal(kind, given, place) from None
    if pyarrow.types.is_null(array.type):
        return pyarrow.nulls(len(array), arrow_type_of(kind))
    cast = _CASTS[kind.form]
    if extension or not _may_cast(kind.form, array.type):
        raise _refusal(kind, given, place)
    return cast(kind, array, place)


def _checked_texts(kind: LogicalType, array: Any, place: str) -> Any:
    """Check the values that Arrow can't check: JSON, and MessagePack of type any. Its null becomes
    null."""
    import pyarrow
    import pyarrow.compute

    if kind.form == "json":
        check_stored_array(kind, place, array)
    if kind.name != "any":
        return array
    is_null = nulls_in_packed(array.to_pylist(), place)
    if sum(is_null) == array.null_count:
        return array
    nothing = pyarrow.scalar(None, array.type)
    return pyarrow.compute.if_else(pyarrow.array(is_null), nothing, array)


def _may_cast(form: str, given: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    if form == LIST:
        return _is_list(given)
    if form == DICT:
        return types.is_map(given) or (_is_list(given) and _is_pair(given.value_type))
    return bool(types.is_struct(given))


def _is_list(given: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    tests = (
        types.is_list,
        types.is_large_list,
        types.is_fixed_size_list,
        types.is_list_view,
        types.is_large_list_view,
    )
    return any(test(given) for test in tests)


def _is_pair(given: Any) -> bool:
    import pyarrow

    return pyarrow.types.is_struct(given) and tuple(it.name for it in given) == _PAIR


def _refusal(kind: LogicalType, given: Any, place: str) -> SchemaViolation:
    text = f"column {place!r} is {kind.name} and takes Arrow's {arrow_type_of(kind)}, not {given}"
    advice = advice_for(given)
    return SchemaViolation(f"{text}. {advice}" if advice else text, column=place)


def _list(kind: LogicalType, array: Any, place: str) -> Any:
    import pyarrow

    (member,) = kind.members
    offsets, items = _items(array)
    items = _part(member, items, f"{place}[]")
    return pyarrow.ListArray.from_arrays(
        offsets, items, type=arrow_type_of(kind), mask=_mask(array)
    )


def _dict(kind: LogicalType, array: Any, place: str) -> Any:
    import pyarrow

    offsets, pairs = _items(array)
    if pairs.null_count:
        raise SchemaViolation(f"column {place!r} has a pair that is null", column=place)
    columns = [
        _part(member, pairs.field(at), f"{place}[]") for at, member in enumerate(kind.members)
    ]
    _check_keys(offsets, columns[0], place)
    return pyarrow.MapArray.from_arrays(
        offsets, *columns, type=arrow_type_of(kind), mask=_mask(array)
    )


def _check_keys(offsets: Any, keys: Any, place: str) -> None:
    """Check that no row has a key twice. Raises SchemaViolation."""
    import numpy
    import pyarrow

    ends = offsets.to_numpy()
    rows = numpy.repeat(numpy.arange(len(ends) - 1), numpy.diff(ends))
    table = pyarrow.table({"row": rows, "key": keys})
    if table.group_by(["row", "key"]).aggregate([]).num_rows < len(keys):
        raise SchemaViolation(f"column {place!r} has a key twice", column=place)


def _struct(kind: LogicalType, array: Any, place: str) -> Any:
    import pyarrow

    names = [it.name for it in array.type]
    known = [it.name for it in kind.members]
    strangers = [it for it in names if it not in known]
    if strangers or len(set(names)) < len(names):
        what = f"no field {shown(strangers[0])}" if strangers else "each field once"
        text = f"column {place!r} has {what}: it has the fields {', '.join(map(field_word, known))}"
        raise SchemaViolation(text, column=place)
    # Below a struct that is null, a field may have any value. Flattened, it is null there.
    is_there = array.is_valid() if array.null_count else None
    parts = dict(zip(names, array.flatten(), strict=True))
    columns = []
    for member in kind.members:
        step = f"{place}.{field_word(member.name)}"
        part = parts.get(member.name)
        part = pyarrow.nulls(len(array)) if part is None else part
        columns.append(_part(member, part, step, is_there))
    fields = [*arrow_type_of(kind)]
    return pyarrow.StructArray.from_arrays(columns, fields=fields, mask=_mask(array))


def _items(array: Any) -> tuple[Any, Any]:
    """Return the ends of the lists, as an Arrow array, and all items. Raises SchemaViolation."""
    import pyarrow

    ends, items = parts_of_list(array)
    if ends[-1] > _ENDS_MAX:
        raise SchemaViolation(f"the lists of these rows have more than {_ENDS_MAX} items together")
    return pyarrow.array(ends, pyarrow.int32()), items


def _part(member: Member, array: Any, place: str, is_there: Any = None) -> Any:
    """Return the array of one part. `is_there` says where the struct around it is not null, with
    None for everywhere. Raises SchemaViolation."""
    import pyarrow.compute

    found = _cast(member.kind, array, place)
    if found.null_count and not member.is_optional:
        is_null = found.is_null()
        if is_there is None or pyarrow.compute.and_(is_null, is_there).true_count:
            raise null_refusal(member, place)
    return found


def _mask(array: Any) -> Any:
    return array.is_null() if array.null_count else None


_CASTS: Final[dict[str, Callable[[LogicalType, Any, str], Any]]] = {
    "list": _list,
    "struct": _struct,
    "dict": _dict,
}
