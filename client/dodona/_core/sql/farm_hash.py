"""Give DuckDB the function `farm_hash`, with the results that computed key columns have.

Owns: which types of DuckDB have a hash, and the stored form of their values, which is what is
hashed. The function gets whole vectors as Arrow arrays. Arrow shows a UUID as text, so a macro also
passes the name of each argument's type. The macro has one form for each number of arguments in the
query, since DuckDB's macros take a fixed number.
numpy and pyarrow are imported on first use.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dodona._core.protocol.arguments import INTEGER_MAX, INTEGER_MIN
from dodona_wire.errors import InvalidRequest
from dodona_wire.expressions.arrays import Rows, Values, values_of
from dodona_wire.expressions.terms import ARGUMENTS_MAX, Term
from dodona_wire.expressions.values import UINT64_MAX, Kind
from dodona_wire.rows.computed_arrow import plain_values
from dodona_wire.rows.logical_arrow import stored_array
from dodona_wire.rows.logical_types import logical_type

NAME: Final = "farm_hash"
DEPTH_MAX: Final = 4
"""Calls within calls. The macro names each argument twice, so each level doubles the query."""
_VECTORS: Final = "_farm_hash"
"""The function of vectors that the macro calls."""
_UUID_BYTES: Final = 16
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TAKEN: Final = (
    "It takes integers, booleans, text, bytes, dates, UUIDs and decimals. Convert the value."
)
_HINTS: Final = {
    "INTERVAL": "Pass the stored number: epoch_us(i).",
    "TIMESTAMP WITH TIME ZONE": (
        "Pass the stored number: epoch(at)::bigint of a datetime, epoch_us(at) of a timestamp."
    ),
}


def checked_count(arguments: Sequence[Any], depth: int) -> int:
    """Return how many arguments a call has. `depth` is 1 for a call that is in no other one. Raises
    InvalidRequest if they are too many, or none, or if the call is too deep."""
    if depth > DEPTH_MAX:
        text = f"{NAME} may have calls of itself in its arguments, up to {DEPTH_MAX} deep."
        raise InvalidRequest(text, function=NAME)
    count = len(arguments)
    if not 1 <= count <= ARGUMENTS_MAX:
        text = f"{NAME} takes 1 to {ARGUMENTS_MAX} arguments, not {count}."
        raise InvalidRequest(text, function=NAME)
    return count


def define_farm_hash(connection: Any, counts: Iterable[int], *, is_new: bool) -> None:
    """Define the function in a connection, for calls with these numbers of arguments. `is_new`:
    the connection does not have it yet."""
    if is_new:
        connection.create_function(
            _VECTORS, _hashes, None, "UBIGINT", type="arrow", null_handling="special"
        )
    forms = ", ".join([_form(count) for count in sorted(counts)])
    connection.execute(f"create or replace macro {NAME}{forms}")


def _form(count: int) -> str:
    names = [f"a{place}" for place in range(count)]
    types = ", ".join([f"typeof({it})" for it in names])
    listed = ", ".join(names)
    return f"({listed}) as {_VECTORS}([{types}], {listed})"


def _hashes(types: Any, *arrays: Any) -> Any:
    """Return the hashes of rows as an Arrow array. Raises ValueError, which DuckDB shows."""
    import pyarrow

    if not len(types):
        return pyarrow.array([], pyarrow.uint64())
    whole = [it.combine_chunks() for it in arrays]
    columns = [_column(name, it) for name, it in zip(types[0].as_py(), whole, strict=True)]
    operands = [Term("column", kind, value=at) for at, (kind, _) in enumerate(columns)]
    term = Term(NAME, Kind.UINT64, tuple(operands))
    return pyarrow.array(values_of(term, Rows([it for _, it in columns], len(types))).data)


def _column(type_name: str, array: Any) -> tuple[Kind, Values]:
    """Return the stored values of an argument."""
    decimal = _DECIMAL.fullmatch(type_name)
    if decimal is not None:
        kind = logical_type(f"decimal({decimal[1]},{decimal[2]})")
        return Kind.STRING, plain_values(stored_array(kind, "", array))
    found = _TYPES.get(type_name)
    if found is None:
        hint = _HINTS.get(type_name, _TAKEN)
        raise ValueError(f"{NAME} takes no {type_name}. {hint}")
    kind_of, stored = found
    return kind_of, plain_values(stored(array))


def _as(type_name: str) -> Callable[[Any], Any]:
    return lambda array: array.cast(type_name)


def _days(array: Any) -> Any:
    return array.cast("int32").cast("int64")


def _nothing(array: Any) -> Any:
    import pyarrow

    return pyarrow.nulls(len(array), pyarrow.int64())


def _wide(array: Any) -> Any:
    """Return the 64 bits of integers of a wider type. A literal above 2^63 has this type. Raises
    ValueError."""
    import pyarrow

    found = []
    for it in array.to_pylist():
        if it is not None and not INTEGER_MIN <= it <= INTEGER_MAX:
            raise ValueError(
                f"{NAME} takes integers from {INTEGER_MIN} to {INTEGER_MAX}, not {it}."
            )
        found.append(None if it is None else int(it) & UINT64_MAX)
    return pyarrow.array(found, pyarrow.uint64())


def _uuids(array: Any) -> Any:
    """Return the 16 bytes of each UUID, which comes as text."""
    import pyarrow

    nothing = "00" * _UUID_BYTES
    texts = [nothing if it is None else it for it in array.to_pylist()]
    raw = bytes.fromhex("".join(texts).replace("-", ""))
    fixed = pyarrow.FixedSizeBinaryArray.from_buffers(
        pyarrow.binary(_UUID_BYTES), len(array), [None, pyarrow.py_buffer(raw)]
    ).cast(pyarrow.binary())
    return _with_nulls(fixed, array)


def _with_nulls(found: Any, array: Any) -> Any:
    import pyarrow.compute

    return pyarrow.compute.if_else(array.is_valid(), found, None)


_TYPES: Final[dict[str, tuple[Kind, Callable[[Any], Any]]]] = {
    '"NULL"': (Kind.INT64, _nothing),
    "BOOLEAN": (Kind.BOOLEAN, lambda array: array),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), (Kind.INT64, _as("int64"))),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), (Kind.UINT64, _as("uint64"))),
    "HUGEINT": (Kind.UINT64, _wide),
    "DATE": (Kind.INT64, _days),
    "UUID": (Kind.STRING, _uuids),
    **dict.fromkeys(("VARCHAR", "BLOB", "JSON"), (Kind.STRING, _as("binary"))),
}
"""By type of DuckDB, the kind of its stored values, and the function that gives them."""
