"""Tables with logical types in an embedded database: every way in and every way out."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import dodona
import dodona.aio
from dodona.errors import SchemaViolation
from dodona.schema import Column
from dodona_wire.rows.logical_arrow import arrow_type_of
from dodona_wire.rows.logical_types import logical_type
from suite.column_values import LOGICAL, an_example

T = "//t"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("logical") / "data") as opened:
        yield opened


def columns_of(name: str) -> list[Column]:
    return [Column("k", name, "ascending"), Column("v", name), Column("n", name)]


def made(db: dodona.Client, path: str, name: str, **how: Any) -> None:
    db.create_table(path, columns_of(name), **how)
    db.mount_table(path)


@pytest.mark.parametrize("name", LOGICAL)
def test_every_read_returns_what_was_written(db: dodona.Client, name: str) -> None:
    path, value = f"//reads_{LOGICAL.index(name)}", an_example(name)
    made(db, path, name, pivot_keys=[[], [value]])
    row = {"k": value, "v": value, "n": None}
    db.insert_rows(path, [row])
    assert db.get_table(path).tablets[1].pivot_key == (value,)
    assert db.lookup_rows(path, [{"k": value}]) == [row]
    assert db.lookup_rows(path, [{"k": value}], ["v"]) == [{"v": value}]
    assert db.select(path) == db.select(path, lower=[value]) == [row]
    assert db.select(path, upper=[value]) == []
    with db.begin(read_own_writes=True) as transaction:
        transaction.insert_rows(path, [{"k": value, "n": value}], update=True)
        assert transaction.lookup_rows(path, [{"k": value}]) == [{**row, "n": value}]
    (found,) = db.lookup_versions(path, [{"k": value}])
    assert found is not None
    assert found.key == {"k": value}
    assert [it.value for it in found.values["n"]] == [value, None]
    with db.begin() as transaction:
        transaction.delete_rows(path, [{"k": value}])
    assert db.select(path) == []


@pytest.mark.parametrize("name", LOGICAL)
def test_arrow_has_the_type_and_comes_back_as_it_was(db: dodona.Client, name: str) -> None:
    path, value = f"//arrow_{LOGICAL.index(name)}", an_example(name)
    made(db, path, name, atomicity="none")
    db.insert_rows(path, [{"k": value, "v": value, "n": None}])
    table = db.read_arrow(path)
    assert table.schema.types == [arrow_type_of(logical_type(name))] * 3
    assert table == db.select(path).to_arrow()
    for names in (["v"], ["k"], ["n", "k"]):
        read = db.read_arrow(path, columns=names)
        assert read == table.select([it for it in ("k", "v", "n") if it in names])
    made(db, path + "_copy", name, atomicity="none")
    db.write_arrow(path + "_copy", pyarrow.concat_tables([table, table]))
    assert db.read_arrow(path + "_copy") == table
    assert db.select(path + "_copy") == db.select(path)
    pages = list(db.read_changes(path, since=1, timestamp=db.generate_timestamp()))
    (change,) = [it for it in pages if it.num_rows]
    assert change.select(["k", "v", "n"]).to_pylist() == table.to_pylist()


@pytest.mark.parametrize("name", LOGICAL)
def test_a_frame_has_the_dtype_of_the_type(db: dodona.Client, name: str) -> None:
    path, value = f"//frames_{LOGICAL.index(name)}", an_example(name)
    made(db, path, name)
    db.insert_rows(path, [{"k": value, "v": value, "n": None}])
    frame = db.select(path).to_pandas()
    assert [str(it) for it in frame.dtypes] == [logical_type(name).pandas] * 3
    assert frame["v"][0] == value


def test_an_asyncio_client_has_the_same_values(tmp_path: Path) -> None:
    async def run() -> None:
        async with await dodona.aio.open(tmp_path / "data") as db:
            await db.create_table(T, columns_of("date"))
            await db.mount_table(T)
            day = date(2024, 2, 29)
            await db.insert_rows(T, [{"k": day, "v": day, "n": None}])
            assert await db.select(T, lower=[day]) == [{"k": day, "v": day, "n": None}]

    asyncio.run(run())


def test_a_refused_row_names_itself_and_nothing_is_written(db: dodona.Client) -> None:
    made(db, "//refused", "decimal(5,2)")
    good, bad = Decimal("1.5"), Decimal("1.555")
    rows = [{"k": good, "v": good}, {"k": Decimal(2), "v": bad}]
    with pytest.raises(SchemaViolation) as caught:
        db.insert_rows("//refused", rows)
    assert caught.value.attributes["column"] == "v"
    assert caught.value.attributes["row_index"] == 1
    assert caught.value.attributes["value"] == "1.555"
    assert db.select("//refused") == []


def column(kind: Any, *values: Any) -> pyarrow.Array:
    return pyarrow.array(values, kind)


NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "given", "stored"),
    [
        ("int8", column(pyarrow.int64(), 5), 5),
        ("float", column(pyarrow.float64(), 0.1), 0.10000000149011612),
        ("float", column(pyarrow.int64(), 3), 3.0),
        ("date", column(pyarrow.date64(), NOON.date()), NOON.date()),
        ("datetime", column(pyarrow.timestamp("ns", "Europe/Berlin"), NOON), NOON),
        ("timestamp", column(pyarrow.timestamp("ms", "UTC"), NOON), NOON),
        ("decimal(5,2)", column(pyarrow.decimal128(20, 4), Decimal("1.5")), Decimal("1.50")),
        ("decimal(39,1)", column(pyarrow.decimal128(20, 1), Decimal("1.5")), Decimal("1.5")),
        ("decimal(5,2)", column(pyarrow.int16(), -7), Decimal(-7)),
        ("uuid", column(pyarrow.string(), str(an_example("uuid"))), an_example("uuid")),
        ("uuid", column(pyarrow.binary(), bytes(range(16))), an_example("uuid")),
        ("uuid", column(pyarrow.uuid(), bytes(range(16))), an_example("uuid")),
        ("json", column(pyarrow.string(), "[1]"), "[1]"),
        ("date", column(pyarrow.date32(), NOON.date()).dictionary_encode(), NOON.date()),
    ],
)
def test_arrow_of_another_type_is_cast_without_loss(
    db: dodona.Client, name: str, given: Any, stored: Any
) -> None:
    db.create_table(
        "//cast", [Column("k", "int64", "ascending"), Column("v", name)], atomicity="none"
    )
    db.mount_table("//cast")
    try:
        db.write_arrow("//cast", pyarrow.table({"k": [1], "v": given}))
        assert db.select("//cast") == [{"k": 1, "v": stored}]
    finally:
        db.remove_table("//cast")


@pytest.mark.parametrize(
    ("name", "given", "text", "row"),
    [
        ("int8", column(pyarrow.int64(), 5, 300), "does not fit in int8", 1),
        ("float", column(pyarrow.float64(), 1.0, 1e39), "does not fit in float", 1),
        ("float", column(pyarrow.int64(), 1, (1 << 24) + 1), "no float equals", 1),
        ("date", column(pyarrow.date32(), NOON.date(), date(1969, 1, 1)), "fit in date", 1),
        ("date", column(pyarrow.timestamp("s", "UTC"), NOON), "takes Arrow's date32", None),
        ("datetime", column(pyarrow.timestamp("ms", "UTC"), NOON, NOON.replace(microsecond=1000)),
         "does not fit in datetime", 1),
        ("datetime", column(pyarrow.timestamp("s"), NOON.replace(tzinfo=None)), "no time zone",
         None),
        ("timestamp64", column(pyarrow.timestamp("s", "UTC"), 1 << 60), "does not fit", 0),
        ("timestamp", column(pyarrow.int64(), 5), "takes Arrow's timestamp", None),
        ("interval", column(pyarrow.duration("us"), 1, 1 << 62), "does not fit in interval", 1),
        ("decimal(5,2)", column(pyarrow.decimal128(9, 3), Decimal("1.5"), Decimal("1.555")),
         "does not fit in decimal(5,2)", 1),
        ("decimal(5,2)", column(pyarrow.decimal128(9, 2), Decimal(1), Decimal(1000)),
         "does not fit in decimal(5,2)", 1),
        ("decimal(5,2)", column(pyarrow.float64(), 1.5), "takes Arrow's decimal128", None),
        ("uuid", column(pyarrow.string(), str(an_example("uuid")), "x"), "does not fit in uuid", 1),
        ("uuid", column(pyarrow.binary(), b"1" * 16, b"1"), "does not fit in uuid", 1),
        ("json", column(pyarrow.string(), "[1]", "["), "JSON", 1),
    ],
)  # fmt: skip
def test_arrow_that_does_not_fit_is_refused_with_its_row(
    db: dodona.Client, name: str, given: Any, text: str, row: int | None
) -> None:
    db.create_table(
        "//unfit", [Column("k", "int64", "ascending"), Column("v", name)], atomicity="none"
    )
    db.mount_table("//unfit")
    try:
        table = pyarrow.table({"k": range(len(given)), "v": given})
        with pytest.raises(SchemaViolation) as caught:
            db.write_arrow("//unfit", table)
        assert text in str(caught.value)
        assert caught.value.attributes["column"] == "v"
        assert caught.value.attributes.get("row_index") == row
        assert db.select("//unfit") == []
    finally:
        db.remove_table("//unfit")


def test_a_row_of_a_later_batch_has_its_place_in_the_whole_data(db: dodona.Client) -> None:
    made(db, "//later", "date", atomicity="none")
    good, bad = NOON.date(), date(1900, 1, 1)
    batches = [
        pyarrow.record_batch({"k": [date(2000, 1, 1), good], "v": [good, good], "n": [good, good]}),
        pyarrow.record_batch({"k": [good, date(2001, 1, 1)], "v": [good, bad], "n": [good, good]}),
    ]
    with pytest.raises(SchemaViolation) as caught:
        db.write_arrow("//later", batches)
    assert caught.value.attributes["row_index"] == 3


def test_even_pivots_lie_in_the_range_of_the_type(db: dodona.Client) -> None:
    made(db, "//even", "int8", tablet_count=4)
    assert [it.pivot_key for it in db.get_table("//even").tablets] == [(), (-64,), (0,), (64,)]
    made(db, "//even_uuid", "uuid", tablet_count=2)
    (half,) = db.get_table("//even_uuid").tablets[1].pivot_key
    assert half.hex == "8000" + "0" * 28


def test_a_wider_type_keeps_the_rows(db: dodona.Client) -> None:
    made(db, "//wider", "int8")
    db.insert_rows("//wider", [{"k": -1, "v": 127, "n": None}])
    db.unmount_table("//wider")
    for narrow in ("int16", "uint8", "date"):
        columns = [*columns_of("int8")[:2], Column("n", narrow)]
        if narrow == "int16":
            db.alter_table("//wider", columns)
        else:
            with pytest.raises(SchemaViolation, match="can't change"):
                db.alter_table("//wider", columns)
    db.alter_table("//wider", columns_of("int64"))
    db.mount_table("//wider")
    db.insert_rows("//wider", [{"k": 1 << 40, "v": 1, "n": 2}])
    assert [it["v"] for it in db.select("//wider")] == [127, 1]


def test_rows_survive_a_flush_and_a_restart(tmp_path: Path) -> None:
    row = {"k": NOON, "v": NOON, "n": None}
    with dodona.open(tmp_path / "data") as db:
        made(db, T, "timestamp")
        db.insert_rows(T, [row])
        db.unmount_table(T)
    with dodona.open(tmp_path / "data") as db:
        db.mount_table(T)
        assert db.select(T) == [row]
        assert db.read_arrow(T).to_pylist() == [row]
