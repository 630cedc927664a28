"""What a read gives back: a list of dicts to look at, a table to compute with."""

from typing import Any

import msgspec
import pyarrow
import pytest

from dodona import Rows
from dodona.schema import Column

COLUMNS = (
    Column("id", "int64", "ascending"),
    Column("name", "utf8"),
    Column("extra", "any"),
)
TUPLES: list[tuple[Any, ...]] = [(1, "one", {"a": [1]}), (2, None, None), (3, "three", 5)]
DICTS = [dict(zip(("id", "name", "extra"), it, strict=True)) for it in TUPLES]


def rows() -> Rows:
    return Rows(COLUMNS, TUPLES)


def test_rows_are_a_sequence_of_dicts() -> None:
    it = rows()
    assert len(it) == 3
    assert list(it) == DICTS
    assert (it[0], it[-1]) == (DICTS[0], DICTS[-1])
    assert it[1:] == DICTS[1:]
    assert isinstance(it[1:], Rows)
    assert DICTS[1] in it
    assert it.index(DICTS[2]) == 2
    assert list(reversed(it)) == DICTS[::-1]
    with pytest.raises(IndexError):
        it[3]


def test_rows_are_equal_to_rows_and_lists_with_the_same_content() -> None:
    assert rows() == rows()
    assert rows() == DICTS
    assert rows() != DICTS[:2]
    assert rows() != "rows"
    assert rows() != rows()[:2]
    with pytest.raises(TypeError):
        hash(rows())


def test_a_change_of_a_dict_does_not_change_the_rows() -> None:
    it = rows()
    it[0]["name"] = "changed"
    assert it[0] == DICTS[0]


def test_columns_and_tuples() -> None:
    assert rows().columns == ("id", "name", "extra")
    assert rows().tuples() == TUPLES


def test_rows_become_arrow() -> None:
    table = rows().to_arrow()
    assert table.schema.names == ["id", "name", "extra"]
    assert table.schema.types == [pyarrow.int64(), pyarrow.string(), pyarrow.binary()]
    assert table.column("id").to_pylist() == [1, 2, 3]
    packed = table.column("extra").to_pylist()
    assert [None if it is None else msgspec.msgpack.decode(it) for it in packed] == [
        {"a": [1]},
        None,
        5,
    ]


def test_no_rows_have_the_same_columns() -> None:
    none = Rows(COLUMNS, [])
    assert none.to_arrow().schema == rows().to_arrow().schema
    assert none == []
    assert not none
    assert "(0 rows)" in repr(none)


def test_rows_become_a_frame() -> None:
    frame = rows().to_pandas()
    assert list(frame.columns) == ["id", "name", "extra"]
    assert list(frame["id"]) == [1, 2, 3]


def test_rows_show_themselves_as_a_table() -> None:
    shown = repr(Rows(COLUMNS[:2], [(number, "x" * 100) for number in range(20)]))
    lines = shown.splitlines()
    assert lines[0].split() == ["id", "name"]
    assert len(lines) == 2 + 10 + 1
    assert lines[-1] == "(20 rows)"
    assert max(map(len, lines)) < 50
    assert repr(rows()[:1]).endswith("(1 row)")
