"""What a translated query reads of its tables: the keys that it can be about, and no more."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona._core.reading import query as query_module
from dodona._core.sql.pushdown import ScanRange
from dodona.schema import TableSchema
from dodona_ytsaurus.query.translation import translate

SCHEMAS = {
    "//wide": TableSchema.parse(
        [
            {"name": "k", "type": "int64", "sort_order": "ascending"},
            {"name": "s", "type": "string", "sort_order": "ascending"},
            {"name": "t", "type": "utf8", "sort_order": "ascending"},
            {"name": "u", "type": "uint64", "sort_order": "ascending"},
            {"name": "d", "type": "double", "sort_order": "ascending"},
            {"name": "v", "type": "int64"},
        ]
    ),
    "//strict": TableSchema.parse(
        [
            {"name": "k", "type": "int64", "sort_order": "ascending", "required": True},
            {"name": "v", "type": "int64"},
        ]
    ),
    "//down": TableSchema.parse(
        [
            {"name": "k", "type": "int64", "sort_order": "descending"},
            {"name": "s", "type": "string", "sort_order": "descending"},
            {"name": "v", "type": "int64"},
        ]
    ),
    "//bytes": TableSchema.parse(
        [{"name": "s", "type": "string", "sort_order": "ascending"}, {"name": "v", "type": "any"}]
    ),
    "//texts": TableSchema.parse(
        [{"name": "t", "type": "utf8", "sort_order": "ascending"}, {"name": "v", "type": "any"}]
    ),
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    folder: Path = tmp_path_factory.mktemp("ranges")
    with dodona.open(str(folder / "data")) as db:
        for path, schema in SCHEMAS.items():
            db.create_table(path, schema, mount=True)
        yield db


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> dict[str, ScanRange]:
    """By path, what the last query wanted of its tables."""
    found: dict[str, ScanRange] = {}
    fetch = query_module.Query.fetch

    def watched(query: query_module.Query, read_ranges: Any) -> Any:
        found.clear()
        found.update({it.path: it.wanted for it in query.sources if it.wanted is not None})
        return fetch(query, read_ranges)

    monkeypatch.setattr(query_module.Query, "fetch", watched)
    return found


@pytest.mark.parametrize(
    ("where", "lower", "upper"),
    [
        ("k = 3", (3,), (4,)),
        ("3 = k", (3,), (4,)),
        ("k = 1 + 2", (3,), (4,)),
        ("k > 1 and k < 5", (1,), (6,)),
        ("k < 5 and v > 0 and k >= 1", (1,), (6,)),
        ("not (k <= 1 or not k < 5)", (1,), (6,)),
        ("k between 1 and 2", (1,), (3,)),
        ("k between (1 and 2, 4 and 5)", (1,), (6,)),
        ("k in (7, 1, 3)", (1,), (8,)),
        ("k = 1 or k = 4", (1,), (5,)),
        ("k > -3", (-3,), None),
        ("k < 5", None, (6,)),
        ("not k >= 5", None, (6,)),
        ("(k, s) in ((1, 'a'), (3, 'b'))", (1,), (4,)),
        ("(k, s) = (1, 'b')", (1, b"b"), (1, b"b\x00")),
        ("(k, s) > (1, 'a')", (1,), None),
        ("(k, s) between ((1, 'a') and (1, 'c'))", (1,), (2,)),
        ("k = 1 and s = 'é'", (1, "é".encode()), (1, "é\0".encode())),
        ("k = 1 and s = 'a\\x00\\xff'", (1, b"a\x00\xff"), (1, b"a\x00\xff\x00")),
        ("k = 1 and s = 'a' and t in ('é', 'b')", (1, b"a", "b"), (1, b"a", "é\0")),
        ("k = 1 and s = 'a' and t = 'b' and u = 9223372036854775809u and d > 1.5",
         (1, b"a", "b", 2**63 + 1, 1.5), (1, b"a", "b", 2**63 + 2)),
        ("k = 1 and s = 'a' and t = 'b' and u = 1 and d = 2",
         (1, b"a", "b", 1, 2.0), (1, b"a", "b", 1, 2.0000000000000004)),
    ],
)  # fmt: skip
def test_where_conditions_narrow_the_scanned_key_range(
    db: dodona.Client, wanted: dict[str, ScanRange], where: str, lower: object, upper: object
) -> None:
    db.query(translate(f"v from [//wide] where {where}", SCHEMAS).sql)
    assert (wanted["//wide"].lower, wanted["//wide"].upper) == (lower, upper)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("v from [//strict] where k < 5", {"//strict": (None, (6,))}),
        ("v from [//strict] where not k >= 5", {"//strict": (None, (6,))}),
        ("v from [//down] where k = 3", {"//down": ((3,), (2,))}),
        ("v from [//down] where k < 5", {"//down": ((5,), None)}),
        ("v from [//down] where k > -3", {"//down": (None, (-4,))}),
        ("v from [//down] where k in (7, 1, 3)", {"//down": ((7,), (0,))}),
        (
            "v from [//down] where k = 1 and is_prefix('ab', s)",
            {"//down": ((1, b"ac"), (1, b"aa\xff\xff\xff\xff"))},
        ),
        ("v from [//bytes] where is_prefix('ab', s)", {"//bytes": ((b"ab",), (b"ac\x00",))}),
        ("v from [//texts] where is_prefix('ab', t)", {"//texts": (("ab",), ("ac\x00",))}),
        ("v from [//bytes] where s >= 'a' and s < 'b'", {"//bytes": ((b"a",), (b"b\x00",))}),
        ("v, sum(1) from [//wide] where k = 1 group by v", {"//wide": ((1,), (2,))}),
        ("sum(1) from [//wide] where k = 1 group by v with totals", {"//wide": ((1,), (2,))}),
        ("v from [//wide] where x > 1 and x < 3 order by k as x limit 1", {"//wide": ((1,), (4,))}),
        (
            "w.v from [//wide] w join [//strict] s on w.k = s.k where w.k = 2",
            {"//wide": ((2,), (3,)), "//strict": ((2,), (3,))},
        ),
        (
            "w.v from [//wide] w left join [//strict] s on w.k = s.k and s.k < 3 where w.k > 1",
            {"//wide": ((1,), None), "//strict": ((1,), (4,))},
        ),
    ],
)
def test_query_clauses_narrow_the_scanned_key_ranges(
    db: dodona.Client, wanted: dict[str, ScanRange], text: str, ranges: dict[str, object]
) -> None:
    db.query(translate(text, SCHEMAS).sql)
    assert {path: (it.lower, it.upper) for path, it in wanted.items()} == ranges


def test_only_the_columns_that_are_needed_are_read(
    db: dodona.Client, wanted: dict[str, ScanRange]
) -> None:
    db.query(translate("s from [//wide] where k > 1 order by u limit 1", SCHEMAS).sql)
    assert list(wanted["//wide"].columns) == ["k", "s", "u"]
    db.query(translate("sum(1) from [//wide] group by d", SCHEMAS).sql)
    assert list(wanted["//wide"].columns) == ["d"]
