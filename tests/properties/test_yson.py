"""YSON of any value: what is written is read, and YTsaurus's own codecs agree.

Also: the fast way to read rows is the general one, only faster, and so is that to write them.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dodona.errors import InvalidRequest, LimitExceeded
from dodona.schema import ColumnType
from dodona_ytsaurus.yson import (
    Attributed,
    Format,
    RowReader,
    RowWriter,
    Strings,
    Uint64,
    dumps,
    loads,
)
from dodona_ytsaurus.yson.templates import ALIKE_MIN
from dodona_ytsaurus.yt_json import JsonOptions, dumps_json, loads_json
from unit.ytsaurus.yson.peers import (
    PEER_ERRORS,
    native_dumps,
    native_loads,
    python_dumps,
    python_loads,
    to_ours,
    to_theirs,
)
from unit.ytsaurus.yson.shapes import INTEGERS, KEYS, SCALARS, STRINGS, UNSIGNED, VALUES, exact

FORMATS: list[Format] = ["binary", "text", "pretty"]
formats = pytest.mark.parametrize("format", FORMATS)


# ---- values


@formats
@given(value=VALUES)
def test_a_written_yson_value_is_read_back_unchanged(format: Format, value: Any) -> None:
    assert exact(loads(dumps(value, format))) == exact(value)


@formats
@given(value=VALUES)
def test_text_is_read_as_well_as_bytes(format: Format, value: Any) -> None:
    written = dumps(value, format)
    assert dumps(loads(written, strings="text"), format) == written


@formats
@given(value=VALUES)
def test_the_native_codec_writes_the_same_bytes(format: Format, value: Any) -> None:
    assert dumps(value, format) == native_dumps(to_theirs(value), yson_format=format)


@given(value=st.floats(), exponent=st.integers(-25, 25), digits=st.integers(-(10**17), 10**17))
def test_the_native_codec_spells_doubles_the_same(value: float, exponent: int, digits: int) -> None:
    for number in (value, digits * 10.0**exponent, digits / 10**17):
        assert dumps(number, "text") == native_dumps(number, yson_format="text")


@given(value=st.binary() | st.lists(st.sampled_from(b'\x00\x01\x0709afg\\"\xff')).map(bytes))
def test_the_native_codec_spells_strings_the_same(value: bytes) -> None:
    assert dumps(value, "text") == native_dumps(value, yson_format="text")


@formats
@given(items=st.lists(VALUES, max_size=3), entries=st.dictionaries(KEYS, VALUES, max_size=3))
def test_the_native_codec_writes_the_same_fragments(
    format: Format, items: list[Any], entries: dict[str, Any]
) -> None:
    for kind, value in (("list_fragment", items), ("map_fragment", entries)):
        theirs = native_dumps(to_theirs(value), yson_format=format, yson_type=kind)
        assert dumps(value, format, kind=kind) == theirs  # type: ignore[arg-type]
        assert exact(loads(theirs, kind=kind)) == exact(value)  # type: ignore[arg-type]


@formats
@pytest.mark.parametrize("read", [native_loads, python_loads])
@given(value=VALUES)
def test_other_codecs_read_our_yson(format: Format, read: Callable[..., Any], value: Any) -> None:
    theirs = read(dumps(value, format), encoding=None, always_create_attributes=True)
    assert exact(to_ours(theirs)) == exact(value)


@formats
@given(value=VALUES)
def test_we_read_the_yson_of_the_pure_python_codec(format: Format, value: Any) -> None:
    assert exact(loads(python_dumps(to_theirs(value), yson_format=format))) == exact(value)


TEXT_TOKENS = [
    *[b"[", b"]", b"{", b"}", b"<", b">", b";", b"=", b"#", b" ", b"\n", b"{a=", b"<a=1>", b"[1;"],
    *[
        b"1",
        b"-5",
        b"5u",
        b"1.5",
        b"1e5",
        b"1.",
        b".",
        b"e",
        b"u",
        b"+",
        b"-",
        b"1844674407370955161",
    ],
    *[b"%true", b"%false", b"%nan", b"%-inf", b"%tru", b"a", b"_b-.", b"a%b"],
    *[b'"', b'"a"', b'"\\x41\\7"', b"\\", b"1;"],
]
BINARY_TOKENS = [
    *[b"\x01\x02a", b'\x01\x04"]', b"\x02\x02", b"\x02\x81\x01", b"\x03abcdefgh", b"\x04", b"\x05"],
    *[b"\x06\x07", b"\x01", b"\x02", b"\x80", b"\xff", b"\x07", b"\x0c"],
]
SOUP = st.lists(st.sampled_from([*TEXT_TOKENS, *BINARY_TOKENS]), max_size=12)


@given(pieces=SOUP)
def test_the_native_codec_takes_and_refuses_the_same(pieces: list[bytes]) -> None:
    """All but what ends at a NUL there, and integers that are cut to 64 bits there."""
    data = b"".join(pieces)
    assume(b"\0" not in data and not re.search(rb"[\x80-\xff]{9}", data))
    try:
        theirs = native_loads(data, encoding=None, always_create_attributes=True)
        expected = exact(to_ours(theirs))
    except PEER_ERRORS:
        with pytest.raises(InvalidRequest):
            loads(data)
    except UnicodeDecodeError:
        pass  # a key of theirs that can't be one of ours
    else:
        assert exact(loads(data)) == expected


# ---- rows

COLUMN_VALUES: dict[ColumnType, st.SearchStrategy[Any]] = {
    "int64": INTEGERS,
    "uint64": UNSIGNED | UNSIGNED.map(int),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": STRINGS | st.text(max_size=5) | st.binary(min_size=60, max_size=70),
    "utf8": st.text(max_size=5),
    "any": VALUES,
}
COLUMN_TYPES: list[ColumnType] = list(COLUMN_VALUES)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[str, ColumnType]], list[tuple[Any, ...]]]:
    names = draw(st.lists(KEYS, min_size=1, max_size=5, unique=True))
    columns = [(name, draw(st.sampled_from(COLUMN_TYPES))) for name in names]
    row = st.tuples(*[st.none() | COLUMN_VALUES[type] for _, type in columns])
    return columns, draw(st.lists(row, max_size=6))


@formats
@given(table=tables())
def test_rows_are_written_as_values_are(format: Format, table: Any) -> None:
    columns, rows = table
    written = RowWriter(columns, format).encode(rows)
    typed = [
        {
            name: Uint64(value) if type == "uint64" and value is not None else value
            for (name, type), value in zip(columns, row, strict=True)
        }
        for row in rows
    ]
    assert written == dumps(typed, format, kind="list_fragment")
    named = [dict(reversed(list(zip(dict(columns), row, strict=True)))) for row in rows]
    assert RowWriter(columns, format).encode(named) == written
    # One that is missing makes all of them be written one by one.
    assert RowWriter(columns, format).encode([*rows, None])[: len(written)] == written


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Rows that are alike, so that they are read the fast way, some that are not, and damage."""
    names = draw(st.lists(KEYS, min_size=1, max_size=4, unique=True))
    usual = st.one_of(st.none(), st.booleans(), INTEGERS, UNSIGNED, st.floats(), STRINGS)
    rows = [{name: draw(SCALARS) for name in names} for _ in range(2)] * ALIKE_MIN
    for _ in range(draw(st.integers(0, 6))):
        rows.append({name: draw(usual) for name in names})
        if draw(st.integers(0, 5)) == 0:
            rows.append(draw(VALUES))
    format: Format = draw(st.sampled_from(["binary", "text"]))
    found = TEXT_TOKENS if format == "text" else BINARY_TOKENS
    data = bytearray(dumps(rows, format, kind="list_fragment"))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(len(data) // 2, len(data)))
        length = draw(st.integers(0, 2))
        data[at : at + length] = draw(st.sampled_from(found) | st.binary(max_size=3))
    return bytes(data)


def outcome_of(read: Callable[[], Any]) -> Any:
    try:
        return exact(read())
    except InvalidRequest as error:
        return type(error), error.message, error.attributes


@given(
    data=streams(),
    cuts=st.lists(st.integers(0, 2000)),
    strings=st.sampled_from(["bytes", "text"]),
    keeps_uint64=st.booleans(),
)
def test_rows_that_are_read_in_parts_equal_rows_that_are_read_whole(
    data: bytes, cuts: list[int], strings: Strings, keeps_uint64: bool
) -> None:
    def read_in_parts() -> list[Any]:
        reader = RowReader(strings=strings, keeps_uint64=keeps_uint64)
        places = [0, *sorted(cuts), len(data)]
        rows = []
        for start, end in pairwise(places):
            rows += reader.feed(data[start:end])
        return rows + reader.finish()

    whole = outcome_of(
        lambda: loads(data, kind="list_fragment", strings=strings, keeps_uint64=keeps_uint64)
    )
    found = outcome_of(read_in_parts)
    if found and found[0] is LimitExceeded:  # a string that says that it will be very long
        found = (InvalidRequest, "malformed YSON: it ends too early", {"offset": len(data)})
    assert found == whole


# ---- JSON


@pytest.mark.parametrize("encode_utf8", [True, False])
@given(value=VALUES)
def test_a_value_that_was_written_as_json_is_read_back(encode_utf8: bool, value: Any) -> None:
    options = JsonOptions(encode_utf8=encode_utf8)
    try:
        written = dumps_json(value, options)
    except InvalidRequest:
        return  # NaN, or bytes that are no UTF-8
    assert exact(loads_json(written, options)) == exact(_as_in_json(value))


def _as_in_json(value: Any) -> Any:
    """A uint64 that is small is an integer like others."""
    if isinstance(value, Attributed):
        return Attributed(_as_in_json(value.value), _as_in_json(value.attributes))
    if isinstance(value, dict):
        return {key: _as_in_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_in_json(item) for item in value]
    return int(value) if isinstance(value, Uint64) and value < 1 << 63 else value
