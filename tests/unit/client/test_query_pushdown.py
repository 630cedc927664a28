"""What a query asks of the tablets: these columns, of these keys, and no more."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import dodona
from dodona._core.protocol import steps
from dodona._core.protocol.limits import QueryLimits
from dodona._core.reading import query as query_module
from dodona._core.sql.engine import Engine
from dodona._core.sql.pushdown import ScanRange, scan_ranges
from dodona.schema import ColumnType, TableSchema
from dodona_wire.messages.data import ScanArrow

KEY = [
    dodona.Column("day", "int64", "ascending"),
    dodona.Column("carrier", "utf8", "ascending"),
    dodona.Column("number", "uint64", "ascending"),
]
SCHEMA = TableSchema.parse([*KEY, dodona.Column("delay", "int64"), dodona.Column("note", "string")])
ALL = (None, None)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(str(tmp_path / "data")) as db:
        pivots: list[list[Any]] = [[], [10], [20], [30]]
        db.create_table("//f", SCHEMA, pivot_keys=pivots, mount=True)
        db.create_table("//g", SCHEMA, mount=True)
        db.insert_rows(
            "//f",
            [
                {"day": day, "carrier": carrier, "number": 1, "delay": day}
                for day in range(0, 40, 5)
                for carrier in ("AA", "UA")
            ],
        )
        yield db


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> dict[str, ScanRange]:
    """By path, what the last query wanted of its tables."""
    wanted: dict[str, ScanRange] = {}
    fetch = query_module.Query.fetch

    def watched(query: query_module.Query, read_ranges: Any) -> Any:
        wanted.clear()
        wanted.update({it.path: it.wanted for it in query.sources if it.wanted is not None})
        return fetch(query, read_ranges)

    monkeypatch.setattr(query_module.Query, "fetch", watched)
    return wanted


def scans_of(db: dodona.Client, text: str) -> list[ScanArrow]:
    """The requests for rows that a query sends."""
    run, sent = db._run, []

    def watched(protocol: steps.Protocol[Any]) -> steps.Protocol[Any]:
        replies: Any = None
        while True:
            try:
                step = protocol.send(replies)
            except StopIteration as stop:
                return stop.value
            if isinstance(step, steps.Calls):
                sent.extend([it for _, it in step.requests if isinstance(it, ScanArrow)])
            replies = yield step

    db._run = lambda protocol, *timeout: run(watched(protocol), *timeout)
    try:
        db.query(text)
    finally:
        db._run = run
    return sent


# ---- what goes out


def test_only_the_tablets_of_the_range_are_asked_all_at_one_timestamp(db: dodona.Client) -> None:
    assert len(scans_of(db, "from [//f]")) == 4
    sent = scans_of(db, "from [//f] where day between 12 and 25")
    assert [(it.lower, it.upper) for it in sent] == [
        (SCHEMA.bound_of([12]), SCHEMA.bound_of([20])),
        (SCHEMA.bound_of([20]), SCHEMA.bound_of([26])),
    ]
    sent = scans_of(db, "select a.day from [//f] a join [//g] b using (day) where a.day > 5")
    assert len(sent) == 5
    assert len({it.timestamp for it in sent}) == 1


def test_a_query_that_can_have_no_rows_scans_no_tablet(db: dodona.Client) -> None:
    for condition in ("1 = 0", "day = 5 and day = 6", "day > 9 and day < 3", "null", "day = null"):
        assert scans_of(db, f"from [//f] where {condition}") == [], condition
    assert scans_of(db, "from [//f] limit 0") == []


# ---- columns


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("select delay from [//f]", ("delay",)),
        ("select note, day from [//f] where delay > 3", ("day", "delay", "note")),
        ("select count(*) from [//f]", ("day",)),
        ("select 1 from [//f] order by carrier", ("carrier",)),
        ("select x.delay from (select * from [//f]) x", ("delay",)),
        ("with x as (from [//f]) select sum(delay) from x group by number", ("number", "delay")),
        ("select a.delay, b.note from [//f] a, [//f] b", ("delay", "note")),
        ("select * exclude (note, delay) from [//f]", ("day", "carrier", "number")),
        ("select f from [//f] f", tuple(it.name for it in SCHEMA.columns)),
    ],
)
def test_only_the_columns_that_are_needed_are_read(
    db: dodona.Client, ranges: dict[str, ScanRange], text: str, columns: tuple[str, ...]
) -> None:
    db.query(text)
    assert ranges["//f"].columns == columns


# ---- ranges of keys


@pytest.mark.parametrize(
    ("condition", "lower", "upper"),
    [
        ("day = 5", (5,), (6,)),
        ("5 = day", (5,), (6,)),
        ("day >= 5", (5,), None),
        ("5 <= day", (5,), None),
        ("day <= 5", None, (6,)),
        ("day > 5 and day <= 9 and delay = 1", (5,), (10,)),
        ("day in (3, 7, 5)", (3,), (8,)),
        (f"day in ({', '.join(map(str, range(100, 200)))})", (100,), (200,)),
        ("day = 3 or day = 7", (3,), (8,)),
        ("(day > 3 and day < 5) or day between 7 and 8", (3,), (9,)),
        ("day + 1 = 6", (5,), (6,)),
        ("day = 9223372036854775807", (2**63 - 1,), None),
        ("day = -9223372036854775808", (-(2**63),), (-(2**63) + 1,)),
        ("day::hugeint = 5", (5,), (6,)),
        ("5 >= day::hugeint", None, (6,)),
        ("day::hugeint between 3 and 5", (3,), (6,)),
        ("day::hugeint in (3, 7, 5)", (3,), (8,)),
        ("day < 18446744073709551615", *ALL),
        ("day::double = 5", *ALL),
        ("day = 5 and carrier = 'AA' and number in [1, 2]", (5, "AA", 1), (5, "AA", 3)),
        ("day = 5 and carrier = 'AA'", (5, "AA"), (5, "AA\0")),
        ("day = 5 and carrier >= 'it''s \né'", *ALL),
        ("day = 5 and carrier >= 'it''s é'", (5, "it's é"), (6,)),
        ("day = 5 and number = 3", (5,), (6,)),
        (
            "day = 5 and carrier = 'AA' and number = 18446744073709551615",
            (5, "AA", 2**64 - 1),
            (5, "AA\0"),
        ),
        ("day = 5 and carrier = 'AA' and number < 7", (5, "AA"), (5, "AA", 8)),
        ("carrier = 'AA'", *ALL),
        ("day != 5", *ALL),
        ("day = 3 or carrier = 'AA'", *ALL),
        ("not (day = 3)", *ALL),
        ("day is null", *ALL),
        ("day < 5 or day is null", None, (6,)),
        ("day is null or day = 5 or day = 7", None, (8,)),
        ("day > 5 or day is null", *ALL),
        ("(day < 5 or day is null) and day > 1", (1,), (6,)),
        ("day is null or delay = 5", *ALL),
        ("day = delay", *ALL),
        ("day % 3 = 1", *ALL),
        ("day = 5 or random() < 2", *ALL),
    ],
)
def test_conditions_on_leading_key_columns_become_a_range(
    db: dodona.Client,
    ranges: dict[str, ScanRange],
    condition: str,
    lower: tuple[Any, ...] | None,
    upper: tuple[Any, ...] | None,
) -> None:
    db.query(f"from [//f] where {condition}")
    assert (ranges["//f"].lower, ranges["//f"].upper) == (lower, upper)


@pytest.mark.parametrize(
    ("condition", "lower", "upper"),
    [
        ("day = 5", (5,), (4,)),
        ("day >= 5", None, (4,)),
        ("day > 5 and day <= 9", (9,), (4,)),
        ("day <= 5", (5,), None),
        ("day in (3, 7, 5)", (7,), (2,)),
        ("day = 3 or day = 7", (7,), (2,)),
        ("day = -9223372036854775808", (-(2**63),), (None,)),
        ("day = 9223372036854775807", (2**63 - 1,), (2**63 - 2,)),
        ("day is null", *ALL),
        ("day is null or day = 5 or day = 7", (7,), None),
        ("day > 5 or day is null", *ALL),
        ("(day < 5 or day is null) and day > 1", (5,), (0,)),
        ("day = 5 and carrier = 'AA'", (5, "AA"), (5, "A@" + 4 * chr(0x10FFFF))),
        ("day = 5 and carrier = ''", (5, ""), (5, None)),
        ("day = 5 and carrier >= 'AA'", (5,), (5, "A@" + 4 * chr(0x10FFFF))),
        ("day = 5 and carrier < 'AA'", (5, "AA"), (4,)),
        ("day = 5 and carrier = 'AA' and number = 3", (5, "AA", 3), (5, "AA", 4)),
        ("day = 5 and carrier = 'AA' and number < 7", (5, "AA"), (5, "AA", 8)),
        ("carrier = 'AA'", *ALL),
    ],
)
def test_conditions_on_descending_columns_become_a_range(
    ranges: dict[str, ScanRange],
    db: dodona.Client,
    condition: str,
    lower: tuple[Any, ...] | None,
    upper: tuple[Any, ...] | None,
) -> None:
    day, carrier, number = KEY
    down = [replace(it, sort_order="descending") for it in (day, carrier)]
    db.create_table("//down", [*down, number, *SCHEMA.value_columns], mount=True)
    db.query(f"from [//down] where {condition}")
    assert (ranges["//down"].lower, ranges["//down"].upper) == (lower, upper)


@pytest.mark.parametrize(
    ("one", "other", "lower", "upper"),
    [
        ("day = 3", "day between 7 and 9", (9,), (2,)),
        ("day <= 3", "day >= 7", None, None),
        ("day = 3", "day is null or day = 1", (3,), None),
        ("day = -9223372036854775808", "day = 5", (5,), (None,)),
    ],
)
def test_two_scans_of_a_descending_table_read_one_range(
    ranges: dict[str, ScanRange],
    db: dodona.Client,
    one: str,
    other: str,
    lower: tuple[Any, ...] | None,
    upper: tuple[Any, ...] | None,
) -> None:
    db.create_table("//down", [replace(KEY[0], sort_order="descending"), SCHEMA.columns[3]])
    db.mount_table("//down")
    db.query(f"(from [//down] where {one}) union all (from [//down] where {other})")
    assert (ranges["//down"].lower, ranges["//down"].upper) == (lower, upper)


@pytest.mark.parametrize(
    ("text", "f", "g"),
    [
        ("from [//f] a join [//g] b using (day) where a.day = 5", ((5,), (6,)), ((5,), (6,))),
        ("from [//f] a left join [//g] b on a.delay = b.delay and b.day = 5", ALL, ((5,), (6,))),
        ("from [//f] a left join [//g] b on a.delay = b.delay and a.day = 5", ALL, ALL),
        ("from [//f] a, [//g] b where a.day < 5 and b.day > 9", (None, (6,)), ((9,), None)),
        ("from (from [//f] where day = 3) union all from [//g]", ((3,), (4,)), ALL),
        ("from (from [//f] limit 3) where day = 3", ALL, None),
        ("select max(day) over () from [//f] qualify max(day) over () = 3", ALL, None),
        ("select day from [//f] group by day having day = 3", ((3,), (4,)), None),
        ("from [//f] a join [//f] b on a.delay = b.delay where a.day = 3", ALL, None),
        (
            "select a.day from [//f] a, [//f] b where a.day = 3 and b.day between 7 and 9",
            ((3,), (10,)),
            None,
        ),
        ("from [//f] where delay in (select delay from [//g] where day = 1)", ALL, ((1,), (2,))),
        ("select number from (select delay as c0_0, number from [//f]) where c0_0 = 3", ALL, None),
        ("from [//f] a asof join [//g] b on a.day >= b.day where b.day = 3", ALL, ALL),
        ("from [//f] tablesample 50% where day = 3", ALL, None),
    ],
)
def test_a_key_range_covers_every_use_of_its_table_in_a_query(
    db: dodona.Client, ranges: dict[str, ScanRange], text: str, f: Any, g: Any
) -> None:
    db.query(text)
    found = {path: (it.lower, it.upper) for path, it in ranges.items()}
    assert found == {"//f": f} | ({"//g": g} if g else {})


@pytest.mark.parametrize(
    ("kind", "lower", "upper"),
    [("int64", (5,), (6,)), ("uint64", (5,), (6,)), ("double", *ALL), ("utf8", *ALL)],
)
def test_only_integers_are_the_same_numbers_as_hugeint(
    kind: ColumnType, lower: tuple[Any, ...] | None, upper: tuple[Any, ...] | None
) -> None:
    schema = TableSchema.parse(
        [
            dodona.Column("k", kind, "ascending"),
            dodona.Column("v", "int64"),
        ]
    )
    scan = {"name": "ARROW_SCAN", "extra_info": {"Projections": "c0_0"}, "children": []}
    condition = {"Expression": "(CAST(c0_0 AS HUGEINT) = 5)"}
    plan = [{"name": "FILTER", "extra_info": condition, "children": [scan]}]
    (found,) = scan_ranges(plan, [schema], Engine(QueryLimits()).parse)
    assert found == ScanRange(("k",), lower, upper)
