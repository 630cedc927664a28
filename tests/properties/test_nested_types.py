"""Nested types: what goes in comes out, in each form, and a cell takes the stored form only."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.errors import SchemaViolation
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN
from dodona_wire.rows.arrow import array_of
from dodona_wire.rows.logical_arrow import stored_array, user_array, values_of
from dodona_wire.rows.logical_checks import check_stored_array
from dodona_wire.rows.logical_types import LogicalType, logical_type
from dodona_wire.rows.logical_values import check_of, load_of, store_of
from dodona_wire.rows.text_format import format_value, value_of_text
from suite.column_values import NESTED
from suite.column_values import values_of as users_values
from suite.levels import examples, share

EXAMPLES = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
NAMES = share(NESTED, one_in=2)
WORDS = ("int64", "utf8", "date", "decimal(5,2)", "any", "json")
FIELDS = st.text(min_size=1, max_size=5) | st.sampled_from(["a", 'b"', "c,<:>", " "])


def types() -> st.SearchStrategy[str]:
    """Names of types that columns may have, in their spelling."""

    def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        part = inner | inner.map(lambda it: f"optional<{it}>")
        fields = st.dictionaries(FIELDS, part, min_size=1, max_size=3)
        return st.one_of(
            part.map(lambda it: f"list<{it}>"),
            part.map(lambda it: f"dict<utf8,{it}>"),
            fields.map(
                lambda it: (
                    "struct<"
                    + ",".join(
                        '"' + name.replace('"', '""') + f'": {kind}' for name, kind in it.items()
                    )
                    + ">"
                )
            ),
        )

    return st.recursive(st.sampled_from(WORDS), nested, max_leaves=6)


@EXAMPLES
@given(name=types())
def test_a_spelling_stands_for_the_same_type(name: str) -> None:
    kind = logical_type(name)
    assert logical_type(kind.name) == kind
    assert logical_type(f" {kind.name} ".replace("<", " < ").strip()).form == kind.form


@EXAMPLES
@given(text=st.text('<>,:"() \tadelisctruopn8', max_size=30))
def test_a_text_is_a_name_or_is_refused(text: str) -> None:
    try:
        kind = logical_type(text)
    except SchemaViolation:
        return
    assert logical_type(kind.name) == kind


@pytest.mark.parametrize("name", NAMES)
@EXAMPLES
@given(data=st.data())
def test_a_value_comes_back_from_its_stored_form_and_its_text(
    name: str, data: st.DataObject
) -> None:
    kind, value = logical_type(name), data.draw(users_values(name))
    stored = store_of(kind)(value, "v")
    packed = msgspec.msgpack.encode(stored)
    assert msgspec.msgpack.decode(packed) == stored
    assert check_of(kind)(stored, "v") == stored
    assert load_of(kind)(stored) == value
    column = Column("v", name)
    text = msgspec.json.encode(format_value(column, value)).decode()
    assert value_of_text(column, text) == value


@pytest.mark.parametrize("name", NAMES)
@EXAMPLES
@given(data=st.data())
def test_a_column_converts_as_single_values_do(name: str, data: st.DataObject) -> None:
    kind = logical_type(name)
    values = data.draw(st.lists(users_values(name) | st.none(), max_size=5))
    start = data.draw(st.integers(0, 1))
    column = array_of(Column("v", name), values)
    column.validate(full=True)
    packed = stored_array(kind, "v", column.slice(start))
    store = store_of(kind)
    expected = [None if it is None else msgspec.msgpack.encode(store(it, "v")) for it in values]
    assert packed.to_pylist() == expected[start:]
    check_stored_array(kind, "v", packed)
    assert user_array(kind, packed).equals(column.slice(start))
    assert values_of(kind, column.slice(start)) == values[start:]


OUTSIDE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.binary(max_size=17)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["s", "l", "d", "price", 'a "b', "t", "n"]), inner)
    ),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn, stored: Any) -> Any:
    """A stored value in which one part is another value."""
    if not isinstance(stored, list | dict) or not stored or draw(st.booleans()):
        return draw(OUTSIDE)
    places = list(stored) if isinstance(stored, dict) else range(len(stored))
    place = draw(st.sampled_from(places))
    copied = stored.copy()
    copied[place] = draw(damaged(stored[place]))
    return copied


@pytest.mark.parametrize("name", NAMES)
@EXAMPLES
@given(data=st.data())
def test_a_cell_takes_stored_values_of_the_type_only(name: str, data: st.DataObject) -> None:
    """Whatever a cell takes, a client can show. The checks of rows and of columns agree."""
    import pyarrow

    kind = logical_type(name)
    schema = TableSchema.parse([Column("k", "int64", "ascending"), Column("v", name)])
    good = store_of(kind)(data.draw(users_values(name)), "v")
    value = data.draw(damaged(good))
    if value is None:
        return
    write = schema.key_of({"k": 1}), 1, (value,)
    try:
        schema.stored.check_write(write)
    except SchemaViolation:
        is_good = False
    else:
        is_good = True
        load_of(kind)(value)
    assert schema.stored.code.are_plain([write], KEY_MIN, KEY_MAX) is None
    packed = pyarrow.array([msgspec.msgpack.encode(it) for it in (good, value)], pyarrow.binary())
    if is_good:
        check_stored_array(kind, "v", packed)
        user_array(kind, packed).validate(full=True)
        return
    with pytest.raises(SchemaViolation) as caught:
        check_stored_array(kind, "v", packed)
    assert caught.value.attributes["row_index"] == 1


@pytest.mark.parametrize("name", NAMES)
@EXAMPLES
@given(data=st.data())
def test_bytes_that_are_no_stored_value_are_refused(name: str, data: st.DataObject) -> None:
    import pyarrow

    kind = logical_type(name)
    good = msgspec.msgpack.encode(store_of(kind)(data.draw(users_values(name)), "v"))
    place = data.draw(st.integers(0, len(good)))
    bad = good[:place] + data.draw(st.binary(max_size=2)) + good[place + 1 :]
    column = pyarrow.array([good, bad, good], pyarrow.binary())
    if _is_stored(kind, bad):
        check_stored_array(kind, "v", column)
        return
    with pytest.raises(SchemaViolation) as caught:
        check_stored_array(kind, "v", column)
    assert caught.value.attributes["row_index"] == 1


def _is_stored(kind: LogicalType, packed: bytes) -> bool:
    try:
        value = msgspec.msgpack.decode(packed)
        check_of(kind)(value, "v")
    except (msgspec.MsgspecError, UnicodeError, SchemaViolation):
        return False
    return msgspec.msgpack.encode(value) == packed
