"""Bulk writes: fitting Arrow columns to a table, dividing batches, and bounded messages."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow
import pytest

from dodona._core.protocol.steps import MASTER, Target
from dodona._core.session import Session
from dodona._core.writing import bulk
from dodona.errors import InvalidRequest, Overloaded, SchemaViolation, Unavailable
from dodona.schema import Column, TableSchema
from dodona.types import LoadId, Timestamp, timestamp_from_unix_us
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Table
from dodona_wire.messages.data import WriteArrow, Written
from dodona_wire.messages.families import Reply, Request
from dodona_wire.rows import arrow, arrow_keys
from dodona_wire.rows.arrow import table_of
from unit.client.protocols import (
    LOST,
    MOVED,
    PATH,
    Clock,
    new_session,
    nobody,
    play,
    table,
    tablet,
    unchanged,
)


class Cells:
    """Takes what is sent; answers as told for the first requests."""

    def __init__(self, *failures: Failure, known: Table | None = None) -> None:
        self.known = known or table(atomicity="none")
        self.failures = list(failures)
        self.messages: list[tuple[Target, WriteArrow]] = []
        self.clock = Clock()
        self.answer_ms = 0

    def __call__(self, target: Target, body: Request) -> Reply:
        if target == MASTER:
            return self.known
        assert isinstance(body, WriteArrow)
        self.clock.now_us += self.answer_ms * 1000
        if self.failures:
            return self.failures.pop(0)
        self.messages.append((target, body))
        return Written(table_of(body.batch).num_rows, Timestamp(1))

    def rows(self, target: Target) -> list[dict[str, Any]]:
        return [
            row
            for cell, body in self.messages
            for row in table_of(body.batch).to_pylist()
            if cell == target
        ]

    def row_counts(self) -> list[int]:
        return [table_of(body.batch).num_rows for _, body in self.messages]


def write(data: Any, cells: Cells | None = None, **options: Any) -> Cells:
    """Rows of different keys."""
    cells = cells or Cells()
    assert written(data, cells, **options) == sum(cells.row_counts())
    return cells


def written(data: Any, cells: Cells, **options: Any) -> int:
    session = new_session(cells.clock, table(atomicity="none"))
    return play(cells.clock, session.write_arrow(PATH, data, **options), cells)


def of(**columns: Any) -> pyarrow.Table:
    return pyarrow.table(columns)


def test_rows_go_to_their_tablets_with_all_columns_in_the_tables_order() -> None:
    cells = write(of(note=["a", "b", "c"], id=[150, 1, 2]))
    assert cells.rows(0) == [
        {"id": 1, "value": None, "note": "b"},
        {"id": 2, "value": None, "note": "c"},
    ]
    assert cells.rows(1) == [{"id": 150, "value": None, "note": "a"}]
    names = {tuple(table_of(body.batch).schema.names) for _, body in cells.messages}
    assert names == {("id", "value", "note")}


@pytest.mark.parametrize(
    "data",
    [
        of(id=[1], value=[2]),
        of(id=[1], value=[2]).to_batches()[0],
        of(id=[1], value=[2]).to_batches(),
        iter([of(id=[1], value=[2])]),
        pyarrow.RecordBatchReader.from_batches(
            of(id=[1], value=[2]).schema, of(id=[1], value=[2]).to_batches()
        ),
    ],
)
def test_data_comes_in_many_shapes(data: Any) -> None:
    assert write(data).rows(0) == [{"id": 1, "value": 2, "note": None}]


def test_nothing_is_written_of_nothing() -> None:
    assert write(of(id=pyarrow.array([], pyarrow.int64()), value=[])).messages == []
    assert write([]).messages == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (of(value=[1]), "missing key column"),
        (of(id=[1]), "not a key"),
        (of(id=[1], value=[1], other=[1]), "no such column"),
        (of(id=["x"], value=[1]), "takes Arrow's int64, not string"),
        (of(id=[1], value=["1"]), "takes Arrow's int64, not string"),
        (of(id=[1], note=[b"x"]), "takes Arrow's string, not binary"),
        (of(id=[1], note=[5]), "takes Arrow's string, not int64"),
        (of(id=pyarrow.array([1 << 63], pyarrow.uint64()), value=[1]), "does not fit in int64"),
        (of(id=[1.5], value=[1]), "takes Arrow's int64, not double"),
        (
            pyarrow.Table.from_arrays([[1], [1], [1]], names=["id", "value", "value"]),
            "two columns have the same name",
        ),
    ],
)
def test_data_that_does_not_fit_is_refused(data: Any, said: str) -> None:
    cells = Cells()
    with pytest.raises(SchemaViolation, match=said) as caught:
        write(data, cells)
    assert cells.messages == []
    assert caught.value.attributes["table"] == PATH


@pytest.mark.parametrize("data", [5, "text", b"bytes", {1}, [5], None])
def test_a_bulk_write_refuses_data_that_is_not_arrow(data: Any) -> None:
    with pytest.raises(InvalidRequest, match="rows in bulk are"):
        write(data)


EVERY_TYPE = (
    Column("id", "int64", "ascending", required=True),
    Column("u", "uint64"),
    Column("d", "double"),
    Column("b", "boolean"),
    Column("s", "string"),
    Column("t", "utf8"),
    Column("a", "any"),
)


def every_type(data: Any, *, required: Column | None = None) -> list[dict[str, Any]]:
    columns = EVERY_TYPE if required is None else (*EVERY_TYPE, required)
    only = table((tablet(10, 0, None),), atomicity="none", columns=columns)
    clock, cells = Clock(), Cells(known=only)
    play(clock, new_session(clock, only).write_arrow(PATH, data), cells)
    return cells.rows(0)


@pytest.mark.parametrize(
    ("column", "array", "stored"),
    [
        ("u", pyarrow.array([7], pyarrow.int8()), 7),
        ("d", pyarrow.array([7], pyarrow.int32()), 7.0),
        ("d", pyarrow.array([0.5], pyarrow.float32()), 0.5),
        ("b", pyarrow.array([True]), True),
        ("s", pyarrow.array(["é"]), "é".encode()),
        ("s", pyarrow.array([b"x"], pyarrow.large_binary()), b"x"),
        ("s", pyarrow.array([b"xy"], pyarrow.binary(2)), b"xy"),
        ("t", pyarrow.array(["x"], pyarrow.large_string()), "x"),
        ("t", pyarrow.array(["x"]).dictionary_encode(), "x"),
        ("t", pyarrow.nulls(1), None),
        ("a", pyarrow.array([msgspec.msgpack.encode([1])]), msgspec.msgpack.encode([1])),
    ],
)
def test_a_column_is_cast_where_nothing_is_lost(column: str, array: Any, stored: Any) -> None:
    (row,) = every_type(pyarrow.table({"id": [1], column: array}))
    assert row[column] == stored


def test_required_columns_must_be_there_and_whole() -> None:
    must = Column("must", "int64", required=True)
    with pytest.raises(SchemaViolation, match="required column is missing"):
        every_type(of(id=[1], u=[1]), required=must)
    with pytest.raises(SchemaViolation, match="required column is null"):
        every_type(of(id=[1], must=[None]), required=must)
    with pytest.raises(SchemaViolation, match="required column is null"):
        every_type(of(id=pyarrow.array([1, None]), u=[1, 2]))


def test_a_bulk_write_refuses_a_value_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "VALUE_BYTES_MAX", 100)
    with pytest.raises(SchemaViolation, match="longer than 100 bytes"):
        every_type(of(id=[1], t=["x" * 101]))
    assert every_type(of(id=[1, 2], t=["x" * 100] * 2))


def test_a_bulk_write_reports_an_invalid_key_with_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PART_ROWS_MAX", 2)
    columns = (Column("id", "double", "ascending", required=True), Column("value", "int64"))
    clock, cells = Clock(), Cells()
    only = table((tablet(10, 0, None),), atomicity="none", columns=columns)
    for bad, said in ((float("nan"), "NaN is not allowed"), (None, "required column is null")):
        data = of(id=pyarrow.array([1.0, 2.0, 3.0, 4.0, 5.0, bad]), value=[0] * 6)
        with pytest.raises(SchemaViolation, match=said) as caught:
            play(clock, new_session(clock, only).write_arrow(PATH, data), cells)
        attributes = caught.value.attributes
        assert attributes == {"column": "id", "row_index": 5, "table": PATH, "row_count": 4}


def test_a_cell_checks_lengths_again(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = TableSchema.parse(
        [Column("id", "string", "ascending", required=True), Column("value", "string")]
    )
    fitting = arrow.arrow_schema(schema)

    def stream(key: bytes, value: bytes) -> bytes:
        return arrow.stream_of(pyarrow.record_batch([[key], [value]], schema=fitting))

    monkeypatch.setattr(arrow, "VALUE_BYTES_MAX", 100)
    monkeypatch.setattr(arrow_keys, "KEY_BYTES_MAX", 100)
    assert len(arrow.rows_from_arrow(schema, stream(bytes(10), bytes(100)))) == 1
    with pytest.raises(SchemaViolation, match="value is longer than 100 bytes"):
        arrow.rows_from_arrow(schema, stream(b"k", bytes(101)))
    with pytest.raises(SchemaViolation, match="key is longer than 100 bytes"):
        arrow.rows_from_arrow(schema, stream(b"k" * 98, b"v"))


def test_messages_are_bounded_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MESSAGE_ROWS_MAX", 10)
    cells = write(of(id=list(range(95)), value=list(range(95))))
    assert cells.row_counts() == [10] * 9 + [5]
    assert [row["id"] for row in cells.rows(0)] == list(range(95))


def test_a_message_holds_a_million_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PART_BYTES_FIRST", bulk.PART_BYTES_MAX)
    ids = pyarrow.array(range(-1_000_000, 0))
    assert write(of(id=ids, value=ids)).row_counts() == [1_000_000]


def test_messages_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MESSAGE_BYTES", 4_000)
    cells = write(of(id=list(range(50)), note=["n" * 1_000] * 50))
    assert len(cells.messages) == 13
    assert max(len(body.batch) for _, body in cells.messages) < 6_000
    assert [row["id"] for row in cells.rows(0)] == list(range(50))


def test_a_bulk_write_sends_a_row_that_exceeds_the_message_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "MESSAGE_BYTES", 4_000)
    notes = ["n", "n" * 10_000, *["n"] * 6]
    cells = write(of(id=list(range(8)), note=notes))
    assert [row["note"] for row in cells.rows(0)] == notes
    assert [it for it in cells.row_counts() if it > 1]


def test_bulk_messages_are_bounded_by_the_size_of_the_encoded_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "PART_BYTES_FIRST", 10_000)
    monkeypatch.setattr(bulk, "PART_BYTES_MAX", 10_000)
    monkeypatch.setattr(bulk, "SAMPLE_ROWS", 10)
    short, long = ["n"] * 100, ["n" * 1_000] * 50
    for note in (
        pyarrow.array([*short, *long]),  # only what comes later is long
        pyarrow.array([*short, *long]).dictionary_encode(),
    ):
        cells = write(of(id=list(range(-150, 0)), note=note))
        assert max(len(body.batch) for _, body in cells.messages) < 21_000
        assert len(cells.messages) >= 4
        assert [row["id"] for row in cells.rows(0)] == list(range(-150, 0))


def test_parts_grow_while_answers_are_quick_and_shrink_when_they_are_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row_bytes = 16 + 4 + 1 / 8  # of two numbers and no text
    monkeypatch.setattr(bulk, "PART_BYTES_FIRST", int(20 * row_bytes))
    monkeypatch.setattr(bulk, "PART_BYTES_MIN", int(10 * row_bytes))
    monkeypatch.setattr(bulk, "PART_BYTES_MAX", int(90 * row_bytes))
    ids = list(range(-400, 0))
    counts = write(of(id=ids, value=ids)).row_counts()
    assert [round(it, -1) for it in counts] == [20, 40, 80, 90, 90, 80]
    slow = Cells()
    slow.answer_ms = 3_000
    counts = write(of(id=ids[:45], value=ids[:45]), slow).row_counts()
    assert [round(it, -1) for it in counts] == [20, 10, 10, 10]
    steady = Cells()
    steady.answer_ms = 1_500
    counts = write(of(id=ids[:55], value=ids[:55]), steady).row_counts()
    assert [round(it, -1) for it in counts] == [20, 20, 20]


def test_parts_of_a_load_stay_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    row_bytes = 16 + 4 + 1 / 8
    monkeypatch.setattr(bulk, "PART_BYTES_FIRST", int(20 * row_bytes))
    monkeypatch.setattr(bulk, "LOAD_PART_BYTES_MAX", int(40 * row_bytes))
    ids = list(range(-160, 0))
    cells = Cells()
    session = new_session(cells.clock, table(atomicity="none"))
    stamp, load = Timestamp(99), LoadId(7)
    data = of(id=ids, value=ids)
    writing = bulk.write_arrow(session._context, PATH, data, "sync", stamp, load)
    assert play(cells.clock, writing, cells) == 160
    assert [round(it, -1) for it in cells.row_counts()] == [20, 40, 40, 40, 20]


def test_rows_are_sent_in_the_order_of_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MESSAGE_ROWS_MAX", 3)
    ids = [170, -5, 3, 120, 99, 0, 100, 7, None]
    cells = write(of(id=ids, value=list(range(9))))
    assert [(row["id"], row["value"]) for row in cells.rows(0)] == [
        *((None, 8), (-5, 1), (0, 5)),
        *((3, 2), (7, 7), (99, 4)),
    ]
    assert [row["id"] for row in cells.rows(1)] == [100, 120, 170]
    assert cells.row_counts() == [3, 3, 3]


@pytest.mark.parametrize("part_rows", [1, 2, 3, 100])
def test_of_rows_with_one_key_the_last_one_wins(
    part_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a message has to wait: whatever a cell gets last is the last of the caller's rows."""
    monkeypatch.setattr(bulk, "PART_ROWS_MAX", part_rows)
    monkeypatch.setattr(bulk, "MESSAGE_ROWS_MAX", 2)
    ids = [5, 3, 5, 150, 5, 3, 150, 4]
    cells = Cells(Failure("overloaded", "wait"))
    assert written(of(id=ids, value=list(range(8))), cells) == 8, "every row of the caller counts"
    stored = {row["id"]: row["value"] for cell in (0, 1) for row in cells.rows(cell)}
    assert stored == {5: 4, 3: 5, 150: 6, 4: 7}
    if part_rows == 100:
        assert sum(cells.row_counts()) == 4


