"""Convert columns of a table to columns of a DataFrame, and back.

Owns: the mapping of types. `uint64` is a decimal of 20 digits, because Spark has no unsigned
integers. A UUID is text, and so is JSON. `any` is binary with MessagePack, as everywhere in Arrow.
A list is an array, a struct a struct, and a dict a map.
A DataFrame fits a table if it has all key columns and all required columns, and no unknown ones.
Each of its types must convert without loss.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_arrow import stored_values, text_array, with_text_uuids
from dodona_wire.rows.logical_types import SQL_PRECISION_MAX, LogicalType
from dodona_wire.rows.nested_types import leaves_of
from dodona_wire.rows.row_rules import check_update
from dodona_wire.types import LoadMode

if TYPE_CHECKING:
    import pyarrow

UINT64_DIGITS: Final = 20

_STORED: Final[dict[str, DataType]] = {
    "int64": LongType(),
    "uint64": DecimalType(UINT64_DIGITS, 0),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": BinaryType(),
    "utf8": StringType(),
    "any": BinaryType(),
}
_INTEGERS_READ: Final[dict[str, DataType]] = {
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "uint8": ShortType(),
    "uint16": IntegerType(),
    "uint32": LongType(),
}
"""Spark has no unsigned integers: each becomes the next wider type."""
_FORMS: Final[dict[str, DataType]] = {
    "float": FloatType(),
    "date": DateType(),
    "seconds": TimestampType(),
    "microseconds": TimestampType(),
    "interval": DayTimeIntervalType(),
    "uuid": StringType(),
    "json": StringType(),
}


def spark_type(column: Column) -> DataType:
    """Return the Spark type to which a column is read. Raises SchemaViolation for a decimal that
    Spark does not have."""
    return _spark_type(column.logical, column.name)


def _spark_type(kind: LogicalType, column: str) -> DataType:
    """Return the type of a column, or of a part of one of this name."""
    if kind.members:
        return _nested_type(kind, column)
    if kind.is_stored:
        return _STORED[kind.name]
    if kind.form == "integer":
        return _INTEGERS_READ[kind.name]
    if kind.form != "decimal":
        return _FORMS[kind.form]
    if kind.precision > SQL_PRECISION_MAX:
        raise SchemaViolation(
            f"Spark has decimals of at most {SQL_PRECISION_MAX} digits, and column {column!r} "
            f"is {kind.name}: choose other columns by option('columns')",
            column=column,
        )
    return DecimalType(kind.precision, kind.scale)


def _nested_type(kind: LogicalType, column: str) -> DataType:
    types = [_spark_type(it.kind, column) for it in kind.members]
    if kind.form == "list":
        return ArrayType(types[0], kind.members[0].is_optional)
    if kind.form == "dict":
        return MapType(types[0], types[1], kind.members[1].is_optional)
    pairs = zip(kind.members, types, strict=True)
    return StructType([StructField(it.name, found, it.is_optional) for it, found in pairs])


_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_FLOATS: Final = (FloatType, DoubleType)
_ACCEPTED: Final[dict[str, tuple[type[DataType], ...]]] = {
    "int64": _INTEGERS,
    "uint64": (*_INTEGERS, DecimalType),
    "double": _FLOATS,
    "boolean": (BooleanType,),
    "string": (BinaryType, StringType),
    "utf8": (StringType,),
    "any": (BinaryType,),
    "integer": _INTEGERS,
    "float": _FLOATS,
    "date": (DateType,),
    "seconds": (TimestampType,),
    "microseconds": (TimestampType,),
    "interval": (DayTimeIntervalType,),
    "decimal": (*_INTEGERS, DecimalType),
    "uuid": (StringType, BinaryType),
    "json": (StringType,),
}
"""The Spark types from which a column can be written, by stored types and by forms of logical
types."""


def spark_schema(columns: Sequence[Column]) -> StructType:
    """Return the schema of a DataFrame with these columns. Raises SchemaViolation."""
    return StructType(
        [StructField(it.name, spark_type(it), nullable=not it.required) for it in columns]
    )


def choose_columns(
    columns: Sequence[Column], names: Sequence[str] | None, path: str
) -> tuple[Column, ...]:
    """Return the columns with these names, in the order of the table. None means all. Raises
    SchemaViolation."""
    known = [column.name for column in columns]
    for name in names or ():
        if name not in known:
            raise SchemaViolation(f"table {path} has no column {name!r}", columns=known)
    return tuple(column for column in columns if names is None or column.name in names)


def check_frame(
    columns: Sequence[Column], frame: StructType, path: str, mode: LoadMode = "upsert"
) -> None:
    """Check that a DataFrame can be written to a table. Raises SchemaViolation, which names the
    column."""
    types = {field.name: field.dataType for field in frame.fields}
    if len(types) != len(frame.fields):
        raise SchemaViolation(
            "two columns of the DataFrame have the same name", columns=frame.names
        )
    known = [column.name for column in columns]
    for name in types:
        if name not in known:
            raise SchemaViolation(f"table {path} has no column {name!r}", columns=known)
    if mode == "delete" and any(it.name in types for it in columns if it.sort_order is None):
        keys = [column.name for column in columns if column.sort_order is not None]
        raise SchemaViolation(f"rows of table {path} are deleted by their key alone: select {keys}")
    if mode == "update":
        check_update(columns, types)
    for column in columns:
        if column.name in types:
            check_type(column, types[column.name], path)
        elif column.expression is not None:
            continue  # each task computes it
        elif column.sort_order is not None or (column.required and mode in ("upsert", "insert")):
            kind = "required column" if column.sort_order is None else "key column"
            raise SchemaViolation(f"the DataFrame lacks the {kind} {column.name!r} of table {path}")


def check_type(column: Column, given: DataType, path: str) -> None:
    """Check that a column accepts values of a type without loss. Raises SchemaViolation."""
    kind = column.logical
    if not _is_accepted(kind, given):
        wanted = "a decimal" if kind.precision else spark_type(column).simpleString()
        raise SchemaViolation(
            f"column {column.name!r} of table {path} is {column.type}, which takes {wanted}, "
            f"not {given.simpleString()}: cast it"
        )


def _is_accepted(kind: LogicalType, given: DataType) -> bool:
    """Return whether a type of Spark converts without loss. Whether a part is null, only its values
    show."""
    if kind.form == "list":
        return isinstance(given, ArrayType) and _is_accepted(
            kind.members[0].kind, given.elementType
        )
    if kind.form == "dict":
        inside = (given.keyType, given.valueType) if isinstance(given, MapType) else ()
        pairs = zip(kind.members, inside, strict=False)
        return bool(inside) and all(_is_accepted(it.kind, found) for it, found in pairs)
    if kind.form == "struct":
        return isinstance(given, StructType) and _are_accepted(kind, given)
    is_accepted = isinstance(given, _ACCEPTED[kind.name if kind.is_stored else kind.form])
    if isinstance(given, DecimalType):
        scale, digits = kind.scale, kind.precision or UINT64_DIGITS
        is_accepted = is_accepted and given.scale <= scale
        is_accepted = is_accepted and given.precision - given.scale <= digits - scale
    return is_accepted


def _are_accepted(kind: LogicalType, given: StructType) -> bool:
    """Return whether a struct has all fields that are not optional, and no other ones."""
    known = {it.name: it for it in kind.members}
    names = [it.name for it in given.fields]
    if len(set(names)) < len(names) or not set(names) <= set(known):
        return False
    if any(name not in names and not it.is_optional for name, it in known.items()):
        return False
    return all(_is_accepted(known[it.name].kind, it.dataType) for it in given.fields)


def check_types(columns: Sequence[Column], read: "pyarrow.Schema", path: str) -> None:
    """Check that the rows read still have the types that the table had. Raises SchemaViolation."""
    for column in columns:
        found = read.field(column.name).type
        if found != arrow_type(column):
            raise SchemaViolation(
                f"table {path} was altered since it was loaded: {column.name!r} was {column.type}, "
                f"and is {found} now: call load() again"
            )


def arrow_for_spark(
    columns: Sequence[Column], table: "pyarrow.Table", schema: "pyarrow.Schema"
) -> "pyarrow.Table":
    """Return the columns of a scan in exactly the Arrow schema that Spark expects. `columns` are
    those of the table."""
    import pyarrow

    with_uuids = {
        it.name: it.logical
        for it in columns
        if any(part.form == "uuid" for part in leaves_of(it.logical))
    }
    arrays = []
    for field in schema:
        array = table.column(field.name)
        kind = with_uuids.get(field.name)
        if kind is not None and kind.members:
            array = with_text_uuids(kind, stored_values(kind, field.name, array))
        elif kind is not None:
            chunks = [text_array(kind, it) for it in array.chunks]
            array = pyarrow.chunked_array(chunks, pyarrow.string())
        arrays.append(array.cast(field.type))
    return pyarrow.Table.from_arrays(arrays, schema=schema)
