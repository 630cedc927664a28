"""What a reading task does with pages: ahead of its consumer, and in fewer pieces."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest

import pyspark_dodona
from dodona.errors import InvalidRequest, SchemaViolation, SnapshotTooOld
from dodona.schema import Column
from dodona.types import ReaderId, Timestamp
from pyspark_dodona import pages
from pyspark_dodona.columns import check_types
from pyspark_dodona.pages import ahead, gathered, read_part
from pyspark_dodona.ranges import Range
from pyspark_dodona.reader import schema_of
from pyspark_dodona.snapshot import TableSnapshot
from suite.waiting import WAIT_S_MAX


def test_items_are_made_one_ahead_and_in_order() -> None:
    made: list[int] = []
    second = threading.Event()

    def items() -> Iterator[int]:
        for number in range(5):
            made.append(number)
            if number == 1:
                second.set()
            yield number

    coming = ahead(items())
    assert next(coming) == 0
    assert second.wait(WAIT_S_MAX), "the next one is made while this one is in use"
    assert made == [0, 1]
    assert list(coming) == [1, 2, 3, 4]
    assert list(ahead(iter(()))) == []


def test_an_error_is_raised_at_the_place_of_its_item() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise InvalidRequest("no more")

    coming = ahead(items())
    assert next(coming) == 1
    with pytest.raises(InvalidRequest, match="no more"):
        next(coming)


def test_a_consumer_that_closes_early_leaves_no_thread_behind() -> None:
    def items() -> Iterator[int]:
        while True:
            yield 1

    before = {*threading.enumerate()}
    coming = ahead(items())
    assert next(coming) == 1
    coming.close()  # type: ignore[attr-defined]
    assert before >= {*threading.enumerate()}


def test_small_batches_are_merged_into_larger_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "BATCH_ROWS", 10)
    batches = [pa.record_batch({"k": range(at, at + 4)}) for at in range(0, 28, 4)]
    tables = list(gathered(iter(batches)))
    assert [it.num_rows for it in tables] == [12, 12, 4]
    assert [it.column("k").num_chunks for it in tables] == [1, 1, 1]
    assert pa.concat_tables(tables).column("k").to_pylist() == list(range(28))
    monkeypatch.setattr(pages, "BATCH_BYTES", 1)
    assert len(list(gathered(iter(batches)))) == 7


class Held:
    """A snapshot that is lost after some checks."""

    def __init__(self, checks: int) -> None:
        self.checks = checks

    def check(self) -> None:
        self.checks -= 1
        if self.checks < 0:
            raise SnapshotTooOld("not held any more")


def test_versions_of_a_snapshot_that_was_lost_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tablets give what is left, and don't say what went."""
    columns = (Column("k", "int64", "ascending"), Column("v", "int64"))
    shown = "http://here", "//t", Timestamp(9), ReaderId(8), 60_000, columns, columns
    snapshot = TableSnapshot(*shown, None, (), Range(), 10, versioned=True)
    page = pa.table(
        {
            "k": [1],
            "v": [2],
            "$timestamp": pa.array([7], pa.uint64()),
            "$change_type": ["write"],
            "$columns": pa.array([None], pa.list_(pa.utf8())),
        }
    )
    client = SimpleNamespace(read_changes=lambda *_: iter(page.to_batches()))
    monkeypatch.setattr(pages, "connect", lambda _: client)

    def row_count(checks: int) -> int:
        monkeypatch.setattr(pages, "renewed", lambda _: Held(checks))
        part = read_part(snapshot, schema_of(snapshot), (), Range())
        return sum(batch.num_rows for batch in part)

    assert row_count(2) == 1
    for checks in (0, 1):
        with pytest.raises(SnapshotTooOld, match="not held any more"):
            row_count(checks)


def test_a_table_that_was_altered_is_refused() -> None:
    columns = [Column("k", "int64"), Column("u", "uint64")]
    read = pa.schema([("u", pa.uint64()), ("k", pa.int64())])
    check_types(columns, read, "//t")
    with pytest.raises(SchemaViolation, match="//t was altered since it was loaded: 'u' was uint6"):
        check_types(columns, pa.schema([("u", pa.int64()), ("k", pa.int64())]), "//t")


def test_a_spark_source_does_not_connect_when_it_is_created() -> None:
    nowhere = {"url": "http://127.0.0.1:9", "path": "//t"}
    pyspark_dodona.DefaultSource(dict(nowhere))
    source = pyspark_dodona.DefaultSource({**nowhere, "zzz": "1"})
    with pytest.raises(InvalidRequest, match="a read has no option 'zzz'"):
        source.schema()
