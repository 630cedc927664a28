"""The change feed: every version once, in whatever stores and tablets it is."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from conformance import bulk
from conformance.backends import Backend, ClientClock
from conformance.selections import ON_SEVERAL_CELLS, UNDER_VIRTUAL_TIME
from conformance.stepping import prepare
from conformance.tables import APART, GROUPS, PLAIN, SUM, TWO_COLUMNS, MakeTable, Row, read, refused
from dodona._core.protocol.limits import SessionLimits
from dodona.client import Client
from dodona.errors import InvalidRequest, SchemaViolation, SnapshotTooOld, TableNotFound
from dodona.types import MAX_TIMESTAMP, Timestamp

AT_ONCE: Row = {"min_data_ttl": 0, "max_data_ttl": 0, "dynamic_store_auto_flush_period": 1_000}
LATER_MS = 180_000
MARKS = ["$timestamp", "$change_type", "$columns"]


def changes(db: Client, path: str, since: int, *arguments: Any, **options: Any) -> list[Row]:
    batches = db.read_changes(path, since, *arguments, **options)
    return [row for batch in batches for row in batch.to_pylist()]


def written(key: int, timestamp: Timestamp | None, v: int | None, w: bytes | None = None) -> Row:
    return dict(zip(["k", "v", "w", *MARKS], [key, v, w, timestamp, "write", None], strict=True))


def updated(key: int, timestamp: Timestamp | None, columns: Sequence[str], **values: Any) -> Row:
    row: Row = {"k": key, "v": None, "w": None, **values}
    return row | dict(zip(MARKS, [timestamp, "update", list(columns)], strict=True))


def deleted(key: int, timestamp: Timestamp | None) -> Row:
    row: Row = {"k": key, "v": None, "w": None}
    return row | dict(zip(MARKS, [timestamp, "delete", None], strict=True))


# ---- what comes


def test_the_change_feed_reports_the_timestamp_and_values_of_each_change(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    first = db.insert_rows(path, [{"k": 1, "v": 1, "w": b"x"}, {"k": 2, "v": 2}])
    second = db.insert_rows(path, [{"k": 1, "w": None}], update=True)
    third = db.delete_rows(path, [{"k": 1}])
    fourth = db.insert_rows(path, [{"k": 2, "v": 5, "w": b"y"}], update=True)
    expected = [
        deleted(1, third),
        updated(1, second, ["w"]),
        written(1, first, 1, b"x"),
        written(2, fourth, 5, b"y"),
        written(2, first, 2),
    ]
    assert changes(db, path, 0) == changes(db, path, 1) == expected
    assert first is not None
    assert third is not None
    assert changes(db, path, first) == [it for it in expected if it["$timestamp"] > first]
    assert changes(db, path, first, third) == expected[:2]
    assert changes(db, path, third, third) == []


def test_a_reader_that_continues_from_the_last_timestamp_gets_only_new_changes(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=APART)
    for atomicity in ("full", "none"):
        path = make_table(TWO_COLUMNS, pivot_keys=APART, atomicity=atomicity)
        feed = db.read_changes(path, db.generate_timestamp())
        assert list(feed) == []
        for number in range(3):
            at = db.insert_rows(path, [{"k": 1, "v": number}, {"k": 100, "v": number}])
            feed = db.read_changes(path, feed.timestamp)
            rows = [row for batch in feed for row in batch.to_pylist()]
            assert [(row["k"], row["v"]) for row in rows] == [(1, number), (100, number)]
            assert max(row["$timestamp"] for row in rows) == at
            assert feed.timestamp > (at or 0)


def test_a_range_of_keys_and_some_columns(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=APART)
    at = db.insert_rows(path, [{"k": key, "v": key} for key in (1, 50, 99, 100, 150)])
    db.insert_rows(path, [{"k": 50, "v": 7}], update=True)
    cut = changes(db, path, 0, lower=[50], upper=[150], columns=["k"])
    assert [row["k"] for row in cut] == [50, 50, 99, 100]
    assert [row["$columns"] for row in cut] == [[], None, None, None]
    assert list(cut[0]) == ["k", *MARKS]
    assert changes(db, path, 0, at, [99], [100], ["v"]) == [
        {"v": 99, "$timestamp": at, "$change_type": "write", "$columns": None}
    ]
    assert changes(db, path, 0, lower=[3], upper=[3]) == []
    with refused(SchemaViolation, "column", is_retryable=False):
        changes(db, path, 0, columns=["x"])


def test_the_change_feed_distinguishes_aggregate_changes_from_values(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM)
    db.insert_rows(path, [{"k": 1, "total": 10, "v": 1}])
    db.insert_rows(path, [{"k": 1, "total": 5}], update=True, aggregate=True)
    db.insert_rows(path, [{"k": 1, "total": 2, "v": 3}], update=True, aggregate=True)
    names = ["total", "v", "$change_type", "$columns", "$aggregated"]
    assert [[row[name] for name in names] for row in changes(db, path, 0)] == [
        [2, 3, "update", None, ["total"]],
        [5, None, "update", ["total"], ["total"]],
        [10, 1, "write", None, None],
    ]
    plain = changes(db, path, 0, columns=["v"])
    assert [row["$change_type"] for row in plain] == ["update", "update", "write"]
    assert "$aggregated" not in plain[0]


def test_all_batches_have_one_schema(db: Client, make_table: MakeTable) -> None:
    path = make_table(SUM, pivot_keys=APART)
    db.insert_rows(path, [{"k": 1, "total": 1}])
    db.delete_rows(path, [{"k": 100}])
    first, second = db.read_changes(path, 0)
    assert first.schema == second.schema
    assert first.schema.field("$timestamp").type == pa.uint64()
    assert first.schema.field("$change_type").type == pa.dictionary(pa.int8(), pa.utf8())
    assert first.schema.field("$columns").type == pa.list_(pa.utf8())


def test_changes_are_counted_by_time(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=APART)
    first = db.insert_rows(path, [{"k": key, "v": 1} for key in (1, 2, 100)])
    second = db.insert_rows(path, [{"k": 1, "v": 1}])
    assert db.count_changes(path, 0) == [(first, 3), (second, 1)]
    assert first is not None
    assert db.count_changes(path, first) == [(second, 1)]
    assert db.count_changes(path, 0, first, [2], [100]) == [(first, 1)]
    assert db.count_changes(path, db.generate_timestamp()) == []


def test_pages_may_end_anywhere(backend: Backend, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=APART)
    db = backend.db
    for number in range(4):
        db.insert_rows(path, [{"k": key, "v": number} for key in (1, 2, 100)])
    everything = changes(db, path, 0)
    assert len(everything) == 12
    for limit in (1, 3, 5):
        other = backend.new_client(limits=SessionLimits(rows_per_page_max=limit))
        batches = list(other.read_changes(path, 0))
        assert all(0 < batch.num_rows <= limit for batch in batches)
        assert [row for batch in batches for row in batch.to_pylist()] == everything


def test_the_change_feed_shows_a_bulk_load_at_its_commit_timestamp(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    since = db.insert_rows(path, [{"k": key, "v": 0} for key in (1, 2, 100, 101)])
    assert since is not None
    stamps = []
    for options, data in (
        ({}, bulk.rows([1, 150], 1)),
        ({"mode": "delete"}, bulk.keys([2])),
        ({"erased": {path: ([100], [102])}}, bulk.rows([100], 3)),
    ):
        load = db.loads.begin([path], **options)
        load.write(path, data)
        stamps.append(load.publish().timestamp)
    found = [
        (row["k"], row["v"], row["$change_type"], row["$timestamp"])
        for row in changes(db, path, since)
    ]
    assert found == [
        (1, 1, "write", stamps[0]),
        (2, None, "delete", stamps[1]),
        (100, 3, "write", stamps[2]),
        (101, None, "delete", stamps[2]),
        (150, 1, "write", stamps[0]),
    ]


# ---- what is refused


def test_what_is_no_range_of_time_is_refused(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    at = db.generate_timestamp()
    odd: list[tuple[Any, Any]] = [
        (at, at - 1),
        (-1, at),
        (0, 0),
        ("1", at),
        (1.5, at),
        (at, "latest"),
    ]
    for since, until in odd:
        for call in (db.read_changes, db.count_changes):
            with refused(InvalidRequest, is_retryable=False):
                call(path, since, until)
    with refused(InvalidRequest, "future", is_retryable=False):
        changes(db, path, at, MAX_TIMESTAMP)
    with refused(InvalidRequest, "Pass a lower `since`", is_retryable=False):
        db.read_changes(path, MAX_TIMESTAMP)
    with refused(TableNotFound, is_retryable=False):
        changes(db, f"{path}-not", 0)


@UNDER_VIRTUAL_TIME
def test_a_feed_below_the_retained_timestamp_is_refused_unless_it_begins_at_zero(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, attributes=AT_ONCE)
    first = db.insert_rows(path, [{"k": 1, "v": 1}])
    db.insert_rows(path, [{"k": 1, "v": 2}])
    last = db.insert_rows(path, [{"k": 1, "v": 3}])
    backend.let_pass(LATER_MS)
    assert first is not None
    assert last is not None
    for since in (1, first, last):
        with refused(SnapshotTooOld, "retained timestamp", is_retryable=True, timestamp=since):
            changes(db, path, since)
        with refused(SnapshotTooOld, "retained timestamp", is_retryable=True):
            db.count_changes(path, since)
    assert changes(db, path, 0) == [written(1, last, 3)]
    now = db.generate_timestamp()
    assert changes(db, path, now) == []


@UNDER_VIRTUAL_TIME
def test_nothing_goes_that_was_written_after_a_snapshot_that_is_held(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=APART, attributes=AT_ONCE)
    db.insert_rows(path, [{"k": 1, "v": 0}])
    with db.hold_snapshot([path]) as snapshot:
        stamps = []
        for number in range(1, 4):
            stamps.append(db.insert_rows(path, [{"k": 1, "v": number}]))
            backend.let_pass(LATER_MS)
        expected = [written(1, at, number) for number, at in enumerate(stamps, 1)]
        assert changes(db, path, snapshot.timestamp) == expected[::-1]
    backend.let_pass(LATER_MS)
    with refused(SnapshotTooOld, is_retryable=True):
        changes(db, path, snapshot.timestamp)


# ---- what lies at the same timestamp


@ON_SEVERAL_CELLS
def test_a_change_feed_waits_for_prepared_transactions_in_its_range(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=APART)
    since = db.generate_timestamp()
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "w": b"x"}, {"k": 100, "w": b"x"}], update=True)
    commit = prepare(db, transaction)
    assert changes(db, path, since, lower=[2], upper=[100]) == []
    first, second = (updated(key, None, ["w"], w=b"x") for key in (1, 100))
    found = changes(db, path, since)  # waits until the cells have decided by themselves
    at = commit.result()
    assert found == [first | {"$timestamp": at}, second | {"$timestamp": at}]


@ON_SEVERAL_CELLS
def test_a_change_feed_waits_for_prepared_transactions_that_change_other_columns(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(GROUPS, pivot_keys=APART)
    since = db.generate_timestamp()
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "a": 1}, {"k": 100, "a": 1}], update=True)
    commit = prepare(db, transaction)
    (found,) = changes(db, path, since, upper=[100], columns=["b"])
    at = commit.result()
    assert found == {"b": None, "$timestamp": at, "$change_type": "update", "$columns": []}


def slow_clock(backend: Backend) -> Client:
    clock = ClientClock()
    clock.unix_skew_ms = -30_000
    return backend.new_client(clock=clock)


@pytest.mark.parametrize("way", ["read_changes", "read_arrow", "lookup_rows", "restart"])
def test_without_atomicity_nothing_comes_late(
    backend: Backend, db: Client, make_table: MakeTable, way: str
) -> None:
    """A client whose clock is behind writes rows, in tablets that were read already."""
    path = make_table(TWO_COLUMNS, atomicity="none")
    slow = slow_clock(backend)
    backend.let_pass(100)
    slow.insert_rows(path, [{"k": 1, "v": 1}])
    now = db.generate_timestamp()
    before = read(db, path, timestamp=now)
    if way == "lookup_rows":
        db.lookup_rows(path, [{"k": 9}], timestamp=now)
    elif way == "read_arrow":
        db.read_arrow(path, timestamp=now)
    else:
        changes(db, path, 0, now)
    if way == "restart":
        backend.restart_cells()
    slow.insert_rows(path, [{"k": 2, "v": 2}])
    assert read(db, path, timestamp=now) == before
    (late,) = changes(db, path, now)
    assert (late["k"], late["v"]) == (2, 2)
    assert late["$timestamp"] > now


# ---- whatever becomes of the table


class _Writer:
    """Writes at random, and knows all that it wrote."""

    def __init__(self, db: Client, path: str, keys_max: int) -> None:
        self._db = db
        self._path = path
        self._keys_max = keys_max
        self._dice = Random(3)
        self.versions: list[tuple[int, int]] = []

    def write(self, count: int) -> None:
        for _ in range(count):
            drawn = range(self._dice.randint(1, self._keys_max))
            keys = sorted({self._dice.randrange(200) for _ in drawn})
            way = self._dice.choice(("insert", "update", "delete"))
            if way == "delete":
                at = self._db.delete_rows(self._path, [{"k": key} for key in keys])
            else:
                rows = [{"k": key, "v": self._dice.randrange(9)} for key in keys]
                at = self._db.insert_rows(self._path, rows, update=way == "update")
            assert at is not None
            self.versions += [(key, at) for key in keys]


class _Replica:
    """Does what a feed says."""

    def __init__(self) -> None:
        self.versions: list[tuple[int, int]] = []
        self.rows: dict[int, Row] = {}
        self.until = Timestamp(1)

    def read(self, db: Client, path: str) -> None:
        feed = db.read_changes(path, self.until)
        rows = [row for batch in feed for row in batch.to_pylist()]
        for row in sorted(rows, key=lambda it: it["$timestamp"]):
            self._apply(row)
        self.until = feed.timestamp

    def _apply(self, row: Row) -> None:
        self.versions.append((row["k"], row["$timestamp"]))
        values = {name: row[name] for name in ("k", "v", "w")}
        match row["$change_type"]:
            case "delete":
                self.rows.pop(row["k"], None)
            case "write":
                self.rows[row["k"]] = values
            case _:
                known = self.rows.setdefault(row["k"], {"k": row["k"], "v": None, "w": None})
                known.update({name: row[name] for name in row["$columns"]})

    def table(self) -> list[Row]:
        return [self.rows[key] for key in sorted(self.rows)]


def _events(backend: Backend, db: Client, path: str) -> Iterator[None]:
    """What may happen to a table, one by one."""
    yield
    backend.restart_cells()
    yield
    db.unmount_table(path)
    db.mount_table(path)
    yield
    db.unmount_table(path)
    db.reshard_table(path, [[], [50], [100]])
    db.mount_table(path)
    yield
    db.freeze_table(path)
    db.unfreeze_table(path)
    yield
    db.unmount_table(path)
    db.reshard_table(path, [[]])
    db.mount_table(path)
    yield
    backend.restart_master()
    yield


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_a_replica_that_follows_the_feed_is_the_table(
    backend: Backend, db: Client, make_table: MakeTable, atomicity: str
) -> None:
    path = make_table(TWO_COLUMNS, atomicity=atomicity)
    # Without atomicity each tablet stamps its rows for itself: the writer knows the highest.
    writer, replica = _Writer(db, path, keys_max=5 if atomicity == "full" else 1), _Replica()
    for _ in _events(backend, db, path):
        writer.write(10)
        replica.read(db, path)
        assert replica.table() == read(db, path, timestamp=replica.until)
    while len(replica.versions) < len(writer.versions):  # stamps may be ahead of the oracle
        backend.let_pass(10)
        replica.read(db, path)
    assert sorted(replica.versions) == sorted(writer.versions)
    assert replica.table() == read(db, path)
