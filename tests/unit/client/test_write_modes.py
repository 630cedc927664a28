"""`write`: what its modes do, how rows are written, and writes in transactions."""

import asyncio
import builtins
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest

import dodona
import dodona.aio
from dodona._core.loads import one_call
from dodona._core.row_session import RowSession
from dodona.errors import (
    DodonaError,
    DuplicateKey,
    InvalidRequest,
    LimitExceeded,
    RowNotFound,
    SchemaViolation,
)

T = "//t/rows"
LOOSE = "//t/loose"
SCHEMA: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "u", "type": "uint64"},
    {"name": "d", "type": "double"},
    {"name": "t", "type": "utf8"},
]
Data = Callable[[], Any]


@pytest.fixture(scope="module")
def shared_db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as db:
        db.create_table(T, SCHEMA, mount=True)
        db.create_table(LOOSE, SCHEMA, atomicity="none", mount=True)
        yield db


@pytest.fixture
def db(shared_db: dodona.Client) -> dodona.Client:
    """With an empty table."""
    shared_db.write(T, [], "replace")
    return shared_db


def rows_of(db: dodona.Client, path: str = T) -> list[dict[str, Any]]:
    """All rows, without columns that are null."""
    return [
        {name: value for name, value in row.items() if value is not None} for row in db.select(path)
    ]


def named_index(*values: Any) -> Any:
    return pandas.Index(values, name="k")


# ---- modes


def test_modes_say_what_is_required_of_rows_that_are_there(db: dodona.Client) -> None:
    db.write(T, {"k": [1, 2], "t": ["a", "b"], "d": [1, 2]})
    db.write(T, {"k": [2], "t": ["c"]})
    assert rows_of(db) == [{"k": 1, "t": "a", "d": 1.0}, {"k": 2, "t": "c"}]
    db.write(T, {"k": [1], "t": ["e"]}, "update")
    db.write(T, {"k": [3], "t": ["f"]}, "insert")
    db.write(T, {"k": [2]}, "delete")
    assert rows_of(db) == [{"k": 1, "t": "e", "d": 1.0}, {"k": 3, "t": "f"}]
    with pytest.raises(DuplicateKey):
        db.write(T, {"k": [3, 4], "t": ["g", "h"]}, "insert")
    with pytest.raises(RowNotFound):
        db.write(T, {"k": [1, 4], "t": ["g", "h"]}, "update")
    assert rows_of(db) == [{"k": 1, "t": "e", "d": 1.0}, {"k": 3, "t": "f"}]
    published = db.write(T, {"k": [3, 4], "t": ["i", "j"]}, "replace")
    assert (published.row_count, published.deleted_count) == (2, 1)
    assert rows_of(db) == [{"k": 3, "t": "i"}, {"k": 4, "t": "j"}]
    with pytest.raises(InvalidRequest, match="mode is one of"):
        db.write(T, {"k": [3]}, "append")  # type: ignore[arg-type]


def test_a_table_without_atomicity_takes_two_modes(db: dodona.Client) -> None:
    db.write(LOOSE, {"k": [1, 2], "t": ["a", "b"]})
    db.write(LOOSE, {"k": [1]}, "delete")
    assert rows_of(db, LOOSE) == [{"k": 2, "t": "b"}]
    for mode in ("insert", "update", "replace"):
        with pytest.raises(InvalidRequest, match="without atomicity takes the modes"):
            db.write(LOOSE, {"k": [1], "t": ["a"]}, mode)


def test_few_rows_are_a_transaction_and_many_are_a_load(db: dodona.Client) -> None:
    def loads() -> int:
        return len(db.loads.list_loads())

    before = loads()
    limit = one_call.ROWS_MAX
    few = db.write(T, {"k": range(limit), "u": [1] * limit})
    assert loads() == before
    many = db.write(T, {"k": range(limit + 1), "u": [2] * (limit + 1)})
    assert loads() == before + 1
    (row,) = db.lookup_versions(T, [{"k": limit - 1}])
    assert row.write_timestamps == [many.timestamp, few.timestamp]
    db.write(T, {"k": [1, 2], "t": ["x" * (5 << 20)] * 2})
    assert loads() == before + 2


def test_few_rows_with_many_values_are_a_load(db: dodona.Client) -> None:
    wide = "//t/wide"
    names = [f"c{number}" for number in range(500)]
    db.create_table(
        wide, [SCHEMA[0], *({"name": it, "type": "boolean"} for it in names)], mount=True
    )
    data = pa.table({"k": range(9000), **dict.fromkeys(names, pa.array([True] * 9000))})
    before = len(db.loads.list_loads())
    assert db.write(wide, data).row_count == 9000
    assert len(db.loads.list_loads()) == before + 1
    assert db.lookup_rows(wide, [{"k": 8999}], ["c499"]) == [{"c499": True}]