def test_long_data_is_taken_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PART_ROWS_MAX", 20)
    cells = Cells()
    sent_when_taken: list[int] = []

    def batches() -> Iterator[Any]:
        for start in range(0, 100, 10):
            sent_when_taken.append(len(cells.messages))
            yield of(id=list(range(start, start + 10)), value=[0] * 10)

    write(batches(), cells)
    assert sent_when_taken == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [row["id"] for row in cells.rows(0)] == list(range(100))


def test_the_stamp_is_the_clock_or_the_callers() -> None:
    stamps = {body.stamp for _, body in write(of(id=[1], value=[1])).messages}
    assert stamps == {timestamp_from_unix_us(Clock().unix_us())}
    given = write(of(id=[1], value=[1]), stamp=Timestamp(99), durability="async")
    assert [(body.stamp, body.is_durable) for _, body in given.messages] == [(99, False)]


def test_a_message_to_a_tablet_that_moved_is_divided_and_sent_again() -> None:
    cells = write(of(id=[1, 150], value=[1, 2]), Cells(MOVED))
    assert [row["id"] for row in cells.rows(0)] == [1]
    assert [row["id"] for row in cells.rows(1)] == [150]


def test_a_full_store_is_waited_for() -> None:
    busy = Failure("overloaded", "wait")
    assert write(of(id=[1], value=[1]), Cells(busy, busy)).rows(0)


