"""Logical types: a value comes back as it was, and keys have the order of the values."""

import pickle
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.errors import SchemaViolation
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN
from dodona_wire.rows.fixed_bytes import BLOCK_ROWS
from dodona_wire.rows.logical_arrow import stored_array, user_array
from dodona_wire.rows.logical_arrow import values_of as array_values_of
from dodona_wire.rows.logical_bytes import plain_decimal_of, sign_of, unscaled_of
from dodona_wire.rows.logical_checks import check_stored_array
from dodona_wire.rows.logical_parsing import parse_of
from dodona_wire.rows.logical_types import LogicalType, logical_type
from dodona_wire.rows.logical_values import check_of, load_of, store_of, text_of
from dodona_wire.rows.row_code import NO_CODE
from suite.column_values import DECIMALS, LOGICAL, values_of
from suite.levels import examples, share

EXAMPLES = settings(max_examples=examples(60), deadline=None)


def schema_of(name: str) -> TableSchema:
    columns = [Column("k", name, "ascending"), Column("a", name), Column("b", name)]
    return TableSchema.parse(columns)


def without_code(schema: TableSchema) -> TableSchema:
    schema.__dict__["code"] = NO_CODE
    return schema


@pytest.mark.parametrize("name", share(LOGICAL, one_in=3))
@EXAMPLES
@given(data=st.data())
def test_a_row_comes_back_as_it_was(name: str, data: st.DataObject) -> None:
    schema, values = schema_of(name), values_of(name)
    row = {"k": data.draw(values), "a": data.draw(values), "b": data.draw(values | st.none())}
    key, mask, stored = schema.write_of(row)
    assert (key, mask, stored) == without_code(schema_of(name)).write_of(row)
    schema.stored.check_write((key, mask, stored))
    assert schema.stored.code.are_plain([(key, mask, stored)], KEY_MIN, KEY_MAX) is not False or (
        logical_type(name).form in ("float", "json")  # NaN and long texts take the other way
    )
    back = (*schema.decode_key(key), *schema.load_values(mask, stored))
    assert back == tuple(row.values())
    assert schema.code.row_of(key, stored) == row
    read = schema.tuple_code([0], mask)
    assert read is not None
    found = read(key, stored)
    assert found == back
    assert list(map(str, found)) == list(map(str, back))  # 0.0 is no 0.00


@EXAMPLES
@given(
    name=st.sampled_from(DECIMALS),
    number=st.decimals()
    | st.builds(
        lambda sign, digits, exponent: Decimal((sign, digits, exponent)),
        st.integers(0, 1),
        st.lists(st.sampled_from([0, 0, 0, 1, 9]), max_size=200).map(tuple),
        st.integers(-300, 300) | st.sampled_from([-2_000_000, 999_999, -999_999]),
    ),
)
def test_a_decimal_is_stored_as_its_digits_say(name: str, number: Decimal) -> None:
    kind = logical_type(name)
    unscaled = unscaled_of(number, kind.scale, kind.precision)
    quick = plain_decimal_of(kind)(number)
    if unscaled is None or abs(unscaled) >= 10**kind.precision:
        assert quick is None
        with pytest.raises(SchemaViolation):
            store_of(kind)(number, "k")
    else:
        raw = (unscaled + sign_of(kind)).to_bytes(kind.size_bytes, "big")
        assert quick in (raw, None)
        assert store_of(kind)(number, "k") == raw
        assert load_of(kind)(raw).as_tuple().exponent == -kind.scale


