"""Transactions that read what they wrote: the snapshot, and the buffer on top of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dodona
from dodona.errors import TransactionAborted, TransactionClosed
from suite.levels import examples
from unit.client.protocols import COLUMNS, Clock, begin, new_session, nobody, play, table
from unit.client.protocols import PATH as PLAYED

PATH, LOG = "//t", "//log"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "a", "type": "int64"},
    {"name": "b", "type": "any"},
    {"name": "sum", "type": "int64", "aggregate": "sum"},
]
ROWS = [{"id": number, "a": number, "b": ["x"], "sum": 10} for number in (1, 2, 99, 100, 150)]


@pytest.fixture(scope="module")
def shared_db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    folder: Path = tmp_path_factory.mktemp("own")
    with dodona.open(str(folder / "data")) as client:
        for path in (PATH, LOG):
            atomicity: Any = "full" if path == PATH else "none"
            client.create_table(path, SCHEMA, atomicity, pivot_keys=[[], [100]], mount=True)
        yield client


@pytest.fixture
def db(shared_db: dodona.Client) -> dodona.Client:
    """With `ROWS` in both tables and nothing else."""
    renew(shared_db, ROWS)
    return shared_db


def renew(db: dodona.Client, rows: list[dict[str, Any]]) -> None:
    for path in (PATH, LOG):
        db.delete_rows(path, [{"id": row["id"]} for row in db.select(path)])
        if rows:
            db.insert_rows(path, rows)


def row(number: int, a: Any = None, b: Any = None, total: Any = None) -> dict[str, Any]:
    return {"id": number, "a": a, "b": b, "sum": total}


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_each_kind_of_write_is_seen(db: dodona.Client, atomicity: Any) -> None:
    path = PATH if atomicity == "full" else LOG
    tx = db.begin(atomicity, read_own_writes=True)
    tx.insert_rows(path, [{"id": 1, "a": 7}, {"id": 5, "b": None}])
    tx.insert_rows(path, [{"id": 2, "a": 8}, {"id": 0, "a": 1}], update=True)
    tx.insert_rows(path, [{"id": 99, "sum": 5}, {"id": 7, "sum": 3}], update=True, aggregate=True)
    tx.delete_rows(path, [{"id": 100}, {"id": 1_000}])
    expected = [
        row(0, 1),
        row(1, 7),
        row(2, 8, ["x"], 10),
        row(5),
        row(7, total=3),
        row(99, 99, ["x"], 15),
        row(150, 150, ["x"], 10),
    ]
    assert tx.select(path) == expected
    keys = [{"id": number} for number in (150, 100, 7, 7, 3)]
    found = tx.lookup_rows(path, keys, keep_missing=True)
    assert found == [expected[6], None, expected[4], expected[4], None]
    assert tx.lookup_rows(path, keys) == [expected[6], expected[4], expected[4]]
    assert db.select(path) == ROWS
    tx.abort()


def test_ranges_and_columns_are_kept_to(db: dodona.Client) -> None:
    with db.begin(read_own_writes=True) as tx:
        tx.insert_rows(PATH, [row(number, number) for number in (0, 3, 98, 120, 200)])
        tx.delete_rows(PATH, [{"id": 2}])
        assert [it["id"] for it in tx.select(PATH, [1], [100])] == [1, 3, 98, 99]
        assert [it["id"] for it in tx.select(PATH, [100], None)] == [100, 120, 150, 200]
        assert tx.select(PATH, [3], [3]) == []
        assert tx.select(PATH, [100], [150], ["a"]).tuples() == [(100,), (120,)]
        assert tx.select(PATH, None, [4], ["id"]).tuples() == [(0,), (1,), (3,)]
        assert tx.select(PATH, None, [4], []).tuples() == [(), (), ()]
        assert tx.lookup_rows(PATH, [{"id": 3}], ["id", "sum"]) == [{"id": 3, "sum": None}]
        tx.abort()


def test_arrow_is_the_same_as_rows(db: dodona.Client) -> None:
    plain, own = db.begin(), db.begin(read_own_writes=True)
    before = plain.read_arrow(PATH, [2], None, ["a", "b"])
    assert own.read_arrow(PATH, [2], None, ["a", "b"]) == before
    for tx in (plain, own):
        tx.insert_rows(PATH, [row(120, 1, {"y": 2})])
    assert plain.read_arrow(PATH, [2], None, ["a", "b"]) == before
    after = own.read_arrow(PATH, [2], None, ["a", "b"])
    assert after.schema == before.schema
    assert after == own.select(PATH, [2], None, ["a", "b"]).to_arrow()
    assert after.column("a").to_pylist() == [2, 99, 100, 1, 150]


def test_a_transaction_does_not_read_its_own_writes_by_default(db: dodona.Client) -> None:
    with db.begin() as tx:
        tx.insert_rows(PATH, [row(1)])
        tx.delete_rows(PATH, [{"id": 2}])
        assert tx.select(PATH) == ROWS
        assert tx.lookup_rows(PATH, [{"id": 1}, {"id": 2}]) == ROWS[:2]
        assert tx.read_arrow(PATH).num_rows == len(ROWS)
        tx.abort()


def test_a_transaction_with_own_writes_does_not_see_later_commits_of_others(
    db: dodona.Client,
) -> None:
    tx = db.begin(read_own_writes=True)
    tx.insert_rows(PATH, [{"id": 1, "a": 7}], update=True)
    db.insert_rows(PATH, [row(1, 0), row(3, 0)])
    assert tx.select(PATH, None, [99]) == [row(1, 7, ["x"], 10), ROWS[1]]
    tx.abort()
    with pytest.raises(TransactionClosed):
        tx.select(PATH)


def test_other_tables_are_read_as_they_are(db: dodona.Client) -> None:
    with db.begin(read_own_writes=True) as tx:
        tx.insert_rows(PATH, [row(1)])
        tx.lock_rows(LOG, [{"id": 1}])
        assert tx.select(LOG) == ROWS
        tx.abort()


def test_a_read_of_own_writes_aborts_after_a_schema_change() -> None:
    clock = Clock()
    session = new_session(clock, table())
    transaction = begin(clock, session)
    rows = [{"id": 1, "value": 1}]
    play(clock, session.insert_rows(transaction, PLAYED, rows), nobody)
    transaction.reads_own_writes = True
    session.routing.learn(table(columns=COLUMNS[:2]))
    at = transaction.read_timestamp()
    for read in (
        session.lookup_rows(PLAYED, [{"id": 1}], timestamp=at, transaction=transaction),
        session.select(PLAYED, timestamp=at, transaction=transaction),
    ):
        with pytest.raises(TransactionAborted, match="schema changed"):
            play(clock, read, nobody)


ids = st.integers(98, 102)
values = st.dictionaries(
    st.sampled_from(["a", "b", "sum"]), st.none() | st.integers(0, 5), min_size=1, max_size=3
)
flags = st.fixed_dictionaries({"update": st.booleans(), "aggregate": st.booleans()})
steps: st.SearchStrategy[list[Any]] = st.lists(
    st.tuples(flags, ids, values) | st.tuples(st.none(), ids, st.just({})), max_size=8
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(ids, values), max_size=4), steps)
def test_reads_of_own_writes_before_the_commit_equal_reads_after_the_commit(
    shared_db: dodona.Client, there: list[Any], taken: list[Any]
) -> None:
    db = shared_db
    renew(db, [{"id": number, **given} for number, given in there])
    with db.begin(read_own_writes=True) as tx:
        for flags, number, given in taken:
            if flags is None:
                tx.delete_rows(PATH, [{"id": number}])
            else:
                tx.insert_rows(PATH, [{"id": number, **given}], **flags)
        keys = [{"id": number} for number in range(97, 104)]
        seen = tx.select(PATH), tx.lookup_rows(PATH, keys, ["b"], keep_missing=True)
        arrow = tx.read_arrow(PATH)
    assert (db.select(PATH), db.lookup_rows(PATH, keys, ["b"], keep_missing=True)) == seen
    assert db.read_arrow(PATH) == arrow


# ---- SQL

WIDE: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "part", "type": "utf8", "sort_order": "ascending"},
    {"name": "big", "type": "uint64"},
    {"name": "share", "type": "double"},
    {"name": "is_new", "type": "boolean"},
    {"name": "raw", "type": "string"},
    {"name": "note", "type": "utf8"},
    {"name": "more", "type": "any"},
    {"name": "total", "type": "int64", "aggregate": "sum"},
]
QUERIES = [
    "select * from [//wide] order by k, part",
    "select count(*) as n from [//wide]",
    "select count(*) as n from [//wide] where k >= 2",
    "select k, total from [//wide] where k = 1 order by part",
    "select sum(total) as total, max(big) as big from [//wide] where k > 0 and k < 4",
    "select a.k, b.note from [//wide] a join [//wide] b on a.total = b.total order by 1, 2",
    "select w.note, n.name from [//wide] w join [//names] n using (k) order by 1, 2",
    "select raw, more, share, is_new from [//wide] where part = 'x' order by k",
]


def fill(tx: dodona.Transaction) -> None:
    tx.insert_rows("//wide", [{"k": 1, "part": "x", "note": "both", "total": 50}], update=True)
    tx.insert_rows("//wide", [{"k": 1, "part": "y", "total": 5}], update=True, aggregate=True)
    tx.delete_rows("//wide", [{"k": 2, "part": "x"}])
    new = {"big": (1 << 64) - 1, "raw": b"\xff\x00", "more": {"a": [1, None]}, "share": 0.5}
    tx.insert_rows("//wide", [{"k": 3, "part": "x", "is_new": True, "total": 7, **new}])
    tx.delete_rows("//wide", [{"k": 4, "part": "x"}])
    tx.insert_rows("//wide", [{"k": 4, "part": "x", "total": 2}], aggregate=True)
    tx.insert_rows("//wide", [{"k": k, "part": "ä", "more": k} for k in (6, 7)])
    tx.lock_rows("//wide", [{"k": 9, "part": "x"}])


@pytest.fixture
def wide(db: dodona.Client) -> Iterator[dodona.Client]:
    db.create_table("//wide", WIDE, pivot_keys=[[], [2], [3]], mount=True)
    db.create_table("//names", [WIDE[0], {"name": "name", "type": "utf8"}], mount=True)
    db.insert_rows("//names", [{"k": at, "name": f"n{at}"} for at in range(5)])
    rows = [(1, "x"), (1, "y"), (2, "x"), (4, "x"), (5, "z")]
    db.insert_rows("//wide", [{"k": k, "part": it, "note": "old", "total": k} for k, it in rows])
    yield db
    for path in ("//wide", "//names"):
        db.remove_table(path)


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_of_own_writes_equals_the_same_query_after_the_commit(
    wide: dodona.Client, text: str
) -> None:
    db = wide
    before = db.query(text)
    plain = db.begin()
    fill(plain)
    assert plain.query(text) == before
    plain.abort()
    tx = db.begin(read_own_writes=True)
    fill(tx)
    db.insert_rows("//wide", [{"k": 0, "part": "x", "note": "other"}])
    db.delete_rows("//wide", [{"k": 0, "part": "x"}])
    seen = tx.query(text)
    tx.commit()
    assert seen == db.query(text) != before
