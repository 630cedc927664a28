"""A whole number in a column of doubles, by every way in: one that no double holds is refused with
its column and value, never rounded; a float is what it is."""

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest

import dodona
import dodona.aio
from dodona._core.writing.arrow_casting import cast_column
from dodona._core.writing.row_tables import table_of_rows
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column, TableSchema
from dodona_local.files.csv_reading import open_csv
from dodona_local.files.formats import FileFormat
from dodona_local.files.parts import Want
from dodona_local.inserting import Bringing, How, bring
from dodona_local.progress import Progress
from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.logical_values import store_of
from dodona_wire.rows.text_format import read_value, value_of_text
from dodona_ytsaurus.yt_json import loads_json

FIRST: Final = (1 << 53) + 1
HELD: Final = [0, -7, 1 << 53, (1 << 53) + 2, -(1 << 53) - 4, 1 << 63, 3 << 61]
ROUNDED: Final = [FIRST, -FIRST, (1 << 63) - 1, (1 << 64) - 1]
AS_WRITTEN: Final = [(1152921504606847000, 2.0**60), (-1152921504606847000, -(2.0**60))]
DOUBLE: Final = Column("d", "double")
COLUMNS: Final = [Column("k", "int64", "ascending"), DOUBLE, Column("e", "double", aggregate="max")]
SCHEMA: Final = TableSchema.parse(COLUMNS)


def cast(number: int) -> Any:
    kind = pa.uint64() if number >= 1 << 63 else pa.int64()
    array = pa.array([None, number], kind)
    return cast_column(DOUBLE, arrow_type(DOUBLE), array).to_pylist()[1]


VALUES: Final[dict[str, Callable[[int], Any]]] = {
    "arrow": cast,
    "json": lambda it: read_value(DOUBLE, msgspec.json.decode(str(it))),
    "text": lambda it: value_of_text(DOUBLE, str(it)),
    "padded text": lambda it: value_of_text(DOUBLE, f"{it:06000}"),
    "key": lambda it: read_value(Column("d", "double", "ascending"), it),
}


@pytest.mark.parametrize("way", VALUES)
@pytest.mark.parametrize("number", HELD)
def test_an_integer_that_a_double_holds_exactly_is_accepted(way: str, number: int) -> None:
    found = VALUES[way](number)
    assert (type(found), found) == (float, number)


@pytest.mark.parametrize("way", VALUES)
@pytest.mark.parametrize(("number", "double"), AS_WRITTEN)
def test_a_double_that_is_written_without_an_exponent_is_taken(
    way: str, number: int, double: float
) -> None:
    """As JavaScript writes them: no client in it could send a large one."""
    assert VALUES[way](number) == double != number
    spelt = b'{"$type": "double", "$value": %d}' % number
    assert loads_json(spelt) == double


@pytest.mark.parametrize("way", VALUES)
@pytest.mark.parametrize("number", ROUNDED)
def test_an_integer_that_no_double_holds_exactly_is_refused(way: str, number: int) -> None:
    with pytest.raises(
        SchemaViolation, match=f"no double equals {number}: to round the number"
    ) as raised:
        VALUES[way](number)
    row = {"row_index": 1} if way == "arrow" else {}
    assert raised.value.attributes == {"column": "d", "value": str(number), **row}


@pytest.mark.parametrize("number", [10**400, -(10**400)])
def test_an_integer_larger_than_any_double_is_refused_with_its_column(number: int) -> None:
    with pytest.raises(SchemaViolation, match="does not fit in double") as raised:
        read_value(DOUBLE, number)
    assert raised.value.attributes["column"] == "d"
    assert "bits" in raised.value.attributes["value"]


@pytest.mark.parametrize("text", [f"{FIRST}.0", f"{FIRST}e0", f"{FIRST}.", "1e300", "0.1"])
def test_text_with_a_point_or_an_exponent_is_a_float(text: str) -> None:
    assert value_of_text(DOUBLE, text) == float(text)
    assert doubles_of_csv(f"k,d\n1,{text}\n2,0.5\n") == [float(text), 0.5]


def test_a_cell_that_is_rounded_is_refused_beside_large_floats_and_nulls() -> None:
    with pytest.raises(SchemaViolation, match=f"no double equals {FIRST}") as raised:
        doubles_of_csv(f"k,d\n1,1e300\n2,\n3,{1 << 53}\n4,{FIRST}\n")
    assert raised.value.attributes["row"] == 4


def doubles_of_csv(text: str) -> list[Any]:
    want = Want("//t", SCHEMA, "write", 2)
    stream: Any = io.BufferedReader(io.BytesIO(text.encode()))
    return [row["d"] for part in open_csv(stream, want) for row in part.rows()]


@pytest.mark.parametrize("spelt", [str(FIRST), f'"{FIRST}"', f'"-{FIRST}"'])
def test_a_number_that_yt_calls_a_double(spelt: str) -> None:
    with pytest.raises(InvalidRequest, match="can't be stored exactly as double") as raised:
        loads_json(f'{{"$type": "double", "$value": {spelt}}}'.encode())
    assert str(FIRST) in raised.value.attributes["value"]
    assert loads_json(b'{"$type": "double", "$value": "%d"}' % (FIRST + 1)) == FIRST + 1
    assert loads_json(b'{"$type": "double", "$value": %d.0}' % FIRST) == FIRST - 1