class Nowhere(tzinfo):
    """A time zone without an offset, so that its times are no moments."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


ZONES: list[tzinfo | None] = [
    *(timezone(timedelta(hours=it)) for it in (-23, 0, 5.75, 14)),
    *map(ZoneInfo, ("UTC", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia")),
    Nowhere(),
    None,
]


HOUR = timedelta(hours=1)
TWICE = [
    datetime(2024, 10, 27, 2, 30, tzinfo=UTC),
    datetime(2024, 3, 31, 2, 30, tzinfo=UTC),
    datetime(2011, 12, 30, tzinfo=UTC),
]
"""Times that Berlin had twice, and that Berlin and Apia never had."""


@pytest.mark.parametrize("name", ["datetime", "timestamp", "datetime64", "timestamp64"])
@EXAMPLES
@given(data=st.data())
def test_a_time_of_any_zone_is_a_plain_value_if_it_is_a_moment_in_the_range(
    name: str, data: st.DataObject
) -> None:
    """The ends of the ranges, and the hours that a zone has twice, are among the times."""
    kind, schema = logical_type(name), schema_of(name)
    ends = [load_of(kind)(it) for it in (kind.lowest, kind.highest)]
    year = st.integers(0, 8_784).map(lambda it: datetime(2024, 1, 1, tzinfo=UTC) + it * HOUR)
    zone, fold = data.draw(st.sampled_from(ZONES)), data.draw(st.integers(0, 1))
    value = data.draw(st.sampled_from([*ends, *TWICE]) | year).replace(tzinfo=zone, fold=fold)
    if not name.startswith("timestamp"):
        value = value.replace(microsecond=0)
    row = {"k": value, "a": value, "b": None}
    plain = schema.code.write_of(row)
    try:
        write = without_code(schema_of(name)).write_of(row)
    except SchemaViolation:
        assert plain is None
        return
    assert plain == write
    (moment,) = schema.decode_key(write[0])
    assert moment - value.replace(tzinfo=UTC) == -(value.utcoffset() or timedelta(0))


@EXAMPLES
@given(st.uuids())
def test_a_uuid_is_made_as_its_constructor_makes_it(value: UUID) -> None:
    found = load_of(logical_type("uuid"))(value.bytes)
    assert (found, hash(found), str(found), found.is_safe) == (
        value,
        hash(value),
        str(value),
        value.is_safe,
    )
    assert pickle.loads(pickle.dumps(found)) == value


@pytest.mark.parametrize("name", share(LOGICAL, one_in=3))
@EXAMPLES
@given(data=st.data())
def test_stored_values_and_keys_have_the_order_of_the_values(
    name: str, data: st.DataObject
) -> None:
    one, other = data.draw(values_of(name)), data.draw(values_of(name))
    kind, schema = logical_type(name), schema_of(name)
    stored = [store_of(kind)(it, "k") for it in (one, other)]
    keys = [schema.key_of({"k": it}) for it in (one, other)]
    assert (stored[0] < stored[1]) == (keys[0] < keys[1]) == (one < other)
    assert (keys[0] == keys[1]) == (one == other)


@pytest.mark.parametrize("name", share(LOGICAL, one_in=3))
@EXAMPLES
@given(data=st.data())
def test_a_text_stands_for_one_value(name: str, data: st.DataObject) -> None:
    kind, value = logical_type(name), data.draw(values_of(name))
    read = parse_of(kind)(text_of(kind, value), "k")
    assert store_of(kind)(read, "k") == store_of(kind)(value, "k")


@pytest.mark.parametrize("name", share(LOGICAL, one_in=3))
@EXAMPLES
@given(data=st.data())
def test_a_column_converts_as_single_values_do(name: str, data: st.DataObject) -> None:
    import pyarrow

    kind = logical_type(name)
    values = data.draw(st.lists(values_of(name) | st.none(), max_size=5))
    stored = [None if it is None else store_of(kind)(it, "k") for it in values]
    column = pyarrow.array(stored, _stored_type(kind.stored)).slice(data.draw(st.integers(0, 1)))
    shown = user_array(kind, column)
    shown.validate(full=True)
    _check_shown(kind, shown, column.to_pylist())
    assert stored_array(kind, "k", shown).equals(column)
    check_stored_array(kind, "k", column)
    assert shown.null_count == column.null_count


def _check_shown(kind: LogicalType, shown: Any, stored: list[Any]) -> None:
    """Compare with the plain definition of each value. Python's Arrow has intervals as numbers."""
    if kind.form == "interval":
        import pyarrow

        assert shown.cast(pyarrow.int64()).to_pylist() == stored
        return
    wanted = [None if it is None else load_of(kind)(it) for it in stored]
    assert list(map(str, array_values_of(kind, shown))) == list(map(str, wanted))