def test_a_write_comes_after_changes_that_it_conflicts_with(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction in several cells can conflict: the load that follows overwrites."""

    def conflicting(*_: Any) -> Any:
        yield from ()
        raise dodona.TransactionConflict("a row was written by a concurrent transaction")

    monkeypatch.setattr(RowSession, "write_made", conflicting)
    before = len(db.loads.list_loads())
    db.write(T, {"k": [1], "t": ["a"]})
    assert rows_of(db) == [{"k": 1, "t": "a"}]
    assert len(db.loads.list_loads()) == before + 1


# ---- a stream


def test_a_stream_with_a_mistake_leaves_nothing(db: dodona.Client) -> None:
    def batches() -> Iterator[Any]:
        yield pa.table({"k": [1, 2], "u": [1, 2]})
        yield pa.table({"k": [3, 4], "u": [3, -4]})

    with pytest.raises(SchemaViolation, match="does not fit in uint64") as caught:
        db.write(T, batches())
    assert caught.value.attributes["row_index"] == 3
    assert rows_of(db) == []
    with pytest.raises(DuplicateKey):
        db.write(T, (pa.table({"k": [1], "u": [it]}) for it in (1, 2)))
    assert rows_of(db) == []


# ---- transactions


def test_a_transaction_buffers_data(db: dodona.Client) -> None:
    db.write(T, {"k": [1], "t": ["a"]})
    with db.begin(read_own_writes=True) as tx:
        tx.write(T, pandas.DataFrame({"t": ["b"]}, index=named_index(2)))
        tx.write(T, [{"k": 1}], "delete")
        assert [row["k"] for row in tx.select(T)] == [2]
        assert rows_of(db) == [{"k": 1, "t": "a"}]
    assert rows_of(db) == [{"k": 2, "t": "b"}]


@pytest.mark.parametrize(
    ("data", "mode", "error", "words"),
    [
        (lambda: {"k": [3, 3], "t": ["x", "y"]}, "upsert", DuplicateKey, "rows 0 and 1"),
        (lambda: {"k": ["x"], "t": ["x"]}, "upsert", SchemaViolation, "takes an int"),
        (lambda: {"k": [3], "t": ["x"]}, "replace", InvalidRequest, "In a transaction, mode is"),
        (lambda: {"k": range(100_001), "u": [1] * 100_001}, "upsert", LimitExceeded, "at most"),
        (lambda: pa.table({"k": [3], "u": [1]}).to_reader(), "upsert", InvalidRequest, "no stream"),
    ],
)
def test_a_transaction_goes_on_after_data_that_is_refused(
    db: dodona.Client, data: Data, mode: Any, error: type[DodonaError], words: str
) -> None:
    with db.begin() as tx:
        tx.write(T, {"k": [1], "t": ["a"]})
        with pytest.raises(error, match=words):
            tx.write(T, data(), mode)
    assert rows_of(db) == [{"k": 1, "t": "a"}]
    with pytest.raises(dodona.TransactionClosed):
        tx.write(T, {"k": [2], "t": ["b"]})


def test_master_transactions_say_where_rows_are_written(db: dodona.Client) -> None:
    with db.begin_master() as tx, pytest.raises(InvalidRequest, match="the tree only"):
        tx.write(T, [])


# ---- other clients


def test_the_asyncio_client_writes_data(tmp_path: Path) -> None:
    async def main() -> None:
        async with await dodona.aio.open(tmp_path) as db:
            await db.create_table(T, SCHEMA, mount=True)
            published = await db.write(T, {"k": range(20_000), "u": [1] * 20_000})
            assert published.row_count == 20_000
            with pytest.raises(DuplicateKey):
                await db.write(T, {"k": [1, 1], "u": [1, 1]})
            async with db.begin() as tx:
                _ = tx.write(T, [{"k": 0}], "delete")  # not awaited: the commit includes it
            assert len(await db.select(T, columns=["k"])) == 19_999

    asyncio.run(main())


def test_a_time_limit_holds_for_the_whole_call(db: dodona.Client) -> None:
    with pytest.raises(InvalidRequest, match="timeout_ms"):
        db.write(T, {"k": [1], "t": ["a"]}, timeout_ms=0)
    db.write(T, {"k": [1], "t": ["a"]}, "replace", timeout_ms=60_000)
    assert rows_of(db) == [{"k": 1, "t": "a"}]


def test_without_pyarrow_the_error_names_the_extra(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **others: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **others)

    frame = pandas.DataFrame({"k": [1], "t": ["a"]})
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidRequest, match="pip install 'dodona"):
        db.write(T, frame)
