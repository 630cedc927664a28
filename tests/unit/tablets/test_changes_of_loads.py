"""Versions between two timestamps where bulk loads are published."""

import pytest

from dodona.types import KEY_MAX, KEY_MIN, CellId, Key, Timestamp
from dodona_wire.messages.data import ArrowPage, CountVersions, ScanVersions
from dodona_wire.rows.arrow import table_of
from unit.tablets.cells import ATOMIC, REVISION, Bench, key, put
from unit.tablets.loads import Loading

Seen = tuple[int, int, int]


def ask(bench: Bench, since: int, at: int, lower: Key = KEY_MIN, upper: Key = KEY_MAX) -> object:
    rest = Timestamp(since), Timestamp(at), lower, upper, 3, 100
    return bench.ask(ScanVersions(ATOMIC, REVISION, *rest))


def rows_of(bench: Bench, route: object) -> list[Seen]:
    page = bench.answer(route)
    assert isinstance(page, ArrowPage), page
    rows = table_of(page.batch).to_pylist()
    return [(it["id"], it["$timestamp"], it["$mask"]) for it in rows]


def seen(bench: Bench, since: int) -> list[Seen]:
    route = ask(bench, since, bench.timestamp())
    bench.answer_oracle()
    return rows_of(bench, route)


@pytest.mark.parametrize("decided", [True, False])
def test_the_feed_waits_for_a_publication_that_may_commit_below_its_end(decided: bool) -> None:
    """Its rows are in no lock table."""
    bench = Bench(2)
    load = Loading(bench)
    for cell in (0, 1):
        load.bring({1: 1, 5: 5}, cell)
    before, start = bench.timestamp(), bench.begin()
    route = load.prepare(start, 0)
    bench.answer_oracle()
    at = bench.answer(route).timestamp  # type: ignore[union-attr]
    waiting = ask(bench, before, bench.timestamp())
    elsewhere = ask(bench, before, bench.timestamp(), key(6))
    below = ask(bench, before, at - 1)
    bench.answer_oracle()
    assert bench.answer(waiting) is None
    assert rows_of(bench, elsewhere) == rows_of(bench, below) == []
    bench.decide(start, at if decided else None)
    bench.settle()
    assert rows_of(bench, waiting) == ([(1, at, 3), (5, at, 3)] if decided else [])


def test_the_feed_shows_loaded_rows_once_at_the_commit_timestamp() -> None:
    """Whole rows, updates, deletions, and what was erased, also after a restart."""
    bench = Bench()
    first = bench.commit(put(1, 1), put(2, 2), put(3, 3), put(9, 9))
    stamps = []
    for kind, rows in (("write", {1: 10, 4: 4}), ("update", {2: 20}), ("delete", {3: None})):
        load = Loading(bench)
        load.bring(rows, kind=kind)  # type: ignore[arg-type]
        stamps.append(load.publish().timestamp)  # type: ignore[union-attr]
    load = Loading(bench)
    load.erased = ((key(8), key(10)),)
    load.bring({8: 8})
    written, updated, deleted = stamps
    last = load.publish().timestamp  # type: ignore[union-attr]
    expected = [
        (1, written, 3),
        (2, updated, 1),
        (3, deleted, 0),
        (4, written, 3),
        (8, last, 3),
        (9, last, 0),
    ]
    for _ in range(2):
        assert seen(bench, first) == expected
        assert seen(bench, deleted) == expected[4:]
        request = CountVersions(ATOMIC, REVISION, first, bench.timestamp(), KEY_MIN, KEY_MAX)
        route = bench.ask(request)
        bench.answer_oracle()
        page = bench.answer(route)
        assert isinstance(page, ArrowPage)
        counts = table_of(page.batch).to_pydict()
        assert counts == {"$timestamp": [*stamps, last], "$count": [2, 1, 1, 2]}
        bench.start(CellId(0))