NUMBERS = [it for it in LOGICAL if logical_type(it).form in ("integer", "date", "microseconds")]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_fits_no_value_is_no_column(name: str) -> None:
    """A cell takes none. A column shows an error, and no other value, if a file has one."""
    import pyarrow

    kind = logical_type(name)
    bits = {"date": 31, "microseconds": 63}.get(kind.form, 0)
    past = 1 << bits if bits else kind.highest + 1
    outside = [past] if kind.stored == "uint64" else [past, (-past if bits else kind.lowest) - 1]
    stored = _stored_type(kind.stored)
    for bad in [it for it in outside if -(1 << 63) <= it < 1 << 63 or kind.stored == "uint64"]:
        for values in ([bad], [kind.lowest, bad], [bad, None, kind.highest]):
            with pytest.raises(pyarrow.ArrowInvalid):
                user_array(kind, pyarrow.array(values, stored))
        behind = pyarrow.array([bad, kind.lowest, kind.highest], stored)
        rest = user_array(kind, behind.slice(1))  # a slice has the bad value in its memory only
        _check_shown(kind, rest, [kind.lowest, kind.highest])
        mask = pyarrow.py_buffer(b"\x06")
        nulled = pyarrow.Array.from_buffers(stored, 3, [mask, behind.buffers()[1]])
        _check_shown(kind, user_array(kind, nulled), [None, kind.lowest, kind.highest])


@pytest.mark.parametrize("name", DECIMALS)
@pytest.mark.parametrize("count", [0, 1, BLOCK_ROWS, 2 * BLOCK_ROWS + 1])
def test_long_columns_of_decimals_have_the_values_of_their_rows(name: str, count: int) -> None:
    import pyarrow

    kind, sign = logical_type(name), sign_of(logical_type(name))
    largest = 10**kind.precision - 1
    some = [0, 1, -1, largest, -largest, None, largest // 3, -(largest // 7)]
    numbers = [some[it % len(some)] for it in range(count)]
    size = kind.size_bytes
    stored = [None if it is None else (it + sign).to_bytes(size, "big") for it in numbers]
    shown = user_array(kind, pyarrow.array(stored, pyarrow.binary()))
    shown.validate(full=True)
    wanted = {
        it: None if it is None else Decimal((it < 0, _digits(it), -kind.scale)) for it in some
    }
    assert shown.to_pylist() == [wanted[it] for it in numbers]


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


def _stored_type(name: str) -> Any:
    import pyarrow

    return {
        "int64": pyarrow.int64(),
        "uint64": pyarrow.uint64(),
        "double": pyarrow.float64(),
        "string": pyarrow.binary(),
        "utf8": pyarrow.string(),
    }[name]


OUTSIDE = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.binary(max_size=34),
    st.text(max_size=5),
    st.booleans(),
)


@pytest.mark.parametrize("name", share(LOGICAL, one_in=3))
@EXAMPLES
@given(value=OUTSIDE)
def test_a_cell_takes_stored_values_of_the_range_only(name: str, value: Any) -> None:
    """Whatever a cell takes, a client can show; the generated tests and Arrow's agree."""
    import pyarrow

    kind, schema = logical_type(name), schema_of(name)
    key = schema.key_of({"k": load_of(kind)(_some_stored(name))})
    write = key, 3, (value, None)
    try:
        schema.stored.check_write(write)
    except SchemaViolation:
        is_good = False
    else:
        is_good = True
        load_of(kind)(check_of(kind)(value, "a"))
    code = schema.stored.code.are_plain
    if type(value) not in (str, bytes) or kind.stored in ("string", "utf8"):
        assert code([write], KEY_MIN, KEY_MAX) in (
            (True, None, False) if is_good else (False, None)
        )
    try:
        column = pyarrow.array([value], _stored_type(kind.stored))
    except (pyarrow.ArrowException, TypeError, OverflowError):
        return
    if column[0].as_py() != value or type(column[0].as_py()) is not type(value):
        return
    if is_good:
        check_stored_array(kind, "a", column)
    else:
        with pytest.raises(SchemaViolation) as caught:
            check_stored_array(kind, "a", column)
        assert caught.value.attributes["row_index"] == 0


def _some_stored(name: str) -> Any:
    from suite.column_values import an_example

    return store_of(logical_type(name))(an_example(name), "k")
