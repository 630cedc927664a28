"""Rows of a table, written from columns."""

from typing import Any

import pytest

from dodona.errors import InvalidRequest
from dodona.schema import ColumnType
from dodona_ytsaurus.yson import Attributed, Format, RowWriter, Uint64, dumps, loads
from dodona_ytsaurus.yson.row_writer import ROWS_PER_PART

COLUMNS: list[tuple[str, ColumnType]] = [
    ("i", "int64"),
    ("u", "uint64"),
    ("d", "double"),
    ("b", "boolean"),
    ("s", "string"),
    ("t", "utf8"),
    ("a", "any"),
]
ROW = (-1, 1, 1.5, True, b"\xff", "é", {"x": [1 << 63, None]})
ROWS: list[Any] = [ROW, (None,) * 7, [0, Uint64(1 << 63), -0.0, False, b"", "", b"any"]]


def test_rows_in_text() -> None:
    assert RowWriter(COLUMNS, "text").encode(ROWS) == (
        rb'{"i"=-1;"u"=1u;"d"=1.5;"b"=%true;"s"="\xFF";"t"="\xC3\xA9";'
        rb'"a"={"x"=[9223372036854775808u;#;];};};' + b"\n"
        rb'{"i"=#;"u"=#;"d"=#;"b"=#;"s"=#;"t"=#;"a"=#;};' + b"\n"
        rb'{"i"=0;"u"=9223372036854775808u;"d"=-0.;"b"=%false;"s"="";"t"="";"a"="any";};' + b"\n"
    )


def test_rows_in_binary() -> None:
    assert RowWriter(COLUMNS[:5]).encode([ROW[:5], (None,) * 5]) == (
        b"{\x01\x02i=\x02\x01;\x01\x02u=\x06\x01;\x01\x02d=\x03\x00\x00\x00\x00\x00\x00\xf8?;"
        b"\x01\x02b=\x05;\x01\x02s=\x01\x02\xff;};"
        b"{\x01\x02i=#;\x01\x02u=#;\x01\x02d=#;\x01\x02b=#;\x01\x02s=#;};"
    )


def test_the_row_writer_writes_a_short_row_as_yson_text() -> None:
    assert RowWriter([("x", "string")], "text").encode([(b"b",)]) == b'{"x"="b";};\n'


@pytest.mark.parametrize("format", ["binary", "text", "pretty"])
def test_every_way_to_give_a_row_gives_the_same(format: Format) -> None:
    writer = RowWriter(COLUMNS, format)
    by_place = writer.encode([ROW, ROW])
    named = dict(zip(writer.names, ROW, strict=True))
    backwards = dict(reversed(named.items()))
    assert writer.encode([list(ROW), ROW]) == by_place
    assert writer.encode([named, backwards]) == by_place
    assert writer.encode([named, ROW]) == by_place
    assert writer.encode([Attributed(ROW, {}), named]) == by_place


@pytest.mark.parametrize("format", ["binary", "text", "pretty"])
def test_a_row_may_be_missing_or_lack_columns(format: Format) -> None:
    writer = RowWriter([("k", "uint64"), ("v", "string")], format)
    rows: list[Any] = [None, (1, b"a"), None, {"v": "b"}, {"k": None}, {}]
    assert loads(writer.encode(rows), kind="list_fragment") == [
        None, {"k": 1, "v": b"a"}, None, {"v": b"b"}, {"k": None}, {},
    ]  # fmt: skip
    assert b"".join(writer.encode([row]) for row in rows) == writer.encode(rows)


def test_versioned_rows() -> None:
    versions = [Attributed(2, {"timestamp": Uint64(5)}), Attributed(None, {"timestamp": Uint64(3)})]
    stamps = {"write_timestamps": [Uint64(5), Uint64(3)], "delete_timestamps": []}
    writer = RowWriter([("key", "int64"), ("value", "uint64")], "text")
    assert writer.encode([Attributed({"key": 1, "value": versions}, stamps)]) == (
        b'<"write_timestamps"=[5u;3u;];"delete_timestamps"=[];>'
        b'{"key"=1;"value"=[<"timestamp"=5u;>2u;<"timestamp"=3u;>#;];};\n'
    )


def test_many_rows_come_in_parts() -> None:
    writer = RowWriter([("n", "int64")])
    rows = [(n,) for n in range(ROWS_PER_PART + 1)]
    parts = list(writer.parts(iter(rows)))
    assert len(parts) == 2
    assert b"".join(parts) == writer.encode(rows)
    assert writer.encode([]) == b""


@pytest.mark.parametrize("format", ["binary", "text", "pretty"])
@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (0, True, "int64 can't hold bool"),
        (0, 1.0, "int64 can't hold float"),
        (0, 1 << 63, "fit"),
        (0, -(1 << 63) - 1, "fit"),
        (1, -1, "uint64"),
        (1, 1 << 64, "uint64"),
        (1, b"1", "uint64 can't hold bytes"),
        (2, "1", "double can't hold str"),
        (2, True, "double can't hold bool"),
        (2, 1 << 2000, "does not fit in double"),
        (3, 1, "boolean can't hold int"),
        (4, 1, "string can't hold int"),
        (4, "\ud800", "not valid Unicode"),
        (5, [], "utf8 can't hold list"),
        (6, object(), "can't hold a value of type object"),
    ],
)
def test_a_value_of_another_type_is_refused(
    format: Format, place: int, value: Any, says: str
) -> None:
    row = [*ROW[:place], value, *ROW[place + 1 :]]
    with pytest.raises(InvalidRequest, match=says):
        RowWriter(COLUMNS, format).encode([ROW, row, ROW])
    with pytest.raises(InvalidRequest, match=says):
        RowWriter(COLUMNS, format).encode([None, row])


def test_an_error_names_the_column() -> None:
    for wrong in (True, 1 << 63):
        with pytest.raises(InvalidRequest) as caught:
            RowWriter(COLUMNS).encode([(wrong, *ROW[1:])])
        assert caught.value.attributes["column"] == "i"


@pytest.mark.parametrize(
    "rows",
    [
        [(1,)],
        [(1, 2, 3)],
        [(1, 2), (1,)],
        [(1,), (1, 2)],
        [{"k": 1, "x": 2}],
        [{"k": 1, "v": 2, "x": 3}],
        [None, (1, 2, 3)],
        [Attributed((1,), {"a": 1})],
    ],
)
def test_a_row_of_other_columns_is_refused(rows: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match="column"):
        RowWriter([("k", "int64"), ("v", "int64")]).encode(rows)


def test_columns_are_checked() -> None:
    for wrong in ([], [("a", "int64"), ("a", "int64")], [("a", "int32")], [("\ud800", "int64")]):
        with pytest.raises(InvalidRequest):
            RowWriter(wrong)


def test_values_come_as_the_column_takes_them() -> None:
    columns: list[tuple[str, ColumnType]] = [("d", "double"), ("s", "string"), ("t", "utf8")]
    rows: list[Any] = [(1, "é", b"\xc3\xa9"), (None, None, None)]
    expected = [{"d": 1.0, "s": "é".encode(), "t": "é"}, {"d": None, "s": None, "t": None}]
    assert RowWriter(columns).encode(rows) == dumps(expected, kind="list_fragment")
