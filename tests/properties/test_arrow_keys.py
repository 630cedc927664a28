"""Keys in columns are the keys one by one: encoded, decoded, ordered, cut at pivots.

`dodona.keys` is the model of encoding, Python's own sorting that of order.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.errors import DataCorrupted
from dodona.keys import decode_key, encode_key
from dodona.schema import Column, TableSchema
from dodona.types import Key
from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.arrow_keys import (
    cut_at,
    decode_keys,
    encode_keys,
    first_disorder,
    in_order,
    last_of_each,
    order_of,
)

NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 2),
    "uint64": st.integers(0, (1 << 64) - 1) | st.integers(0, 2),
    "double": st.floats(allow_nan=False) | st.sampled_from([-0.0, 0.0]),
    "boolean": st.booleans(),
}
VALUES = {
    **NUMBERS,
    "string": st.binary(max_size=20) | st.lists(st.sampled_from([0, 1, 254, 255])).map(bytes),
    "utf8": st.text(max_size=20) | st.text(alphabet="\x00\x01aé", max_size=6),
}
# The first text drawn builds tables of all characters, which takes seconds.
EXAMPLES = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

Rows = list[tuple[Any, ...]]


def order_of_type(key_type: str) -> str:
    return "descending" if key_type.startswith("-") else "ascending"


def schema_of(types: Sequence[str]) -> TableSchema:
    keys: Any = [
        {"name": f"k{at}", "type": it.removeprefix("-"), "sort_order": order_of_type(it)}
        for at, it in enumerate(types)
    ]
    return TableSchema.parse([*keys, {"name": "value", "type": "int64"}])


def array_of(column: Column, values: Sequence[Any]) -> Any:
    return pyarrow.array(values, arrow_type(column))


def batch_of(schema: TableSchema, rows: Rows) -> Any:
    """The key columns, and one that is none before them."""
    columns = list(zip(*rows, strict=True)) or [() for _ in schema.key_columns]
    arrays = [array_of(it, data) for it, data in zip(schema.key_columns, columns, strict=True)]
    return pyarrow.RecordBatch.from_arrays(
        [pyarrow.nulls(len(rows)), *arrays], names=["other", *schema.key_names]
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSchema, Rows]:
    """A schema and rows of its key: half of the time of numbers alone, without nulls."""
    is_plain = draw(st.booleans())
    kinds = NUMBERS if is_plain else VALUES
    drawn = st.tuples(st.sampled_from(["", "-"]), st.sampled_from(sorted(kinds))).map("".join)
    types = draw(st.lists(drawn, min_size=1, max_size=4))
    values = [kinds[it.removeprefix("-")] for it in types]
    columns = values if is_plain else [st.none() | it for it in values]
    return schema_of(types), draw(st.lists(st.tuples(*columns), max_size=12))


def keys_of(schema: TableSchema, rows: Rows) -> list[Key]:
    return [encode_key(row, schema.key_types) for row in rows]


def binary(keys: Sequence[bytes]) -> Any:
    return pyarrow.array(keys, pyarrow.binary())


@EXAMPLES
@given(tables())
def test_columns_encode_as_their_rows_do(drawn: tuple[TableSchema, Rows]) -> None:
    schema, rows = drawn
    encoded = encode_keys(schema, batch_of(schema, rows))
    assert encoded.type == pyarrow.binary()
    assert encoded.null_count == 0
    encoded.validate(full=True)
    assert encoded.to_pylist() == keys_of(schema, rows)


@EXAMPLES
@given(tables(), st.data())
def test_slices_and_chunked_tables_encode_the_keys_of_their_rows(
    drawn: tuple[TableSchema, Rows], data: st.DataObject
) -> None:
    schema, rows = drawn
    places = st.integers(0, len(rows))
    cuts = sorted(data.draw(st.lists(places, min_size=2, max_size=4)))
    whole = batch_of(schema, rows)
    pieces = [whole.slice(at, to - at) for at, to in pairwise(cuts)]
    kept = keys_of(schema, rows[cuts[0] : cuts[-1]])
    assert [it for piece in pieces for it in encode_keys(schema, piece).to_pylist()] == kept
    table = pyarrow.Table.from_batches(pieces, schema=whole.schema)
    assert encode_keys(schema, table).to_pylist() == kept


@EXAMPLES
@given(tables(), st.data())
def test_keys_decode_to_the_columns_that_they_are_made_of(
    drawn: tuple[TableSchema, Rows], data: st.DataObject
) -> None:
    schema, rows = drawn
    start = data.draw(st.integers(0, len(rows)))
    keys = binary(keys_of(schema, rows)).slice(start)
    arrays = decode_keys(schema, keys)
    assert [it.type for it in arrays] == [arrow_type(it) for it in schema.key_columns]
    for array in arrays:
        array.validate(full=True)
    decoded = [decode_key(key, schema.key_types) for key in keys.to_pylist()]
    assert [it.to_pylist() for it in arrays] == [
        [row[at] for row in decoded] for at in range(len(schema.key_columns))
    ]


@EXAMPLES
@given(tables(), st.data())
def test_bytes_that_no_encoder_made_are_corrupted_here_as_there(
    drawn: tuple[TableSchema, Rows], data: st.DataObject
) -> None:
    schema, rows = drawn
    keys: list[bytes] = [*keys_of(schema, rows)]
    place = data.draw(st.integers(0, len(keys)))
    keys.insert(place, data.draw(spoiled(keys)))
    alone = outcome(lambda: [decode_key(Key(key), schema.key_types) for key in keys])
    together = outcome(lambda: list(zip(*columns_of(schema, keys), strict=True)))
    assert together == alone


def columns_of(schema: TableSchema, keys: Sequence[bytes]) -> list[list[Any]]:
    return [it.to_pylist() for it in decode_keys(schema, binary(keys))]


def outcome(decode: Callable[[], Rows]) -> Rows | tuple[str, dict[str, Any]]:
    """What comes of it, or how it is refused."""
    try:
        return decode()
    except DataCorrupted as error:
        return error.message, error.attributes


def spoiled(keys: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Any bytes, or a key of which one byte is another, or that is cut short, or goes on."""
    if not keys:
        return st.binary(max_size=20)

    def change(drawn: tuple[bytes, int, int]) -> bytes:
        key, at, byte = drawn
        at %= len(key)
        return key[:at] + bytes([byte]) + key[at + 1 :]

    key = st.sampled_from(keys)
    byte = st.sampled_from([0, 1, 2, 3, 0x10, 0x7F, 0x80, 0xEF, 0xFC, 0xFD, 0xFE, 0xFF])
    return (
        st.binary(max_size=20)
        | st.tuples(key, st.integers(0, 100), byte).map(change)
        | st.tuples(key, st.integers(1, 12)).map(lambda it: it[0][: -it[1]])
        | st.tuples(key, st.binary(min_size=1, max_size=3)).map(b"".join)
    )


