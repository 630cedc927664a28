"""Formats: which there are, and what rows and values become in them."""

import json
from typing import Any

import pytest

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.terms.formats import ROWS_MAX, parse_format
from dodona_ytsaurus.yson import Attributed, Uint64

COLUMNS = [("k", "int64"), ("v", "string"), ("u", "uint64")]
ROWS = [(1, "Ж", 5), {"u": None, "k": 2, "v": b"\xff"}, None]


def rows_in(form: Any, *parts: bytes) -> list[Any]:
    reader = parse_format(form, "yson").row_reader()
    rows = [row for part in parts for row in reader.feed(part)]
    return [*rows, *reader.finish()]


def test_yson_in_three_forms() -> None:
    text = parse_format(Attributed("yson", {"format": "text"}), "json")
    assert text.encode_rows(COLUMNS, ROWS) == (
        b'{"k"=1;"v"="\\xD0\\x96";"u"=5u;};\n{"k"=2;"v"="\\xFF";"u"=#;};\n#;\n'
    )
    assert text.media_type == "application/x-yt-yson-text"
    pretty = parse_format(Attributed("yson", {"format": "pretty"}), "json")
    assert pretty.encode_value({"a": [1]}) == b'{\n    "a" = [\n        1;\n    ];\n}'
    binary = parse_format("yson", "json")
    assert binary.media_type == "application/x-yt-yson-binary"
    assert binary.encode_value("x") == b"\x01\x02x"
    assert binary.encode_value(None) == b"#"


def test_json_mangled_and_not() -> None:
    mangled = parse_format("json", "yson")
    assert mangled.media_type == "application/json"
    written = mangled.encode_rows(COLUMNS, ROWS).split(b"\n")
    assert [json.loads(it) for it in written[:3]] == [
        {"k": 1, "v": "\u00d0\u0096", "u": 5},
        {"k": 2, "v": "\u00ff", "u": None},
        None,
    ]
    assert list(json.loads(written[1])) == ["k", "v", "u"]
    plain = parse_format(Attributed("json", {"encode_utf8": False}), "yson")
    assert json.loads(plain.encode_value({"v": "Ж"})) == {"v": "Ж"}


def test_defaults() -> None:
    assert parse_format(None, "json").media_type == "application/json"
    assert parse_format(None, "yson").media_type == "application/x-yt-yson-binary"


FORMS: tuple[Any, ...] = ("other", 5, None, [], {})


@pytest.mark.parametrize(
    "form",
    [
        *("dsv", "", 5, [], {}, True, b"yson", Attributed("dsv", {"a": 1})),
        *(Attributed("yson", {"format": it}) for it in FORMS),
    ],
)
def test_formats_that_are_none(form: Any) -> None:
    with pytest.raises(InvalidRequest):
        parse_format(form, "yson")


@pytest.mark.parametrize("form", ["yson", Attributed("yson", {"format": "text"})])
def test_rows_of_any_form_of_yson_are_read(form: Any) -> None:
    row = {"k": 1, "v": "Ж", "u": 2**64 - 1, "b": b"\xff", "n": None, "l": [1, {"a": 2}]}
    text = '{k=1;v="Ж";u=18446744073709551615u;b="\\xFF";n=#;l=[1;{a=2u}]}'.encode()
    binary = b"{\x01\x02k=\x02\x02;\x01\x02v=\x01\x04\xd0\x96;};"
    rows = rows_in(form, text + b";", binary[:5], binary[5:], text)
    assert rows == [row, {"k": 1, "v": "Ж"}, row]
    assert type(rows[0]["u"]) is int
    assert type(rows[0]["l"][1]["a"]) is int


def test_rows_of_json_are_read_line_by_line() -> None:
    rows = rows_in("json", b'{"k":18446744073709551615,"v":"\\u00d0', b'\\u0096"}\n{"k":2}')
    assert rows == [{"k": 2**64 - 1, "v": "Ж"}, {"k": 2}]
    assert type(rows[0]["k"]) is int
    plain = Attributed("json", {"encode_utf8": False})
    assert rows_in(plain, '{"v":"Ж"}'.encode()) == [{"v": "Ж"}]


def test_values_are_read() -> None:
    assert parse_format("yson", "json").decode_value(b"{a=[1u;x]}") == {"a": [Uint64(1), "x"]}
    assert parse_format("json", "json").decode_value(b'{"a":["\\u00d0\\u0096"]}') == {"a": ["Ж"]}
    for name in ("yson", "json"):
        for content in (b"", b"{", b"{}{}"):
            with pytest.raises(InvalidRequest):
                parse_format(name, "json").decode_value(content)


def test_rows_are_bounded() -> None:
    assert len(rows_in("yson", b"{k=1};" * (ROWS_MAX - 1))) == ROWS_MAX - 1
    for form, row in (("yson", b"{k=1};"), ("json", b'{"k":1}\n')):
        with pytest.raises(LimitExceeded):
            rows_in(form, row * (ROWS_MAX + 1))
    for form, row in (
        ("yson", b"{a=[" + b"1;" * 250_001 + b"]};"),
        ("json", b'{"a":[' + b"1," * 250_001 + b"1]}\n"),
        ("json", b'{"a":"' + b"x" * (8 << 20) + b'"}\n'),
        ("yson", b'{a="' + b"x" * (32 << 20) + b'"};'),
    ):
        with pytest.raises(LimitExceeded):
            rows_in(form, row)
