"""Rows of any table leave as JSON and come back as they were; so they do as MessagePack."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.schema import TableSchema
from dodona_gateway.core.answers import FoundRows
from dodona_gateway.core.content import Form, decode_body, encode_body
from dodona_gateway.core.json_values import convert_rows, converters, given_rows, text_converters
from dodona_gateway.core.requests import InsertRows

SCHEMA = TableSchema.parse(
    [
        {"name": "k", "type": "string", "sort_order": "ascending"},
        *({"name": it, "type": it} for it in ("int64", "uint64", "double", "boolean")),
        *({"name": it, "type": it} for it in ("string", "utf8", "any")),
        {"name": "dict", "type": "dict<utf8,optional<any>>"},
        {"name": "struct", "type": 'struct<"$base64":optional<string>>'},
    ]
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
some_bytes = st.binary(max_size=5) | texts.map(str.encode) | st.just(b'{"$base64":""}')
integers = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([-(1 << 63), (1 << 63) - 1])
naturals = st.integers(0, (1 << 64) - 1) | st.just((1 << 64) - 1)
doubles = st.floats()
names = texts | st.sampled_from(["$", "$$", "$base64", "$double", "$$base64", "a$"])
leaves = st.none() | st.booleans() | integers | naturals | doubles | texts | st.binary(max_size=5)
trees = st.recursive(
    leaves, lambda it: st.lists(it, max_size=3) | st.dictionaries(names, it, max_size=3)
)
rows = st.fixed_dictionaries(
    {"k": some_bytes, "int64": st.none() | integers},
    optional={
        "uint64": st.none() | naturals,
        "double": st.none() | doubles,
        "boolean": st.none() | st.booleans(),
        "string": st.none() | some_bytes,
        "utf8": st.none() | texts,
        "any": trees,
        "dict": st.none() | st.dictionaries(names, trees, max_size=2),
        "struct": st.none() | st.fixed_dictionaries({"$base64": st.none() | some_bytes}),
    },
)


def stored(row: dict[str, Any]) -> bytes:
    """What is kept of it, byte by byte: NaN is equal to nothing, and 1 is equal to 1.0."""
    key, _, values = SCHEMA.write_of(one_nan(row), is_update=False)
    return msgspec.msgpack.encode((key, values))


def one_nan(value: Any) -> Any:
    """JSON has one word for all NaNs: their signs and the rest of their bits mean nothing."""
    if isinstance(value, float) and value != value:
        return math.nan
    if isinstance(value, list | tuple):
        return [one_nan(it) for it in value]
    return {name: one_nan(it) for name, it in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("form", ["json", "msgpack"])
@given(st.lists(rows, max_size=3))
def test_rows_that_were_read_can_be_inserted_again_unchanged(
    form: Form, read: list[dict[str, Any]]
) -> None:
    convert = (converters if form == "json" else text_converters)(SCHEMA.columns)
    shown = convert_rows(read, convert)
    plain: Any = msgspec.json if form == "json" else msgspec.msgpack
    found = plain.decode(encode_body(FoundRows(shown), form))["rows"]
    asked = decode_body(plain.encode({"table": "//t", "rows": found}), form, InsertRows)
    again = given_rows(SCHEMA, asked.rows, "//t", is_json=form == "json")
    assert [stored(it) for it in again] == [stored(it) for it in read]
