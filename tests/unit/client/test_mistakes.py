"""What newcomers do wrong: each mistake is refused in words, by a typed error, and changes nothing.

Python's own errors are for what Python itself sees: an unknown keyword, an unknown method.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona.errors import InvalidRequest, SchemaViolation, TransactionClosed

T = "//t/rows"
LOOSE = "//t/loose"
IDLE = "//t/idle"
KEYS = [{"id": 1}]
ROWS = [{"id": 1, "n": 1}]
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "n", "type": "int64", "lock": "ns", "aggregate": "sum"},
]
MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
Mistake = Callable[[Any], Any]


@pytest.fixture(scope="module")
def shared_db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("mistakes")) as client:
        client.create_table(T, SCHEMA, mount=True)
        client.create_table(LOOSE, SCHEMA, atomicity="none", mount=True)
        client.create_table(IDLE, SCHEMA)
        client.insert_rows(T, ROWS)
        yield client


@pytest.fixture
def db(shared_db: dodona.Client) -> Iterator[dodona.Client]:
    """Shared: what is refused leaves no trace, which is checked."""
    names, idle = shared_db.get("/"), shared_db.get_table(IDLE)
    yield shared_db
    assert shared_db.select(T) == ROWS
    assert not shared_db.select(LOOSE)
    assert shared_db.get("/") == names
    assert shared_db.get_table(IDLE) == idle


READS: list[tuple[Mistake, str]] = [
    (lambda db: db.lookup_rows(T, None), "keys .* list of dicts, not as one NoneType"),
    (lambda db: db.lookup_rows(T, {"id": 1}), "keys .* list of dicts, not as one dict"),
    (lambda db: db.lookup_rows(KEYS, T), "path is a str, not list"),
    (lambda db: db.lookup_rows("//t/\ud800", KEYS), "not Unicode"),
    (lambda db: db.lookup_rows(T, [(1,)]), "a key is a dict, not tuple"),
    (lambda db: db.lookup_rows(T, [{"ID": 1}]), "only key columns"),
    (lambda db: db.lookup_rows(T, KEYS, "n"), "columns .* list of names, not as one str"),
    (lambda db: db.lookup_rows(T, KEYS, 1), "columns .* list of names, not as one int"),
    (lambda db: db.lookup_rows(T, KEYS, {"n": 1}), "columns .* list of names, not as one dict"),
    (lambda db: db.lookup_rows(T, KEYS, ["N"]), "no such column: 'N'"),
    (lambda db: db.lookup_rows(T, KEYS, None, dodona.MIN_TIMESTAMP), "keep_missing is a bool"),
    (lambda db: db.lookup_versions(T, KEYS, keep_missing="yes"), "keep_missing is a bool"),
    (lambda db: db.lookup_rows(T, KEYS, timestamp=MOMENT), "timestamp_from_datetime"),
    (lambda db: db.lookup_rows(T, KEYS, timestamp=None), "Invalid read timestamp None"),
    (lambda db: db.select(T, retention_timestamp=MOMENT), "timestamp_from_datetime"),
    (lambda db: db.select(T, 1), "lower is a list of leading key column values, not int"),
    (lambda db: db.select(T, None, "1"), "upper is a list of leading key column values, not str"),
    (lambda db: db.read_arrow(T, columns=3), "columns .* list of names, not as one int"),
    (lambda db: db.query("select '\ud800'"), "not Unicode"),
    (lambda db: db.query('select * from "//t/rows"'), r"named as \[//path\]"),
    (lambda db: db.query("select * from //t/rows"), r"named as \[//path\]"),
]

WRITES: list[tuple[Mistake, str]] = [
    (lambda it: it.insert_rows(ROWS, T), "path is a str, not list"),
    (lambda it: it.insert_rows(T, ROWS[0]), "rows .* list of dicts, not as one dict"),
    (lambda it: it.insert_rows(T, None), "rows .* list of dicts, not as one NoneType"),
    (lambda it: it.insert_rows(T, [{"id": 1, "N": 1}]), "no such column"),
    (lambda it: it.insert_rows(T, ROWS, "update"), "update is a bool, not str"),
    (lambda it: it.insert_rows(T, ROWS, aggregate="sum"), "aggregate is a bool, not str"),
    (lambda it: it.delete_rows(T, {"id": 1}), "list of dicts, not as one dict"),
    (lambda it: it.delete_rows([T], KEYS), "path is a str, not list"),
]

LOCKS: list[tuple[Mistake, str]] = [
    (lambda tx: tx.lock_rows(T, KEYS, "ns"), "locks .* list of names, not as one str"),
    (lambda tx: tx.lock_rows(T, KEYS, 1), "locks .* list of names, not as one int"),
    (lambda tx: tx.lock_rows(T, KEYS, {"ns": 1}), "locks .* list of names, not as one dict"),
    (lambda tx: tx.lock_rows(T, KEYS, ["n"]), 'Lock group "n" not found'),
    (lambda tx: tx.lock_rows(T, KEYS, lock_type="strong"), 'lock type "strong"'),
]


def arrow_row() -> Any:
    import pyarrow

    return pyarrow.table({"id": [1], "n": [1]})


TABLES: list[tuple[Mistake, str]] = [
    (lambda db: db.create_table("//x", None), "a schema is a list of columns, not one NoneType"),
    (lambda db: db.create_table("//x", SCHEMA[0]), "a schema is a list of columns, not one dict"),
    (lambda db: db.create_table("//x", ["id"]), "a dict or a Column, not str"),
    (lambda db: db.create_table("//x", dodona.TableSchema([])), "sort_order"),  # type: ignore[arg-type]
    (lambda db: db.create_table("//x", SCHEMA, pivot_keys=4), "pivot_keys are a list"),
    (lambda db: db.create_table("//x", SCHEMA, pivot_keys=[1, 2]), "a pivot key is a list"),
    (
        lambda db: db.create_table("//x", SCHEMA, pivot_keys=[[], {"id": 1}]),
        "a pivot key is a list",
    ),
    (lambda db: db.create_table("//x", SCHEMA, tablet_count="2"), "1 to 10000 tablets, not '2'"),
    (lambda db: db.reshard_table(IDLE, 3), "pivot_keys are a list"),
    (lambda db: db.reshard_table(IDLE, [[], 5]), "a pivot key is a list"),
    (lambda db: db.reshard_table(IDLE, tablet_count=2.0), "1 to 10000 tablets, not 2.0"),
    (lambda db: db.alter_table(IDLE, None), "a schema is a list of columns"),
    (lambda db: db.mount_table(IDLE, 0), "freeze is a bool, not int"),
    (lambda db: db.mount_table(IDLE, False, "0"), "first_tablet_index is a number from 0"),
    (lambda db: db.write_arrow(LOOSE, arrow_row(), stamp=MOMENT), "stamp is a number from 1"),
    (lambda db: db.write_arrow(LOOSE, [5]), "are a data frame .*, not int"),
    (lambda db: db.write_arrow(T, arrow_row()), "Invalid atomicity mode"),
    (lambda db: db.begin(read_own_writes=None), "read_own_writes is a bool"),
    (lambda db: db.outcome("x"), "transaction is a number"),
    (lambda db: db.outcome([], 0), "transaction is a number"),
    (lambda db: db.outcome(1 << 70, 0), "transaction is a number up to"),
    (lambda db: db.outcome(5, "0"), "coordinator is a number from 0"),
    (lambda db: db.outcome(5, 1 << 70), "coordinator is a number up to"),
    (lambda db: db.run_in_transaction(None), "`function` must be callable, not"),
    (lambda db: db.run_in_transaction(len, "3"), "attempts_max is a number from 1, not '3'"),
    (lambda db: db.run_in_transaction(len, 3, None), "deadline_ms is a number from 1"),
]


@pytest.mark.parametrize(("mistake", "words"), [*READS, *WRITES, *TABLES])
def test_a_client_refuses_each_mistake_with_a_clear_error(
    db: dodona.Client, mistake: Mistake, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        mistake(db)
    assert not caught.value.is_retryable


@pytest.mark.parametrize(("mistake", "words"), [*WRITES, *LOCKS])
def test_a_transaction_refuses_each_mistake_and_buffers_nothing(
    db: dodona.Client, mistake: Mistake, words: str
) -> None:
    with db.begin() as tx, pytest.raises(InvalidRequest, match=words):
        mistake(tx)
    assert tx.commit_timestamp is None, "nothing was buffered"


def test_the_asyncio_client_refuses_the_same(db: dodona.Client, tmp_path: Path) -> None:
    async def main() -> None:
        async with await dodona.aio.open(tmp_path / "data") as twin:
            for path, atomicity in ((T, "full"), (LOOSE, "none"), (IDLE, "full")):
                await twin.create_table(path, SCHEMA, atomicity, mount=path != IDLE)  # type: ignore[arg-type]
            for mistake, words in [*READS, *WRITES, *TABLES]:
                with pytest.raises(InvalidRequest, match=words):
                    await mistake(twin)

    asyncio.run(main())


def test_an_async_function_is_not_taken_for_one_that_ran(db: dodona.Client) -> None:
    async def function(tx: dodona.Transaction) -> None:
        tx.delete_rows(T, KEYS)

    mistake: Mistake = db.run_in_transaction
    with pytest.raises(InvalidRequest, match=r"dodona\.aio"):
        mistake(function)


def test_a_plain_function_is_not_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        async with await dodona.aio.open(tmp_path / "data") as twin:
            with pytest.raises(InvalidRequest, match="must be async"):
                await twin.run_in_transaction(lambda tx: 7)  # type: ignore[arg-type,return-value]

    asyncio.run(main())


def test_a_transaction_that_was_not_awaited_raises_an_error_about_await(tmp_path: Path) -> None:
    async def main() -> None:
        async with await dodona.aio.open(tmp_path / "data") as twin:
            for beginning in (twin.begin(), twin.begin_master()):
                with pytest.raises(InvalidRequest, match="await"):
                    beginning.commit()
                assert not hasattr(beginning, "__enter__")

    asyncio.run(main())


@pytest.mark.parametrize(
    "call", ["select", "read_arrow", "lookup_versions", "query", "write_arrow"]
)
def test_row_calls_of_a_master_transaction_name_begin_in_the_error(
    db: dodona.Client, call: str
) -> None:
    with db.begin_master() as tree, pytest.raises(InvalidRequest, match="begin"):
        getattr(tree, call)(T)


def test_the_end_of_a_master_transaction_aborts_its_nested_transaction(db: dodona.Client) -> None:
    outer = db.begin_master()
    inner = outer.begin()
    assert inner.state.value == "active"
    outer.commit()
    assert inner.state.value == "aborted"
    assert "aborted" in repr(inner)
    with pytest.raises(TransactionClosed):
        inner.commit()


@pytest.mark.parametrize(
    ("path", "words"),
    [(None, "not NoneType"), (5, "not int"), (b"x", "not bytes"), ("", "empty"), ("a\0b", "NUL")],
)
def test_a_folder_has_a_path(path: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        dodona.open(path)


def test_a_url_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match="`connect`"):
        dodona.open("http://ada:secret@127.0.0.1:8500")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("url", [None, 5, b"http://127.0.0.1:8500"])
def test_a_url_is_text(url: Any) -> None:
    with pytest.raises(InvalidRequest, match="URL is a str"):
        dodona.connect(url)


@pytest.mark.parametrize("wrong", ["5", None, 5.0])
def test_a_timestamp_is_an_int(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="Invalid timestamp"):
        dodona.datetime_from_timestamp(wrong)


@pytest.mark.parametrize("wrong", ["2026", None, 1.0, date(2026, 1, 2)])
def test_timestamp_from_datetime_refuses_other_types(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="`moment` must be a datetime"):
        dodona.timestamp_from_datetime(wrong)


def test_columns_may_be_any_iterable(db: dodona.Client) -> None:
    assert db.lookup_rows(T, KEYS, (it for it in ("id", "n"))) == ROWS  # type: ignore[arg-type]


def test_an_error_of_a_column_names_the_column() -> None:
    with pytest.raises(SchemaViolation) as caught:
        dodona.TableSchema.parse([SCHEMA[0], {"name": "n", "type": "int31"}])
    assert caught.value.attributes == {"column": "n", "column_index": 1}


def test_reprs_are_short_where_nothing_is_special(db: dodona.Client) -> None:
    assert repr(dodona.Column("n", "int64")) == "Column(name='n', type='int64')"
    (row,) = db.lookup_versions(T, KEYS)
    assert "aggregate" not in repr(row)
    assert repr(db.get_table(T)) == (
        f"<TableInfo {T}: id:int64:key, n:int64:sum:lock=ns, atomicity full, tablets: 1 mounted>"
    )