def test_rows_that_the_gateway_gathers() -> None:
    with pytest.raises(SchemaViolation) as raised:
        table_of_rows(
            SCHEMA, [{"k": 1, "d": 1, "e": 1}, {"k": 2, "d": FIRST, "e": 1}], 0, is_update=False
        )
    assert raised.value.attributes["row_index"] == 1


# ---- a database


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as client:
        client.create_table("//full", SCHEMA, mount=True)
        client.create_table("//none", COLUMNS[:2], "none", mount=True)
        yield client


def in_transaction(db: dodona.Client, row: dict[str, Any]) -> None:
    with db.begin() as transaction:
        transaction.insert_rows("//full", [row])


def load(db: dodona.Client, row: dict[str, Any]) -> None:
    with db.loads.begin(["//full"]) as begun:
        begun.write("//full", pa.Table.from_pylist([row]))


def from_file(form: FileFormat) -> Callable[[dodona.Client, dict[str, Any], Path], None]:
    def insert(db: dodona.Client, row: dict[str, Any], folder: Path) -> None:
        text = json.dumps(row)
        if form == FileFormat.CSV:
            text = f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"
        file = folder / "rows"
        file.write_text(text)
        bring(db, Bringing("//full", file, form, "write", How.WHOLE), Progress())

    return insert


WRITES: Final[dict[str, Callable[[dodona.Client, dict[str, Any], Path], object]]] = {
    "rows": lambda db, row, _: db.insert_rows("//full", [row]),
    "aggregated rows": lambda db, row, _: db.insert_rows(
        "//full", [{"k": row["k"], "e": row["d"]}], aggregate=True, update=True
    ),
    "transaction": lambda db, row, _: in_transaction(db, row),
    "non-atomic rows": lambda db, row, _: db.insert_rows("//none", [row]),
    "arrow": lambda db, row, _: db.write_arrow("//none", pa.Table.from_pylist([row])),
    "load": lambda db, row, _: load(db, row),
    "json file": from_file(FileFormat.JSONL),
    "csv file": from_file(FileFormat.CSV),
}


@pytest.mark.parametrize("way", WRITES)
def test_a_way_in(db: dodona.Client, way: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaViolation, match=f"no double equals {FIRST}") as raised:
        WRITES[way](db, {"k": 1, "d": FIRST}, tmp_path)
    assert raised.value.attributes["column"] in ("d", "e")
    assert raised.value.attributes["value"] == str(FIRST)
    WRITES[way](db, {"k": 1, "d": FIRST + 1}, tmp_path)


def test_the_asyncio_client(tmp_path: Path) -> None:
    async def insert() -> None:
        async with await dodona.aio.open(tmp_path) as db:
            await db.create_table("//t", COLUMNS, mount=True)
            with pytest.raises(SchemaViolation, match=f"no double equals {FIRST}"):
                await db.insert_rows("//t", [{"k": 1, "d": FIRST}])

    asyncio.run(insert())


# Floats of 32 bits


FLOAT: Final = Column("f", "float")
FLOAT_WAYS: Final[dict[str, Callable[[int], Any]]] = {
    "arrow": lambda it: cast_column(FLOAT, arrow_type(FLOAT), pa.array([it])).to_pylist()[0],
    "json": lambda it: read_value(FLOAT, msgspec.json.decode(str(it))),
    "text": lambda it: value_of_text(FLOAT, str(it)),
    "padded text": lambda it: value_of_text(FLOAT, f"{it:0600}"),
    "a text in a list": lambda it: value_of_text(Column("f", "list<float>"), f"[{it}]")[0],
}


@pytest.mark.parametrize("way", FLOAT_WAYS)
@pytest.mark.parametrize("number", [0, -7, 9_999_999, 1 << 24, -(1 << 24) - 2, 1 << 40])
def test_a_whole_number_that_a_float_holds_is_taken(way: str, number: int) -> None:
    found = FLOAT_WAYS[way](number)
    assert (type(found), found) == (float, number)


@pytest.mark.parametrize("way", FLOAT_WAYS)
@pytest.mark.parametrize("number", [(1 << 24) + 1, -(1 << 24) - 1, (1 << 53) + 1, (1 << 63) - 1])
def test_a_whole_number_that_no_float_holds_is_refused(way: str, number: int) -> None:
    with pytest.raises(SchemaViolation, match=r"no float equals|truncated") as raised:
        FLOAT_WAYS[way](number)
    assert raised.value.attributes["column"] == "f"


@pytest.mark.parametrize("text", [f"{(1 << 24) + 1}.0", f"{(1 << 24) + 1}e0", "-0", "0.1"])
def test_a_number_with_a_point_becomes_the_nearest_float(text: str) -> None:
    found = value_of_text(FLOAT, text)
    assert str(found) == str(store_of(FLOAT.logical)(float(text), "f"))
