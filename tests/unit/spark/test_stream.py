"""The streaming source without Spark, over a simulated cluster: offsets, limits and leases.

Owns: `Query`, which asks a reader what Spark asks, in Spark's order, and notes what it is given.
"""

import pickle
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

import dodona
from conformance.backends import ClientClock, Simulated
from dodona.errors import InvalidRequest, SchemaViolation, SnapshotTooOld, TableNotMounted
from dodona.types import NULL_TIMESTAMP, Timestamp
from pyspark_dodona import pages, snapshot, stream
from pyspark_dodona.changes import changes_schema
from pyspark_dodona.options import ReadOptions, StreamReadOptions
from pyspark_dodona.ranges import Range
from pyspark_dodona.stream import ChangeStreamReader, end_of, stream_schema

PATH = "//t/x"
COLUMNS: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending", "required": True},
    {"name": "v", "type": "int64"},
]
PIVOTS = [[], [100], [200], [300]]
AT_ONCE = {"min_data_ttl": 0, "max_data_ttl": 0, "dynamic_store_auto_flush_period": 1_000}
LATER_MS = 180_000
Version = tuple[int, int, str]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Simulated:
    made = Simulated()
    for module in (stream, pages, snapshot):
        monkeypatch.setattr(module, "connect", lambda _: made.db)
    return made


@pytest.fixture
def db(backend: Simulated) -> dodona.Client:
    backend.db.create_table(PATH, COLUMNS, pivot_keys=PIVOTS, mount=True, attributes=AT_ONCE)
    return backend.db


def options(at: int | None = NULL_TIMESTAMP, **others: Any) -> StreamReadOptions:
    start = None if at is None else Timestamp(at)
    return StreamReadOptions("//sim", PATH, starting_timestamp=start, **others)


class Query:
    """What Spark does with a source, from a checkpoint if there is one."""

    def __init__(self, given: StreamReadOptions, checkpoint: "Query | None" = None) -> None:
        self.reader = ChangeStreamReader(given, stream_schema(given))
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()
        self.batches: list[list[Version]] = [] if checkpoint is None else checkpoint.batches
        self.offset: stream.Offset
        self.offset = self.reader.initialOffset() if checkpoint is None else checkpoint.offset

    @property
    def versions(self) -> list[Version]:
        return [it for batch in self.batches for it in batch]

    def advance(self) -> list[Version] | None:
        """A micro-batch, or None if there is nothing new."""
        end = self.reader.latestOffset(self.offset, self.limit)
        if end == self.offset:
            return None
        found = self.read(self.offset, end)
        self.batches.append(found)
        self.offset = end
        self.reader.commit(end)
        return found

    def read(self, start: stream.Offset, end: stream.Offset) -> list[Version]:
        found: list[Version] = []
        for part in self.reader.partitions(start, end):
            part = pickle.loads(pickle.dumps(part))
            rows = [row for batch in self.reader.read(part) for row in batch.to_pylist()]
            order = [(row["_commit_timestamp"], row["k"]) for row in rows]
            assert order == sorted(order)
            found += [(row["k"], row["_commit_timestamp"], row["_change_type"]) for row in rows]
        return found

    def run(self) -> None:
        """Until there is nothing new."""
        while self.advance() is not None:
            pass


def write(db: dodona.Client, *keys: int) -> list[Version]:
    at = db.insert_rows(PATH, [{"k": key, "v": 1} for key in keys])
    assert at is not None
    return [(key, at, "write") for key in keys]


# ---- how far


@pytest.mark.parametrize("start", ["earliest", "first", "latest"])
def test_a_stream_begins_at_the_earliest_at_a_timestamp_or_now(
    db: dodona.Client, start: str
) -> None:
    first, second = write(db, 1), write(db, 2)
    starts = {"earliest": NULL_TIMESTAMP, "first": first[0][1], "latest": None}
    before = {"earliest": first + second, "first": second, "latest": []}
    query = Query(options(starts[start]))
    later = write(db, 3)
    query.run()
    assert query.versions == [*before[start], *later]
    assert query.advance() is None
    at = db.delete_rows(PATH, [{"k": 3}])
    assert query.advance() == [(3, at, "delete")]


