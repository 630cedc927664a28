"""Values, numbers and keys as the console shows and reads them."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import DodonaError, InvalidRequest
from dodona.schema import TableSchema
from dodona_gateway.core.console.keys import LENGTH_MAX, format_bound, read_bound
from dodona_gateway.core.console.shown import (
    BINARY_BYTES_MAX,
    TEXT_LENGTH_MAX,
    Shown,
    is_numeric,
    show_bytes,
    show_count,
    show_duration,
    show_rate,
    show_ratio,
    show_value,
    visible,
)
from dodona_gateway.shell.console.rendering import render
from dodona_gateway.shell.console.table_pages import NOW


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, Shown("null", "null")),
        (True, Shown("true", "boolean")),
        (-7, Shown("-7", "number")),
        (2**64 - 1, Shown("18446744073709551615", "number")),
        (0.1, Shown("0.1", "number")),
        (float("nan"), Shown("nan", "number")),
        ("", Shown("", "text", "empty")),
        (b"", Shown("", "text", "empty")),
        (b"lamp", Shown("lamp", "text")),
        ("null", Shown("null", "text")),
        ("<b>", Shown("<b>", "text")),
        ("a\tb\n\u202ec", Shown("a\\tb\\n\\u202ec", "text")),
        (b"\xff\x00", Shown("ff 00", "binary", "binary, 2 bytes")),
        ({"a": [1, None]}, Shown('{"a":[1,null]}', "any")),
        ({"a": b"\xff"}, Shown('{"a":{"$base64":"/w=="}}', "any")),
    ],
)
def test_a_value_is_shown_as_text_with_its_kind(value: Any, shown: Shown) -> None:
    assert show_value(value) == shown


def test_a_long_value_is_cut_with_a_note() -> None:
    text = show_value("é" * 5000)
    assert (text.text, text.note) == ("é" * TEXT_LENGTH_MAX + "…", "cut, 5,000 characters")
    assert show_value("é" * TEXT_LENGTH_MAX).note == ""
    binary = show_value(b"\xff" * 1000)
    assert len(binary.text) == 3 * BINARY_BYTES_MAX + 1
    assert binary.note == "binary, 1,000 bytes"
    assert show_value([*range(1000)]).note.startswith("cut, ")


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    assert visible(text).isprintable()


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (9_999, "10.0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations(duration_ms: int, text: str) -> None:
    assert show_duration(duration_ms) == text


def test_numbers() -> None:
    assert [show_bytes(it) for it in (0, 1023, 1024, 3 << 20, 5 << 60)] == [
        *("0 B", "1023 B", "1.0 KiB", "3.0 MiB"),
        "5,120.0 PiB",
    ]
    assert [show_count(1, "row"), show_count(1204, "row")] == ["1 row", "1,204 rows"]
    assert show_count(2, "entry", "entries") == "2 entries"
    assert [show_rate(it) for it in (None, 0.0, 0.04, 9.94, 12.4, 48211.0)] == [
        *("–", "0", "0.0", "9.9", "12", "48,211"),
    ]
    assert [show_ratio(it) for it in (0.0, 0.001, 0.0996, 0.5, 1.0)] == [
        *("0 %", "0.1 %", "10 %", "50 %", "100 %"),
    ]
    kinds = ("int64", "uint8", "double", "decimal128(38, 0)", "string", "binary", "bool")
    assert [is_numeric(it) for it in kinds] == [True] * 4 + [False] * 3


# ---- columns and keys


def test_a_descending_key_column_has_a_mark() -> None:
    schema = TableSchema.parse(
        [
            {"name": "user", "type": "utf8", "sort_order": "ascending"},
            {"name": "at", "type": "int64", "sort_order": "descending"},
            {"name": "v", "type": "int64"},
        ]
    )
    given: dict[str, Any] = dict.fromkeys(("lower", "upper", "following", "at", "error"), "")
    text = render(
        "rows.html",
        None,
        **given | {"path": "//t", "crumbs": [], "schema": schema, "columns": schema.columns},
        as_of=NOW,
        rows=[["ann", 5, 1]],
        took_ms=1.0,
    )
    assert re.findall(r'title="(\w+) key column"> key( ↓)?<', text) == [
        ("ascending", ""),
        ("descending", " ↓"),
    ]


SCHEMA = TableSchema.parse(
    [
        {"name": "item", "type": "string", "sort_order": "ascending"},
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "note", "type": "utf8"},
    ]
)
NUMBERS = TableSchema.parse(
    [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "v", "type": "any"}]
)


@given(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_a_key_in_an_address_is_the_same_key(values: tuple[bytes | None, int | None]) -> None:
    text = format_bound(SCHEMA, values)
    assert read_bound(SCHEMA, text, "from key") == [*values]


def test_people_may_write_the_first_value_alone() -> None:
    assert read_bound(NUMBERS, " 7 ", "from key") == [7]
    assert read_bound(SCHEMA, "lamp", "from key") == [b"lamp"]
    assert read_bound(SCHEMA, '["[x]"]', "from key") == [b"[x]"]
    assert read_bound(SCHEMA, "[]", "from key") == []
    assert read_bound(SCHEMA, "  ", "from key") is None


@pytest.mark.parametrize("text", ["[1, 2]", '["x"]', "x", "[", "[7", "1e3", "x" * (LENGTH_MAX + 1)])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(DodonaError):
        read_bound(NUMBERS, text, "from key")


def test_the_error_for_a_too_long_key_names_the_key_columns() -> None:
    with pytest.raises(InvalidRequest, match="values of item, id"):
        read_bound(SCHEMA, '["x", 1, 2]', "from key")
