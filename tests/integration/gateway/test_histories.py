"""Versions of a row over REST: in pages, within bounds, in and outside of transactions."""

from typing import Any, NamedTuple

import pytest

from integration.gateway.rest import Rest

pytestmark = pytest.mark.integration

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
COUNT = 7
KEYS = [{"id": 1}]


class Written(NamedTuple):
    """A table whose one row was written `COUNT` times, each time with its number."""

    rest: Rest
    table: str
    stamps: list[int]
    """Newest first."""

    def read(self, **bounds: Any) -> Any:
        (row,) = self.rest("lookup_versions", table=self.table, keys=KEYS, **bounds)["rows"]
        return row


@pytest.fixture(params=["full", "none"])
def written(rest: Rest, request: pytest.FixtureRequest) -> Written:
    table = f"//histories/{request.node.name}".translate(str.maketrans("[]", "__"))
    rest("create_table", path=table, schema=SCHEMA, atomicity=request.param, mount=True)
    stamps = [
        rest("insert_rows", table=table, rows=[{"id": 1, "v": number}])["timestamp"]
        for number in range(COUNT)
    ]
    return Written(rest, table, stamps[::-1])


@pytest.mark.parametrize("limit", [1, 2, COUNT - 1, COUNT])
def test_pages_are_the_whole_history(written: Written, limit: int) -> None:
    found: list[int] = []
    values: list[int] = []
    bounds: dict[str, Any] = {}
    for _ in range(COUNT):
        row = written.read(limit=limit, **bounds)
        found += row["write_timestamps"]
        values += [it["value"] for it in row["values"]["v"]]
        if row["more_below"] is None:
            break
        assert len(row["write_timestamps"]) == limit
        bounds = {"below": row["more_below"]}
    assert row["more_below"] is None
    assert found == written.stamps
    assert values == [*range(COUNT)][::-1]


def test_bounds_are_of_timestamps(written: Written) -> None:
    stamps = written.stamps
    row = written.read(since=stamps[5], below=stamps[1])
    assert row["write_timestamps"] == stamps[2:5]
    assert row["more_below"] is None
    row = written.read(since=stamps[5], below=stamps[1], limit=2)
    assert row["write_timestamps"] == stamps[2:4]
    assert row["more_below"] == stamps[3]
    wrong: list[dict[str, Any]] = [{"limit": 0}, {"below": 0}, {"since": -1}]
    for bounds in wrong:
        problem = written.rest.refused("lookup_versions", table=written.table, keys=KEYS, **bounds)
        assert (problem.status, problem.kind) == (400, "invalid_request")
        assert next(iter(bounds)) in problem.detail


@pytest.mark.parametrize("written", ["full"], indirect=True)
def test_a_transaction_reads_pages_of_versions_as_of_its_start(written: Written) -> None:
    rest, table, stamps = written
    its_id = rest("begin_transaction")["transaction"]
    rest("insert_rows", table=table, rows=[{"id": 1, "v": COUNT}])
    answer = rest("lookup_versions_in_transaction", its_id, table=table, keys=KEYS, limit=3)
    (row,) = answer["rows"]
    assert row["write_timestamps"] == stamps[:3]
    bounds = {"below": row["more_below"], "since": stamps[5]}
    answer = rest("lookup_versions_in_transaction", its_id, table=table, keys=KEYS, **bounds)
    (row,) = answer["rows"]
    assert row["write_timestamps"] == stamps[3:5]
    rest("abort_transaction", its_id)
