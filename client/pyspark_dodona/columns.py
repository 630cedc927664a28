"""Convert columns of a table to columns of a DataFrame, and back.

Owns: the mapping of types. `uint64` is a decimal of 20 digits, because Spark has no unsigned
integers. `any` is binary with MessagePack, as everywhere in Arrow. A DataFrame fits a table if it
has all key columns and all required columns, and no unknown ones. Each of its types must convert
without loss.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.columns import Column, ColumnType
from dodona_wire.types import LoadMode

if TYPE_CHECKING:
    import pyarrow

UINT64_DIGITS: Final = 20

SPARK_TYPES: Final[dict[ColumnType, DataType]] = {
    "int64": LongType(),
    "uint64": DecimalType(UINT64_DIGITS, 0),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": BinaryType(),
    "utf8": StringType(),
    "any": BinaryType(),
}
"""The Spark type to which each column type is read."""

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_ACCEPTED: Final[dict[ColumnType, tuple[type[DataType], ...]]] = {
    "int64": _INTEGERS,
    "uint64": (*_INTEGERS, DecimalType),
    "double": (FloatType, DoubleType),
    "boolean": (BooleanType,),
    "string": (BinaryType, StringType),
    "utf8": (StringType,),
    "any": (BinaryType,),
}
"""The Spark types from which each column type can be written."""


def spark_schema(columns: Sequence[Column]) -> StructType:
    """Return the schema of a DataFrame with these columns."""
    return StructType(
        [StructField(it.name, SPARK_TYPES[it.type], nullable=not it.required) for it in columns]
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
    if mode == "delete" and len(types) > sum(it.sort_order is not None for it in columns):
        keys = [column.name for column in columns if column.sort_order is not None]
        raise SchemaViolation(f"rows of table {path} are deleted by their key alone: select {keys}")
    for column in columns:
        if column.name in types:
            check_type(column, types[column.name], path)
        elif column.sort_order is not None or (column.required and mode in ("upsert", "insert")):
            kind = "required column" if column.sort_order is None else "key column"
            raise SchemaViolation(f"the DataFrame lacks the {kind} {column.name!r} of table {path}")


def check_type(column: Column, given: DataType, path: str) -> None:
    """Check that a column accepts values of a type without loss. Raises SchemaViolation."""
    is_accepted = isinstance(given, _ACCEPTED[column.type])
    if isinstance(given, DecimalType):
        is_accepted = is_accepted and given.scale == 0 and given.precision <= UINT64_DIGITS
    if not is_accepted:
        wanted = SPARK_TYPES[column.type].simpleString()
        raise SchemaViolation(
            f"column {column.name!r} of table {path} is {column.type}, which takes {wanted}, "
            f"not {given.simpleString()}: cast it"
        )


def check_types(columns: Sequence[Column], read: "pyarrow.Schema", path: str) -> None:
    """Check that the rows read still have the types that the table had. Raises SchemaViolation."""
    for column in columns:
        found = read.field(column.name).type
        if found != arrow_type(column):
            raise SchemaViolation(
                f"table {path} was altered since it was loaded: {column.name!r} was {column.type}, "
                f"and is {found} now: call load() again"
            )


def arrow_for_spark(table: "pyarrow.Table", schema: "pyarrow.Schema") -> "pyarrow.Table":
    """Return the columns of a scan in exactly the Arrow schema that Spark expects."""
    import pyarrow

    arrays = [table.column(field.name).cast(field.type) for field in schema]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def arrow_from_spark(batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
    """Return a batch of a DataFrame in the client's types: decimals become uint64.

    Raises SchemaViolation for a value that uint64 cannot hold."""
    import pyarrow

    for at, field in enumerate(batch.schema):
        if pyarrow.types.is_decimal(field.type):
            batch = batch.set_column(at, field.name, _unsigned(field.name, batch.column(at)))
    return batch


def _unsigned(name: str, decimals: "pyarrow.Array") -> "pyarrow.Array":
    import pyarrow

    try:
        return decimals.cast(pyarrow.uint64())
    except pyarrow.ArrowInvalid as error:
        raise SchemaViolation(f"a value does not fit in uint64: {error}", column=name) from error
