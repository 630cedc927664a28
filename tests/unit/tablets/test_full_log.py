"""A log without room: what is new is refused, what is under way and what only reads goes on."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import ValidationError

import dodona
from dodona._core.protocol.retry import Patience
from dodona.errors import Overloaded
from dodona.types import CellId, Timestamp
from dodona_local import embedded_cores
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.messages.base import Failure
from dodona_wire.messages.codec import FRAME_BYTES_MAX
from dodona_wire.messages.data import (
    Committed,
    Lookup,
    LookupReply,
    Prepared,
    WriteArrow,
    WriteNonAtomic,
    Written,
)
from dodona_wire.rows.arrow import arrow_schema, stream_of
from unit.tablets.cells import NON_ATOMIC, REVISION, SCHEMA, Bench, put

FULL = CellLimits().log_fill_ratio_max + 0.01


def fill(bench: Bench, ratio: float = FULL, cell: int = 0) -> None:
    bench.nodes[CellId(cell)].note_log(0, ratio, bench.now)


def commit_one(bench: Bench) -> object:
    return bench.commit_one(bench.begin(), put(1, 1))


def commit_blind(bench: Bench) -> object:
    return bench.commit_blind(bench.begin(), put(2, 1))


def prepare(bench: Bench) -> object:
    return bench.prepare(bench.begin(), put(3, 1), cell=0)


def write_rows(bench: Bench) -> object:
    at = Timestamp(bench.oracle)
    return bench.ask(WriteNonAtomic(NON_ATOMIC, REVISION, at, True, (put(4, 1),)))


def write_arrow(bench: Bench) -> object:
    batch = stream_of(pa.RecordBatch.from_pylist([{"id": 5}], schema=arrow_schema(SCHEMA)))
    return bench.ask(WriteArrow(NON_ATOMIC, REVISION, Timestamp(bench.oracle), True, batch))


@pytest.mark.parametrize("write", [commit_one, commit_blind, prepare, write_rows, write_arrow])
def test_every_kind_of_write_is_refused_until_there_is_room(
    write: Callable[[Bench], object],
) -> None:
    bench = Bench(2)
    logged = list(bench.logs[CellId(0)])
    fill(bench)
    reply = bench.answer(write(bench))
    assert isinstance(reply, Failure)
    assert (reply.kind, reply.attributes) == ("overloaded", {"cell": 0, "log_fill_percent": 76})
    assert "The log is full" in reply.message
    assert bench.logs[CellId(0)] == logged
    fill(bench, CellLimits().log_fill_ratio_max)
    route = write(bench)
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed | Prepared | Written)


def test_reads_go_on() -> None:
    bench = Bench()
    bench.commit(put(1, 10, "x"))
    fill(bench)
    assert bench.read(1) == (10, "x")
    route = bench.ask(Lookup(NON_ATOMIC, REVISION, Timestamp(bench.oracle), (), 1))
    assert isinstance(bench.answer(route), LookupReply)


def test_a_full_log_does_not_stop_a_transaction_that_has_its_locks() -> None:
    bench = Bench()
    route = commit_one(bench)
    fill(bench)
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)


def test_a_full_log_does_not_stop_a_transaction_that_waits_for_another() -> None:
    bench = Bench(2)
    first = bench.begin()
    bench.prepare(first, put(1, 1), cell=0)
    bench.prepare(first, put(1, 1), cell=1)
    bench.answer_oracle()
    waiting = bench.commit_blind(bench.begin(), put(1, 2))
    fill(bench)
    bench.decide(first, None)
    bench.settle()
    assert isinstance(bench.answer(waiting), Committed)


def test_a_full_log_does_not_stop_the_commit_of_a_prepared_transaction() -> None:
    bench = Bench(2)
    start = bench.begin()
    routes = [bench.prepare(start, put(1, 1), cell=cell) for cell in (0, 1)]
    bench.answer_oracle()
    stamps = [bench.answer(route).timestamp for route in routes]  # type: ignore[union-attr]
    for cell in (0, 1):
        fill(bench, cell=cell)
    bench.decide(start, max(stamps))
    bench.settle()
    assert [bench.read(1, cell=cell) for cell in (0, 1)] == [(1, None)] * 2
    assert not any(node.cell.transactions for node in bench.nodes.values())


def test_a_prepared_transaction_that_another_full_cell_refused_is_aborted() -> None:
    bench = Bench(2)
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=1)
    bench.answer_oracle()
    for cell in (0, 1):
        fill(bench, cell=cell)
    refused = bench.prepare(start, put(1, 1), cell=0)
    assert isinstance(bench.answer(refused), Failure)
    bench.decide(start, None)
    bench.settle()
    assert [bench.read(1, cell=cell) for cell in (0, 1)] == [None] * 2
    assert not any(node.cell.transactions for node in bench.nodes.values())


def test_a_coordinator_that_restarts_with_a_full_log_recovers_transactions_in_doubt() -> None:
    bench = Bench(2)
    start = bench.begin()
    for cell in (0, 1):
        bench.prepare(start, put(1, 1), cell=cell)
    bench.answer_oracle()
    for cell in (0, 1):
        bench.start(CellId(cell))
        fill(bench, cell=cell)
    for _ in range(40):
        bench.pass_time(0.2)
        bench.settle()
    assert not any(node.cell.transactions for node in bench.nodes.values())
    assert [bench.read(1, cell=cell) for cell in (0, 1)] == [(1, None)] * 2


# The shell


def settings(**options: int) -> NodeSettings:
    return NodeSettings(cell=0, data_dir=Path("data"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("mib", [512, 1024, 65_536])
def test_waiting_transactions_fit_into_the_space_that_a_full_log_has_left(mib: int) -> None:
    chosen = settings(map_mib_max=mib)
    left_bytes = (1 - CellLimits().log_fill_ratio_max) * chosen.log_bytes_max
    waiting_bytes = chosen.runtime_limits().waiting_bytes_max
    assert waiting_bytes == min(256 << 20, chosen.log_bytes_max // 8)
    assert waiting_bytes + FRAME_BYTES_MAX <= left_bytes


def test_a_log_that_is_too_small_for_waiting_transactions_is_not_allowed() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 512"):
        settings(map_mib_max=511)


TABLE = "//bank/accounts"
COLUMNS = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "name", "type": "string"},
]


def row(number: int) -> dict[str, object]:
    return {"id": number, "name": b"x" * 20_000}


def insert_until_it_is_full(db: dodona.Client, count: int = 0) -> int:
    """→ how many rows there are."""
    for number in range(count, 1000):
        try:
            db.insert_rows(TABLE, [row(number)])
        except Overloaded as error:
            if "The log is full" not in error.message:
                raise
            return number
    raise AssertionError("it is never full")


def test_a_database_with_a_full_log_is_read_and_takes_writes_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restart, and never does an append fail."""
    monkeypatch.setattr(embedded_cores, "LOG_BYTES_MAX", 1 << 20)
    with dodona.open(tmp_path / "data") as db:
        db.create_table(TABLE, COLUMNS, mount=True)
        monkeypatch.setattr(Patience, "next_pause", lambda _: None)
        count = insert_until_it_is_full(db)
        assert count > 20
        assert len(db.select(TABLE)) == count
    with dodona.open(tmp_path / "data") as db:
        assert len(db.select(TABLE)) == count
        assert insert_until_it_is_full(db, count) == count
    monkeypatch.setattr(embedded_cores, "LOG_BYTES_MAX", 4 << 20)
    with dodona.open(tmp_path / "data") as db:
        db.insert_rows(TABLE, [row(count)])
        assert len(db.select(TABLE)) == count + 1