def test_a_cell_that_stays_full_is_waited_for_longer_than_one_that_is_not_there() -> None:
    waited_ms = {}
    for kind, attributes, expected in (
        ("overloaded", {}, Overloaded),
        ("unavailable", {"is_sent": False}, Unavailable),
    ):
        cells = Cells(*[Failure(kind, "wait", attributes)] * 100_000)
        with pytest.raises(expected):
            write(of(id=[1], value=[1]), cells)
        waited_ms[kind] = (cells.clock.now_us - Clock().now_us) // 1000
        attempts = 100_000 - len(cells.failures)
        assert attempts < 70, "all of a message is sent each time"
    assert waited_ms["overloaded"] == 45_000
    assert waited_ms["unavailable"] == 10_000


def test_a_lost_reply_ends_a_bulk_write_with_a_report_per_tablet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "PART_ROWS_MAX", 10)
    cells = Cells()

    def batches() -> Iterator[Any]:
        yield of(id=list(range(10)), value=[0] * 10)
        cells.failures.append(LOST)
        yield of(id=list(range(90, 110)), value=[0] * 20)

    with pytest.raises(Unavailable) as caught:
        write(batches(), cells)
    assert caught.value.attributes == {
        "table": PATH,
        "row_count": 10,
        "applied": [],
        "unknown": [10],
        "not_applied": [],
    }


def test_an_atomic_table_takes_no_bulk_writes() -> None:
    clock = Clock()
    session: Session = new_session(clock, table())
    with pytest.raises(InvalidRequest, match='"none" instead of "full"'):
        play(clock, session.write_arrow(PATH, of(id=[1], value=[1])), unchanged(table()))
    durability: Any = "maybe"
    with pytest.raises(InvalidRequest, match="Durability"):
        play(clock, session.write_arrow(PATH, of(id=[1]), durability), nobody)
