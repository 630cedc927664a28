"""Queries in YTsaurus's language over an embedded database: joins, groups, order, odd names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona.errors import InvalidRequest
from dodona.schema import TableSchema
from dodona_ytsaurus.query.parser import parse
from dodona_ytsaurus.query.translation import to_sql

Ask = Callable[..., list[tuple[Any, ...]]]
ACCENT = "é".encode()
BIG = 2**63 + 5


# ---- order


def test_rows_come_in_the_order_of_keys(ask: Ask) -> None:
    assert ask("k from [//t] limit 3") == [(None,), (-7,), (1,)]
    assert ask("k from [//t] where d > -5 limit 1") == [(-7,)]


def test_nulls_are_first_and_last(ask: Ask) -> None:
    assert ask("d, k from [//t] order by d, k limit 9") == [
        (None, None), (None, 2), (-1.5, -7), (2.0, 1),
    ]  # fmt: skip
    assert ask("k from [//t] order by d desc, k desc limit 3") == [(1,), (-7,), (2,)]
    assert ask("k from [//t] order by (b, -k) offset 1 limit 2") == [(2,), (1,)]
    assert ask("k from [//t] order by 1, length(s) as n desc limit 2") == [(1,), (-7,)]
    assert ask("k from [//t] order by true, 'x', k limit 1") == [(None,)]
    assert ask("k from [//t] order by null limit 1") == [(None,)]
    assert ask("k from [//t] limit 0") == []


# ---- conditions


@pytest.mark.parametrize("where", ["if(b, b, b) < b and d <= d", "(d, if(b, b, b)) < (d, b)"])
def test_no_part_of_a_condition_relies_on_what_only_it_proves(ask: Ask, where: str) -> None:
    """A comparison with `<` proves that the greater side is not null, if its SQL says so."""
    assert ask("k from [//t] where b = null and d <= d limit 9")
    assert ask(f"k from [//t] where {where} limit 9") == []


# ---- joins


def test_using_makes_one_column_of_two(ask: Ask) -> None:
    found = ask("* from [//people] join [//cities] using city")
    assert sorted(found, key=repr) == [
        (b"Ann", "Köln".encode(), 30, 1, 2),
        (b"Ann", "Köln".encode(), 30, 2, 2**63),
        (b"Bob", None, 20, 1, 7),
        (b"Cid", b"Bonn", 40, 1, 1),
        (b"Dan", "Köln".encode(), 50, 1, 2),
        (b"Dan", "Köln".encode(), 50, 2, 2**63),
    ]


def test_a_left_join_keeps_rows_without_a_match(ask: Ask) -> None:
    text = """p.name, c.size from [//people] as p left join [//cities] as c
        on (p.city, 2) = (c.city, c.part) order by p.name limit 10"""
    assert ask(text) == [
        (None, None), (b"Ann", 2**63), (b"Bob", None), (b"Cid", None), (b"Dan", 2**63),
    ]  # fmt: skip
    where = "p.name from [//people] p left join [//cities] c on p.city = c.city where "
    assert ask(where + "c.size = null") == [(None,)]
    assert ask(where + "c.part < 1") == [(None,)]
    required = "c.part from [//cities] c left join [//people] p on c.city = p.city and p.age > 99"
    assert ask(f"{required} where p.age < 5 order by c.part limit 9") == [(1,), (1,), (1,), (2,)]


def test_a_join_condition_applies_to_the_joined_table(ask: Ask) -> None:
    text = "name, size from [//people] {} join [//cities] using city and part = 2 and size > 5"
    assert ask(text.format("")) == [(b"Ann", 2**63), (b"Dan", 2**63)]
    assert len(ask(text.format("left"))) == 5


def test_a_table_can_be_joined_with_itself_and_others(ask: Ask) -> None:
    text = """a.name, b.name, c.part from [//people] a
        join [//people] b on a.age + 20 = b.age join [//cities] c on a.city = c.city"""
    assert sorted(ask(text)) == [
        (b"Ann", b"Dan", 1), (b"Ann", b"Dan", 2), (b"Bob", b"Cid", 1), (b"Cid", None, 1),
    ]  # fmt: skip


# ---- groups


def test_groups(ask: Ask) -> None:
    text = """city, sum(1) as n, sum(age), min(name), max(age) - min(age) as span, avg(age) as mean
        from [//people] group by city order by city limit 10"""
    assert ask(text) == [
        (None, 1, 20, b"Bob", 0, 20.0),
        (b"Bonn", 1, 40, b"Cid", 0, 40.0),
        ("Köln".encode(), 2, 80, b"Ann", 20, 40.0),
        (b"Rome", 1, 60, None, 0, 60.0),
    ]


def test_the_values_of_aggregates(ask: Ask) -> None:
    expected: dict[str, object] = {
        "sum(k)": -4,
        "sum(d)": 0.5,
        "sum(if(k = 1, u, null))": BIG,
        "sum(1)": 4,
        "avg(k)": -4 / 3,
        "min(k)": -7,
        "max(u)": 2**64 - 1,
        "min(s)": b"",
        "max(t)": "Éa".encode(),
        "max(b)": True,
        "cardinality(b)": 3,
        "cardinality(k)": 4,
        "first(k)": None,
        "first(s)": b"",
        "argmin(s, k)": ACCENT,
        "argmax(k, u)": 1,
        "sum(k) + 1": -3,
    }
    (found,) = ask(f"{', '.join(expected)} from [//t] group by 1")
    assert dict(zip(expected, found, strict=True)) == expected
    assert list(map(type, found)) == list(map(type, expected.values()))


def test_sums_that_do_not_fit_are_errors(ask: Ask) -> None:
    with pytest.raises(InvalidRequest, match="out of range"):
        ask("sum(u) from [//t] group by 1")


def test_there_is_no_group_of_no_rows(ask: Ask) -> None:
    assert ask("sum(1) from [//t] where k > 100 group by 1") == []
    assert ask("sum(1) from [//t] where k > 100 group by 1 with totals") == []


def test_expressions_after_group_by_refer_to_groups(ask: Ask) -> None:
    text = """g, n, g + n as both, k % 2 = 1 as is_odd from [//t]
        group by k % 2 as g having n > 0 and g != null order by -g limit 5"""
    with pytest.raises(InvalidRequest, match="no column n"):
        ask(text)
    text = text.replace("g, n,", "g, sum(1) as n,")
    assert ask(text) == [(1, 1, 2, True), (0, 1, 1, False), (-1, 1, 0, False)]
    assert ask("s from [//t] where k > 0 group by k, s order by k limit 5") == [
        (b"ab\x00\xff",), (None,),
    ]  # fmt: skip
    sized = "size, sum(1) from [//t] group by if(k > 1, 'big', 'small') as size"
    assert sorted(ask(sized)) == [(b"big", 1), (b"small", 3)]
    assert ask("* from [//t] where k = 1 group by k as x, b") == [(1, False)]
    assert ask("sum(if(k = 1, 5u, 0u)) + 1 from [//t] where k > 0 group by 1") == [(6,)]
    assert ask("sum(k) from [//t] group by k % 2 having k % 2 = 1") == [(1,)]


def test_totals_follow(ask: Ask) -> None:
    text = "city, sum(age) as s from [//people] group by city with totals"
    found = ask(f"{text} having s > 50 order by s desc limit 1")
    assert found == [("Köln".encode(), 80), (None, 200)]
    assert (None, 200) in ask(text)
    flags = "city = 'Bonn' as it, sum(1) from [//people] where city != null group by city"
    assert ask(f"{flags} with totals order by city limit 1") == [(True, 1), (False, 4)]
    flags = "g = true, sum(1) from [//people] group by is_null(city) as g with totals"
    assert ask(f"{flags} order by g limit 9") == [(False, 4), (True, 1), (False, 5)]


# ---- odd names


def test_odd_names(tmp_path: Path) -> None:
    names = ["it's", 'a"b', "select", "r0", "[x]", "a b\n", "{x}", "é"]
    schema = TableSchema.parse(
        [{"name": "k", "type": "int64", "sort_order": "ascending"}]
        + [{"name": name, "type": "int64"} for name in names]
    )
    with dodona.open(str(tmp_path / "data")) as db:
        db.create_table("//odd/t-1.x", schema, mount=True)
        db.insert_rows("//odd/t-1.x", [{"k": 1, **{name: at for at, name in enumerate(names)}}])
        for at, name in enumerate(names):
            query = parse(f"[{name}] + 0, [{name}] from [//odd/t-1.x] where [{name}] = {at}")
            found = to_sql(query, {"//odd/t-1.x": schema})
            assert [it.name for it in found.columns][1] == name
            assert db.query(found.sql).to_pylist() == [{"r0": at, "r1": at}]
        everything = to_sql(parse("* from [//odd/t-1.x]"), {"//odd/t-1.x": schema})
        assert [it.name for it in everything.columns] == ["k", *names]
        assert list(db.query(everything.sql).to_pylist()[0].values()) == [1, *range(len(names))]