# Short alphabets, so that keys are often equal, and often the beginning of another.
some_keys = st.lists(
    st.binary(max_size=3)
    | st.lists(st.sampled_from([0, 1, 255]), max_size=20).map(bytes)
    | st.lists(st.sampled_from([0, 7]), min_size=12, max_size=12).map(bytes),
    max_size=20,
) | st.integers(1, 12).flatmap(
    lambda width: st.lists(
        st.lists(st.sampled_from([0, 1, 255]), min_size=width, max_size=width).map(bytes),
        max_size=20,
    )
)


@EXAMPLES
@given(some_keys, st.integers(0, 3))
def test_order_is_that_of_bytes_and_stable(raw: list[bytes], start: int) -> None:
    keys = binary(raw).slice(start)
    kept = raw[start:]
    assert order_of(keys).to_pylist() == sorted(range(len(kept)), key=kept.__getitem__)


@EXAMPLES
@given(some_keys, st.booleans(), st.integers(0, 3))
def test_the_first_disorder_is_found(raw: list[bytes], is_sorted: bool, start: int) -> None:
    raw = sorted({*raw}) + raw[:1] if is_sorted else raw
    kept = raw[start:]
    places = [at for at in range(1, len(kept)) if kept[at] <= kept[at - 1]]
    assert first_disorder(binary(raw).slice(start)) == (places[0] if places else None)


@EXAMPLES
@given(some_keys, st.booleans(), st.integers(0, 3))
def test_rows_in_order_rise_and_the_last_of_each_key_is_kept(
    raw: list[bytes], is_sorted: bool, start: int
) -> None:
    raw = sorted({*raw}) if is_sorted else raw
    kept = raw[start:]
    rows, keys = in_order(binary(raw).slice(start))
    last = {key: at for at, key in enumerate(kept)}
    assert keys.to_pylist() == sorted(last)
    if kept == sorted(last):
        assert rows is None
    else:
        assert rows.to_pylist() == [last[key] for key in sorted(last)]


@EXAMPLES
@given(some_keys)
def test_last_of_each_marks_the_last_of_equal_sorted_values(raw: list[bytes]) -> None:
    ordered = sorted(raw)
    is_last = [at + 1 == len(ordered) or ordered[at + 1] != it for at, it in enumerate(ordered)]
    assert last_of_each(binary(ordered)).to_pylist() == is_last


@EXAMPLES
@given(some_keys, some_keys)
def test_cut_at_puts_each_key_into_its_tablet(raw: list[bytes], bounds: list[bytes]) -> None:
    keys = sorted({*raw})
    pivots = [Key(it) for it in sorted({b"", *bounds})]
    cuts = cut_at(binary(keys), pivots)
    expected: dict[int, list[bytes]] = {}
    for key in keys:
        expected.setdefault(bisect_right(pivots, key) - 1, []).append(key)
    assert [(place, keys[start:end]) for place, start, end in cuts] == [*expected.items()]


def test_negative_zero_is_zero() -> None:
    schema = schema_of(["double"])
    encoded = encode_keys(schema, batch_of(schema, [(-0.0,), (0.0,)]))
    assert encoded[0] == encoded[1]
    (array,) = decode_keys(schema, encoded)
    assert [struct.pack(">d", it) for it in array.to_pylist()] == [bytes(8)] * 2
