"""What the page on moving from YTsaurus defines copies more than the table that the page has: keys
of every type, cut between any two rows, and values that are no text."""

from datetime import UTC, date, datetime
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
    *("date", "timestamp64", "uuid", "float", "int8"),
)
EXTREMES: Final[dict[str, list[Any]]] = {
    "string": [None, b"", b'a"\\', b"\xff\x00"],
    "uint64": [None, 0, 2**64 - 1],
    "boolean": [None, False, True],
    "double": [None, -1.5e300, 0.1],
    "utf8": [None, "", 'ö"\\'],
    "int64": [None, -(2**63) + 1, 7],
    "date": [None, date(1970, 1, 1), date(2105, 12, 31)],
    "timestamp64": [None, datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, UTC)],
    "uuid": [None, UUID(int=0), UUID(int=(1 << 128) - 1)],
    "float": [None, -0.5, 0.25],
    "int8": [None, -128, 127],
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
        finally:
            names["db"].close()


def rows_with(key: str) -> list[dict[str, Any]]:
    """One for each key, in their order, with every value of any other type."""
    rows = []
    for index, value in enumerate(EXTREMES[key]):
        others = {f"v_{it}": EXTREMES[it][index % len(EXTREMES[it])] for it in TYPES}
        rows += [
            {"k": value, "n": number, **others, "v_any": anything}
            for number, anything in enumerate(ANYTHING)
        ]
    return rows


def make_theirs(names: dict[str, Any], key: str, rows: list[dict[str, Any]]) -> None:
    """A table of the cluster that is copied from."""
    columns = [
        {"name": "k", "type": key, "sort_order": "ascending"},
        {"name": "n", "type": "int64", "sort_order": "ascending"},
        *({"name": f"v_{it}", "type": it} for it in (*TYPES, "any")),
    ]
    theirs, path = names["theirs"], "//theirs"
    theirs.create("table", path, attributes={"dynamic": True, "schema": columns})
    theirs.mount_table(path, sync=True)
    names["db"].insert_rows(path, rows)
