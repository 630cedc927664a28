"""Rows and tables in a notebook: HTML that is bounded, and in which nothing of the data is HTML."""

from typing import Any

import pytest

import dodona
from dodona import Rows
from dodona.schema import Column, TableSchema
from dodona_wire.types import CellId, Revision, TabletId

EVIL = "<script>alert('&')</script>"


def info(columns: list[Column], *states: str) -> dodona.TableInfo:
    tablets = [
        dodona.TabletInfo(TabletId(number), (), state, CellId(0), Revision(1))
        for number, state in enumerate(states)
    ]
    return dodona.TableInfo("//t", TableSchema(tuple(columns)), "full", tuple(tablets))


def html(it: Any) -> str:
    return str(it._repr_html_())


@pytest.mark.parametrize("value", [EVIL, EVIL.encode(), {EVIL: [EVIL]}])
def test_names_and_values_are_escaped(value: Any) -> None:
    text = html(Rows([Column(EVIL, "any")], [(value,)]))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 2


def test_a_null_differs_from_a_text() -> None:
    text = html(Rows([Column("t", "utf8")], [(None,), ("null",), ("None",), (1,)]))
    cells = "<i>null</i>", "&#x27;null&#x27;", "&#x27;None&#x27;", "1"
    assert "".join(f"<tr><td>{it}</td></tr>" for it in cells) in text


def test_what_is_left_out_is_counted() -> None:
    columns = [Column(f"c{number}", "int64") for number in range(25)]
    rows = Rows(columns, [tuple(range(25))] * 1234)
    text = html(rows)
    assert (text.count("<tr>"), text.count("<th>"), text.count("<td>")) == (21, 20, 400)
    assert "<p>1,234 rows (1,214 not shown), 25 columns (5 not shown)</p>" in text
    assert "<p>1 row, 25 columns (5 not shown)</p>" in html(rows[:1])
    assert "<p>0 rows</p>" in html(Rows(columns[:20], []))


def test_a_long_value_is_cut() -> None:
    assert len(html(Rows([Column("n" * 200, "string")], [(b"x" * (1 << 20),)]))) < 500


def test_a_table_shows_its_columns_and_states() -> None:
    table = info(
        [Column("k", "int64", "ascending"), Column("<b>", "utf8", lock="&", required=True)],
        "mounted",
        "frozen",
        "mounted",
    )
    assert repr(table) == (
        "<TableInfo //t: k:int64:key, <b>:utf8:required:lock=&, atomicity full, "
        "tablets: 2 mounted, 1 frozen>"
    )
    text = html(table)
    assert "<td>&lt;b&gt;</td><td>utf8</td><td><i>null</i></td><td>True</td><td>&amp;</td>" in text
    assert "<p>//t, atomicity full, tablets: 2 mounted, 1 frozen, 2 columns</p>" in text


def test_a_table_with_a_thousand_columns_and_tablets_is_short() -> None:
    table = info([Column(f"c{number}", "int64") for number in range(1000)], *["mounted"] * 1000)
    assert "c19:int64, and 980 more columns, atomicity" in repr(table)
    assert len(repr(table)) < 400
    assert "1,000 columns (980 not shown)" in html(table)
