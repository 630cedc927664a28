"""What the page on moving from YTsaurus defines copies more than the table that the page has: keys
of every type, cut between any two rows, and values that are no text."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pytest

from documents.page_runs import THEIRS, run_plans
from documents.running import PageRun

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE: Final = "docs/how-to/move-from-ytsaurus.md"
COPYING: Final = "2. Copy a table"
TYPES: Final = (
    *("string", "uint64", "boolean", "double", "utf8", "int64"),
    *("date", "timestamp64", "uuid", "float", "int8", "decimal"),
)
EARLY: Final = datetime(1, 1, 1, tzinfo=UTC)
EXTREMES: dict[str, list[Any]] = {
    "string": [None, b"", b'a"\\', b"\xff\x00"],
    "uint64": [None, 0, 2**64 - 1],
    "boolean": [None, False, True],
    "double": [None, -1.5e300, 0.1],
    "utf8": [None, "", 'ö"\\'],
    "int64": [None, -(2**63) + 1, 7],
    "date": [None, date(1970, 1, 1), date(2105, 12, 31)],
    "timestamp64": [None, EARLY, datetime(2024, 2, 29, 1, 2, 3, 4, UTC)],
    "uuid": [None, UUID(int=0), UUID(int=(1 << 128) - 1)],
    "float": [None, -0.5, 0.25],
    "int8": [None, -128, 127],
}
DECIMAL: Final = {"type_name": "decimal", "precision": 10, "scale": 2}
AT: Final = {
    "type_name": "struct",
    "members": [
        {"name": "at", "type": "timestamp64"},
        {"name": "n", "type": "uint64"},
        {"name": "took", "type": "interval"},
    ],
}
COMPOSITE: Final[dict[str, Any]] = {
    "decimal": DECIMAL,
    "long": {"type_name": "decimal", "precision": 76, "scale": 38},
    "list": {"type_name": "list", "item": {"type_name": "optional", "item": "date"}},
    "struct": {
        "type_name": "struct",
        "members": [
            {"name": "a", "type": DECIMAL},
            {"name": 'x "y"', "type": {"type_name": "optional", "item": "uuid"}},
            {"name": "raw", "type": "string"},
            {"name": "m", "type": "yson"},
            {"name": "on", "type": "bool"},
        ],
    },
    "dict": {"type_name": "dict", "key": "int64", "value": {"type_name": "list", "item": AT}},
}
"""By name, the `type_v3` of types that have parts or parameters."""
EXTREMES |= {
    "decimal": [None, Decimal("-99999999.99"), Decimal("0.01")],
    "long": [None, Decimal(f"-{'9' * 38}.{'9' * 38}"), Decimal(f"0.{'0' * 37}1")],
    "list": [None, [], [None, date(2024, 2, 29)]],
    "struct": [
        None,
        {"a": Decimal("-1.50"), 'x "y"': None, "raw": b"\xff\0", "m": {"b": [1]}, "on": True},
        {"a": Decimal("0.00"), 'x "y"': UUID(int=7), "raw": b"", "m": "x", "on": False},
    ],
    "dict": [
        None,
        {},
        {7: [], -(2**63): [{"at": EARLY, "n": 2**64 - 1, "took": timedelta(-1, 0, 5)}]},
    ],
}
ANYTHING: Final = [None, {"a": [1, None, {"b": "ö"}]}, ["x", 1.5, True], "text", -7, False]


@pytest.mark.parametrize("key", TYPES)
def test_the_copy_code_of_the_move_page_copies_tables_with_keys_of_every_type(
    key: str, addresses: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (plan,) = [it for it in run_plans() if it.page == PAGE]
    with PageRun(addresses) as page:
        monkeypatch.delenv("YT_TOKEN", raising=False)
        monkeypatch.setenv("YT_PROXY", "")  # the page's beginning changes it
        page.execute(THEIRS)
        page.run([it for it in plan.blocks if it.heading == COPYING])
        names = page.names
        try:
            rows = rows_with(key)
            make_theirs(names, key, rows)
            names["create"]("//theirs", "//ours")
            pages = names["pages"]
            names["pages"] = lambda *asked: pages(*asked, page_rows=1)
            names["copy"]("//theirs", "//ours", names["source"].generate_timestamp())
            assert names["db"].select("//ours") == rows
            ours, theirs = [names["db"].get_table(it).schema for it in ("//ours", "//theirs")]
            assert ours == theirs
        finally:
            names["db"].close()


@pytest.mark.parametrize("word", ["tuple", "variant", "tagged"])
def test_a_column_of_a_type_that_dodona_lacks_is_any(
    word: str, addresses: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (plan,) = [it for it in run_plans() if it.page == PAGE]
    with PageRun(addresses) as page:
        monkeypatch.setenv("YT_PROXY", "")
        page.execute(THEIRS)
        page.run([it for it in plan.blocks if it.heading == COPYING])
        names = page.names
        lacking = {"type_name": word, "tag": "x", "elements": [{"type": "int64"}], "item": "int64"}
        nested = {"type_name": "optional", "item": {"type_name": "list", "item": lacking}}
        columns = [
            {"name": "k", "type_v3": "int64", "sort_order": "ascending"},
            {"name": "v", "type_v3": nested},
        ]
        names["yson_to_json"] = lambda schema: {"$value": columns}
        try:
            (key, _), (column, v3) = names["schema_of"]("//home/bank/accounts")
            assert (key["type"], key["required"]) == ("int64", True)
            assert (column["type"], column["required"], v3) == ("any", False, "any")
        finally:
            names["db"].close()


def rows_with(key: str) -> list[dict[str, Any]]:
    """One for each key, in their order, with every value of any other type."""
    rows = []
    for index, value in enumerate(EXTREMES[key]):
        others = {f"v_{it}": EXTREMES[it][index % len(EXTREMES[it])] for it in EXTREMES}
        rows += [
            {"k": value, "n": number, **others, "v_any": anything}
            for number, anything in enumerate(ANYTHING)
        ]
    return rows


def type_of(name: str) -> dict[str, Any]:
    """The fields of a schema of YTsaurus for a type: the old `type`, or an optional `type_v3`."""
    v3 = COMPOSITE.get(name)
    return {"type": name} if v3 is None else {"type_v3": {"type_name": "optional", "item": v3}}


def make_theirs(names: dict[str, Any], key: str, rows: list[dict[str, Any]]) -> None:
    """A table of the cluster that is copied from."""
    columns = [
        {"name": "k", "sort_order": "ascending", **type_of(key)},
        {"name": "n", "type": "int64", "sort_order": "ascending"},
        *({"name": f"v_{it}", **type_of(it)} for it in (*EXTREMES, "any")),
    ]
    theirs, path = names["theirs"], "//theirs"
    theirs.create("table", path, attributes={"dynamic": True, "schema": columns})
    theirs.mount_table(path, sync=True)
    names["db"].insert_rows(path, rows)