def test_a_stream_includes_later_writes_of_a_client_whose_clock_is_behind(
    backend: Simulated,
) -> None:
    db, clock = backend.db, ClientClock()
    db.create_table(PATH, COLUMNS, pivot_keys=PIVOTS, mount=True, atomicity="none")
    clock.unix_skew_ms = -30_000
    slow = backend.new_client(clock=clock)
    query = Query(options(None))
    expected = write(slow, 1, 250)
    query.run()
    assert query.versions == expected


def test_a_micro_batch_has_about_the_maximum_rows_and_whole_transactions(db: dodona.Client) -> None:
    expected = [write(db, *range(at, at + 300, 100)) for at in range(20)]
    query = Query(options(max_rows_per_batch=10))
    query.run()
    assert query.versions == [it for batch in expected for it in batch]
    assert [len(batch) for batch in query.batches] == [9] * 6 + [6]
    for size in (1, 2):
        query = Query(options(max_rows_per_batch=size))
        query.run()
        assert query.batches == expected


def test_changes_are_counted_once_for_many_micro_batches(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(10):
        write(db, at)
    counted: list[tuple[int, int]] = []
    count = db.count_changes

    def counting(path: str, since: int, until: int) -> Any:
        counted.append((since, until))
        return count(path, since, Timestamp(until))

    monkeypatch.setattr(db, "count_changes", counting)
    query = Query(options(max_rows_per_batch=2))
    ends = []
    for _ in range(4):
        end = query.reader.latestOffset(query.offset, query.limit)
        ends.append(end)
        query.offset = end
    assert len(counted) == 1
    write(db, 50)
    assert query.advance() is not None
    assert len(query.read(ends[0], ends[1])) == 2
    assert query.advance() == [
        (50, db.lookup_versions(PATH, [{"k": 50}])[0].write_timestamps[0], "write")
    ]


def test_a_read_of_all_available_versions_is_one_micro_batch(db: dodona.Client) -> None:
    expected = write(db, *range(30)) + write(db, 7)
    query = Query(options(max_rows_per_batch=1))
    query.limit = ReadAllAvailable()
    query.advance()
    assert query.batches == [expected]


def test_available_now_reads_only_versions_from_before_the_call(db: dodona.Client) -> None:
    expected = [write(db, 1), write(db, 2)]
    query = Query(options(max_rows_per_batch=1))
    query.reader.prepareForTriggerAvailableNow()
    later = write(db, 3)
    query.run()
    assert query.batches == expected
    again = Query(options(max_rows_per_batch=1), query)
    again.reader.prepareForTriggerAvailableNow()
    again.run()
    assert again.batches == [*expected, later]


@pytest.mark.parametrize(
    ("most", "end"), [(None, None), (1, 10), (4, 10), (5, 20), (8, 20), (9, None), (99, None)]
)
def test_a_micro_batch_ends_at_the_last_transaction_within_the_row_limit(
    most: int | None, end: int | None
) -> None:
    counts = [(Timestamp(10), 3), (Timestamp(20), 2), (Timestamp(30), 4)]
    assert end_of(counts, most) == end


def test_few_changes_are_read_by_one_task_and_many_by_one_a_tablet(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PART_ROWS", 2)
    query = Query(options())

    def parts(*keys: int) -> list[Any]:
        write(db, *keys)
        end = query.reader.latestOffset(query.offset, query.limit)
        found = [_keys_of(part) for part in query.reader.partitions(query.offset, end)]
        assert query.reader.partitions(end, end) == []
        query.advance()
        return [(it.lower, it.upper) for it in found]

    assert parts(1, 350) == [(None, None)]
    assert parts(1, 250, 350) == [(None, (200,)), ((200,), None)]
    assert len(parts(*range(0, 400, 7))) == len(PIVOTS)
    assert parts(150) == [(None, None)]


def _keys_of(part: InputPartition) -> Range:
    assert isinstance(part, stream.ChangePart)
    return part.keys


# ---- leases and restarts


def test_a_failed_first_micro_batch_is_repeated_from_its_original_start(
    backend: Simulated, db: dodona.Client
) -> None:
    """Spark asks anew where the query begins: that is later by now."""
    query = Query(options(None))
    start = query.offset
    assert query.reader.initialOffset() == start
    expected = write(db, 1, 150)
    end = query.reader.latestOffset(start, query.limit)
    again = Query(options(None))
    assert again.offset["timestamp"] > end["timestamp"]
    assert again.read(again.offset, end) == expected
    assert again.read(again.offset, start) == []
    for _ in range(3):
        write(db, 1)
        backend.let_pass(LATER_MS)
    query.reader.stop()
    assert again.read(again.offset, end) == expected


def test_a_micro_batch_that_is_repeated_is_the_same(backend: Simulated, db: dodona.Client) -> None:
    """Whatever was written, flushed and compacted since."""
    query = Query(options(db.generate_timestamp()))
    start = query.offset
    write(db, 1, 150)
    end = query.reader.latestOffset(start, query.limit)
    found = query.read(start, end)
    for _ in range(3):
        write(db, 1, 2, 150)
        backend.let_pass(LATER_MS)
        assert query.read(start, end) == found


def test_nothing_goes_that_a_query_has_yet_to_read(backend: Simulated, db: dodona.Client) -> None:
    query = Query(options(None))
    expected: list[Version] = []
    for _ in range(3):
        for _ in range(2):
            expected += write(db, 1)
            backend.let_pass(LATER_MS)
        query.run()
        assert query.versions == expected
    reads = db.read_changes(PATH, query.offset["timestamp"])
    assert list(reads) == []
    with pytest.raises(SnapshotTooOld):
        list(db.read_changes(PATH, expected[0][1]))


def test_a_query_can_stop_for_the_time_of_its_lease(backend: Simulated, db: dodona.Client) -> None:
    given = options(None, lease_s=900)
    query = Query(given)
    expected = write(db, 1)
    query.run()
    for _ in range(2):
        query.reader.stop()
        for _ in range(4):
            expected += write(db, 1)
            backend.let_pass(LATER_MS)
        query = Query(given, query)
        query.run()
        assert query.versions == expected


def test_a_restarted_query_can_wait_for_longer_than_its_lease(
    backend: Simulated, db: dodona.Client
) -> None:
    given = options(None, lease_s=60)
    query = Query(given)
    expected = write(db, 1)
    query.run()
    query.reader.stop()
    query = Query(given, query)
    assert query.advance() is None
    for _ in range(3):
        backend.let_pass(LATER_MS)
        expected += write(db, 1)
    query.run()
    assert query.versions == expected


def test_a_query_that_stops_for_longer_than_its_lease_gets_an_error_with_advice(
    backend: Simulated, db: dodona.Client
) -> None:
    given = options(None, lease_s=60)
    query = Query(given)
    write(db, 1)
    query.run()
    query.reader.stop()
    for _ in range(3):
        write(db, 1)
        backend.let_pass(LATER_MS)
    again = Query(given, query)
    offset = query.offset["timestamp"]
    text = f"after {offset} were removed .*min_data_ttl.*new checkpoint.*'earliest'"
    with pytest.raises(SnapshotTooOld, match=text) as caught:
        again.advance()
    assert caught.value.attributes["timestamp"] == offset
    end = {**query.offset, "since": offset, "timestamp": db.generate_timestamp()}
    with pytest.raises(SnapshotTooOld, match=text):
        again.reader.partitions(query.offset, end)
    part = stream.ChangePart(Range(), Timestamp(offset), end["timestamp"])
    with pytest.raises(SnapshotTooOld, match=text):
        list(again.reader.read(part))
    with pytest.raises(SnapshotTooOld, match=f"after {offset} were"):
        Query(options(offset))
    anew = Query(options())
    anew.run()
    assert [it[0] for it in anew.versions] == [1]


def test_while_a_table_is_not_mounted_there_is_nothing_new(
    backend: Simulated, db: dodona.Client
) -> None:
    query = Query(options())
    expected = write(db, 1, 250)
    db.unmount_table(PATH)
    assert query.advance() is None
    backend.let_pass(LATER_MS)
    assert query.advance() is None
    query.reader.commit(query.offset)
    db.reshard_table(PATH, [[], [250]])
    db.mount_table(PATH)
    query.run()
    assert query.versions == expected
    db.unmount_table(PATH)
    query.reader.prepareForTriggerAvailableNow()
    with pytest.raises(TableNotMounted):
        query.advance()


def test_another_table_is_not_read_on(db: dodona.Client) -> None:
    query = Query(options())
    write(db, 1)
    query.run()
    db.remove_table(PATH)
    db.create_table(PATH, COLUMNS, mount=True)
    write(db, 1)
    again = Query(options(), query)
    for call in (again.advance, lambda: again.reader.partitions(again.offset, again.offset)):
        with pytest.raises(InvalidRequest, match=r"was replaced since .* new checkpoint"):
            call()


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_every_change_comes_once(backend: Simulated, atomicity: Any) -> None:
    """Of random writes and deletions, by a query that is stopped and begun anew, while rows are
    flushed, tablets cut and cells restarted."""
    db, dice = backend.db, Random(7)
    db.create_table(
        PATH, COLUMNS, pivot_keys=PIVOTS, mount=True, attributes=AT_ONCE, atomicity=atomicity
    )
    given = options(None, max_rows_per_batch=7)
    query = Query(given)
    expected: list[Version] = []
    for _ in range(30):
        keys = sorted({dice.randrange(400) for _ in range(dice.randrange(1, 9))})
        if dice.random() < 0.3:
            at = db.delete_rows(PATH, [{"k": key} for key in keys])
            assert at is not None
            expected += [(key, at, "delete") for key in keys]
        else:
            expected += write(db, *keys)
        match dice.randrange(12):
            case 0:
                query.reader.stop()
                query = Query(given, query)
            case 1:
                backend.let_pass(LATER_MS)
            case 2:
                db.unmount_table(PATH)
                db.reshard_table(PATH, [[], *[[at] for at in sorted({dice.randrange(400), 7})]])
                db.mount_table(PATH)
            case 3:
                backend.restart_cells()
            case 4 | 5 | 6:
                query.run()
            case _:
                query.advance()
    backend.let_pass(1_000)
    query.run()
    assert sorted(query.versions) == sorted(expected)
    stamps = [at for _, at, _ in query.versions]
    ends = [max(at for _, at, _ in batch) for batch in query.batches if batch]
    assert ends == sorted(ends)
    assert len(stamps) == len(expected)


# ---- columns


def test_versions_have_columns_of_their_own(db: dodona.Client) -> None:
    schema = stream_schema(options())
    assert schema.simpleString() == (
        "struct<k:bigint,v:bigint,_commit_timestamp:bigint,_change_type:string,"
        "_changed_columns:array<string>>"
    )
    assert [it.nullable for it in schema.fields] == [False, True, False, False, True]
    columns = dodona.TableSchema.parse(
        [*COLUMNS, {"name": "s", "type": "int64", "aggregate": "sum"}]
    )
    assert changes_schema(columns.columns, PATH).names[-1] == "_aggregated_columns"
    taken = dodona.TableSchema.parse([*COLUMNS, {"name": "_change_type", "type": "int64"}])
    with pytest.raises(SchemaViolation, match=r"has a column '_change_type'.*option.'columns'"):
        changes_schema(taken.columns, PATH)


def test_a_schema_that_is_not_that_of_changes_is_refused(db: dodona.Client) -> None:
    given = options()
    with pytest.raises(SchemaViolation, match=r"option.'versioned', 'true'"):
        ChangeStreamReader(given, type(stream_schema(given))(stream_schema(given).fields[:2]))


def test_a_table_that_was_altered_is_not_read_on(db: dodona.Client) -> None:
    query = Query(options())
    write(db, 1)
    query.run()
    db.unmount_table(PATH)
    db.alter_table(PATH, [*COLUMNS, {"name": "w", "type": "utf8"}])
    db.mount_table(PATH)
    later = write(db, 2)
    assert [it[:2] for it in query.advance() or []] == [it[:2] for it in later]


def test_a_versioned_read_returns_versions_as_rows(db: dodona.Client) -> None:
    expected = write(db, 1, 150)
    at = db.delete_rows(PATH, [{"k": 150}])
    pinned = snapshot.pin_snapshot(ReadOptions("//sim", PATH, versioned=True, filter="k > 1"))
    assert pinned.versioned
    rows = _rows(pinned, stream_schema(options()))
    assert [(it["k"], it["_commit_timestamp"], it["_change_type"]) for it in rows] == [
        (150, at, "delete"),
        expected[1],
    ]


def _rows(pinned: snapshot.TableSnapshot, schema: Any, filters: Sequence[Any] = ()) -> list[Any]:
    batches = pages.read_part(pinned, schema, filters, pinned.keys)
    return [row for batch in batches for row in batch.to_pylist()]
