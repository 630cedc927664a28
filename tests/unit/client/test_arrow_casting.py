"""Arrow columns of every type, by every way in: cast where each value stays what it was, or refused
by name. No error of Arrow's own reaches a caller."""

import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import numpy
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
import pyarrow.parquet
import pytest

import dodona
from dodona._core.writing.arrow_casting import cast_column
from dodona._core.writing.bulk import fit
from dodona.errors import InvalidRequest, LimitExceeded, SchemaViolation
from dodona.schema import Column, TableSchema
from dodona_gateway.core.arrow_stream import ArrowStream
from dodona_gateway.core.row_stream import reader_of
from dodona_local.files.formats import FileFormat
from dodona_local.inserting import Bringing, How, bring
from dodona_local.progress import Progress
from dodona_wire.rows.arrow import arrow_type

TYPES: Final = ("int64", "uint64", "double", "boolean", "string", "utf8", "any")
TEXTS: Final = ["a", None, "longer than a view holds", "a", "", None]
BYTES: Final = [b"\xff", None, b"\x00" * 20, b"", b"\xff", b"a"]
FLAGS: Final = [True, None, False, True, False, True]
NUMBERS: Final = [1, None, 3, -4, 5, 6]
DECIMALS: Final = [None if it is None else Decimal(it) for it in NUMBERS]
JSONS: Final = ['{"a":[1,null]}', None, "7", '"x"', "[]", '{"$base64":"/w=="}']
ANYS: Final[list[Any]] = [{"a": [1, None]}, None, 7, "x", [], b"\xff"]
PACKED: Final = [None if it is None else msgspec.msgpack.encode(it) for it in ANYS]
IDS: Final = [UUID(int=it).bytes for it in range(6)]


def coded(array: Any) -> Any:
    """As a dictionary that has the nulls, which such an array does not count."""
    return pa.DictionaryArray.from_arrays(pa.array(range(len(array)), pa.uint8()), array)


def run(array: Any) -> Any:
    """As runs of one value each."""
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(array) + 1), pa.int16()), array)


def extended(kind: Any, storage: Any) -> Any:
    return pa.ExtensionArray.from_storage(kind, storage)


class Unknown(pa.ExtensionType):  # type: ignore[misc]
    """Somebody's own type."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "somebody.own")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: Any, _text: bytes) -> "Unknown":
        return cls()


text, raw = pa.array(TEXTS), pa.array(BYTES)
views, raw_views = text.cast(pa.string_view()), raw.cast(pa.binary_view())
bool8 = extended(pa.bool8(), pa.array([2, None, 0, -1, 0, 1], pa.int8()))
GIVEN: Final[dict[str, tuple[Any, dict[str, list[Any]]]]] = {
    # what pa.table(polars_frame) has
    "string_view": (views, {"utf8": TEXTS, "string": TEXTS}),
    "binary_view": (raw_views, {"string": BYTES, "any": BYTES}),
    "large_string": (text.cast(pa.large_string()), {"utf8": TEXTS, "string": TEXTS}),
    "large_binary": (raw.cast(pa.large_binary()), {"string": BYTES, "any": BYTES}),
    "packed views": (pa.array(PACKED, pa.binary_view()), {"any": PACKED, "string": PACKED}),
    "fixed_size_binary": (pa.array(IDS, pa.binary(16)), {"string": IDS, "any": IDS}),
    "dictionary": (text.dictionary_encode(), {"utf8": TEXTS, "string": TEXTS}),
    "dictionary of views": (coded(views), {"utf8": TEXTS, "string": TEXTS}),
    "dictionary of bytes' views": (coded(raw_views), {"string": BYTES, "any": BYTES}),
    "dictionary of numbers": (coded(pa.array(NUMBERS)), {"int64": NUMBERS, "double": NUMBERS}),
    "dictionary of flags": (coded(pa.array(FLAGS)), {"boolean": FLAGS}),
    "dictionary of dictionary": (coded(coded(text)), {"utf8": TEXTS, "string": TEXTS}),
    "runs": (pa.compute.run_end_encode(text), {"utf8": TEXTS, "string": TEXTS}),
    "runs of views": (run(views), {"utf8": TEXTS, "string": TEXTS}),
    "runs of dictionary": (run(coded(text)), {"utf8": TEXTS, "string": TEXTS}),
    "runs of numbers": (run(pa.array(NUMBERS, pa.int8())), {"int64": NUMBERS, "double": NUMBERS}),
    "uuid": (pa.array(IDS, pa.uuid()), {"string": IDS}),
    "dictionary of uuid": (coded(pa.array(IDS, pa.uuid())), {"string": IDS}),
    "json": (pa.array(JSONS, pa.json_()), {"any": PACKED, "utf8": JSONS, "string": JSONS}),
    "json in views": (
        extended(pa.json_(pa.string_view()), pa.array(JSONS, pa.string_view())),
        {"any": PACKED, "utf8": JSONS, "string": JSONS},
    ),
    "bool8": (bool8, {"boolean": FLAGS}),
    "runs of bool8": (run(bool8), {"boolean": FLAGS}),
    "null": (
        pa.nulls(6),
        dict.fromkeys(TYPES, [None] * 6),
    ),
    "dictionary of null": (coded(pa.nulls(6)), dict.fromkeys(TYPES, [None] * 6)),
    "float16": (pa.array(numpy.arange(6, dtype="f2")), {"double": [0.0, 1, 2, 3, 4, 5]}),
    "decimal": (pa.array(NUMBERS).cast(pa.decimal128(20)), {"int64": NUMBERS}),
    "decimal of 64 bits": (pa.array(DECIMALS, pa.decimal64(18)), {"int64": NUMBERS}),
    "decimal of 32 bits": (pa.array(DECIMALS, pa.decimal32(9)), {"int64": NUMBERS}),
    "timestamp": (pa.array(NUMBERS, pa.timestamp("us")), {}),
    "date": (pa.array(NUMBERS, pa.date32()), {}),
    "duration": (pa.array(NUMBERS, pa.duration("s")), {}),
    "list": (pa.array([[1]] * 6), {}),
    "list_view": (pa.array([[1]] * 6, pa.list_view(pa.int64())), {}),
    "struct": (pa.array([{"a": 1}] * 6), {}),
    "map": (pa.array([[("a", 1)]] * 6, pa.map_(pa.string(), pa.int64())), {}),
    "union": (
        pa.UnionArray.from_sparse(pa.array([0] * 6, pa.int8()), [pa.array(range(6))]),
        {},
    ),
    "runs of lists": (run(pa.array([[1]] * 6)), {}),
    "unknown extension": (extended(Unknown(), pa.array(NUMBERS)), {}),
    "dictionary of unknown extension": (coded(extended(Unknown(), pa.array(NUMBERS))), {}),
}


def stored(column_type: str, value: Any) -> Any:
    return value.encode() if column_type == "string" and isinstance(value, str) else value


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("column_type", TYPES)
def test_a_column_is_cast_or_refused_by_name(name: str, column_type: Any) -> None:
    array, fits = GIVEN[name]
    column = Column("c", column_type)
    wanted = arrow_type(column)
    if column_type in fits:
        expected = [stored(column_type, it) for it in fits[column_type]]
        for start, length in ((0, 6), (1, 4), (5, 1), (6, 0)):
            found = cast_column(column, wanted, array.slice(start, length))
            assert found.type == wanted
            assert found.to_pylist() == expected[start : start + length]
    else:
        with pytest.raises(SchemaViolation, match=r"column 'c' is|does not fit") as raised:
            cast_column(column, wanted, array)
        assert raised.value.attributes["column"] == "c"


COLUMNS: Final = [
    Column("k", "utf8", "ascending"),
    Column("b", "boolean"),
    Column("n", "int64"),
    Column("s", "string"),
    Column("t", "utf8"),
    Column("x", "any"),
]
SCHEMA: Final = TableSchema.parse(COLUMNS)
KEYS: Final = list("abcdef")
ODD: Final = pa.table(
    {
        "k": coded(pa.array(KEYS, pa.string_view())),
        "b": bool8,
        "n": coded(pa.array(NUMBERS)),
        "s": pa.array(IDS, pa.uuid()),
        "t": views,
        "x": pa.array(JSONS, pa.json_()),
    }
)
NAMES: Final = [column.name for column in COLUMNS]
ROWS: Final = [
    dict(zip(NAMES, row, strict=True))
    for row in zip(KEYS, FLAGS, NUMBERS, IDS, TEXTS, ANYS, strict=True)
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as client:
        client.create_table("//full", SCHEMA, mount=True)
        client.create_table("//none", SCHEMA, "none", mount=True)
        yield client


def load(db: dodona.Client, data: Any) -> None:
    with db.loads.begin(["//full"]) as begun:
        begun.write("//full", data)


def write(db: dodona.Client, data: Any) -> None:
    db.write_arrow("//none", data)


def without_dictionaries(data: Any) -> Any:
    """Parquet has none of views, nor with nulls."""
    for place, field in enumerate(data.schema):
        if pa.types.is_dictionary(field.type):
            values = pa.array(data.column(place).to_pylist(), field.type.value_type)
            data = data.set_column(place, field.name, values)
    return data


def from_file(form: FileFormat, how: How) -> Callable[[dodona.Client, Any, Path], None]:
    def bring_it(db: dodona.Client, data: Any, folder: Path) -> None:
        file = folder / "rows"
        match form:
            case FileFormat.PARQUET:
                pa.parquet.write_table(without_dictionaries(data), file, row_group_size=4)
            case FileFormat.ARROW:
                with pa.ipc.new_file(file, data.schema) as writer:
                    writer.write_table(data)
            case _:
                with pa.ipc.new_stream(file, data.schema) as stream:
                    for start in range(0, data.num_rows, 4):  # each with dictionaries of its own
                        stream.write_table(data.slice(start, 4))
        path = "//none" if how is How.BATCHES else "//full"
        bring(db, Bringing(path, file, form, "write", how), Progress())

    return bring_it


WAYS: Final[dict[str, tuple[str, Any]]] = {
    "load.write": ("//full", lambda db, data, _: load(db, data)),
    "load.write of batches": ("//full", lambda db, data, _: load(db, data.to_batches(2))),
    "write_arrow": ("//none", lambda db, data, _: write(db, data)),
    "write_arrow of a reader": ("//none", lambda db, data, _: write(db, data.to_reader(2))),
    "Parquet in a transaction": ("//full", from_file(FileFormat.PARQUET, How.WHOLE)),
    "Arrow file in a load": ("//full", from_file(FileFormat.ARROW, How.LOAD)),
    "Arrow stream in batches": ("//none", from_file(FileFormat.ARROWS, How.BATCHES)),
    "Arrow stream in a transaction": ("//full", from_file(FileFormat.ARROWS, How.WHOLE)),
}


@pytest.mark.parametrize("way", WAYS)
def test_they_come_in_by_every_way(db: dodona.Client, way: str, tmp_path: Path) -> None:
    path, bring_in = WAYS[way]
    db.delete_rows(path, [{"k": key} for key in KEYS])
    bring_in(db, ODD, tmp_path)
    assert [dict(row) for row in db.select(path)] == ROWS


@pytest.mark.parametrize("way", WAYS)
def test_every_import_method_refuses_columns_that_do_not_fit(
    db: dodona.Client, way: str, tmp_path: Path
) -> None:
    path, bring_in = WAYS[way]
    db.delete_rows(path, [{"k": key} for key in KEYS])
    for column in (pa.array([[1]] * 6), pa.array(IDS, pa.uuid()), pa.array(TEXTS)):
        with pytest.raises(SchemaViolation) as raised:
            bring_in(db, ODD.set_column(2, "n", column), tmp_path)
        assert raised.value.attributes["column"] == "n"
    assert list(db.select(path)) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_comes_twice_is_refused_by_every_way(
    db: dodona.Client, way: str, tmp_path: Path
) -> None:
    """In MessagePack, of which a reader keeps the last."""
    path, bring_in = WAYS[way]
    db.delete_rows(path, [{"k": key} for key in KEYS])
    twice = pa.array([None] * 5 + [b"\x91\x82\xa1y\x01\xa1y\x02"], pa.binary())
    with pytest.raises(SchemaViolation, match="'y' is named twice in one object") as raised:
        bring_in(db, ODD.set_column(5, "x", twice), tmp_path)
    assert raised.value.attributes["column"] == "x"
    assert list(db.select(path)) == []


@pytest.mark.parametrize("way", [it for it in WAYS if "batches" not in it or "Arrow" in it])
def test_unknown_columns_are_refused_without_any_row(
    db: dodona.Client, way: str, tmp_path: Path
) -> None:
    _, bring_in = WAYS[way]
    strange = pa.table({"k": pa.array([], pa.string()), "nope": pa.array([], pa.int64())})
    with pytest.raises(SchemaViolation, match="no such column"):
        bring_in(db, strange, tmp_path)


@pytest.mark.parametrize("array", [coded(text), run(text), coded(views), run(coded(text))])
def test_a_null_in_a_required_column_is_refused_in_every_arrow_encoding(array: Any) -> None:
    columns = [Column("k", "int64", "ascending"), Column("t", "utf8", required=True)]
    batch = pa.RecordBatch.from_arrays([pa.array(range(6)), array], names=["k", "t"])
    with pytest.raises(SchemaViolation, match="required column is null"):
        fit(TableSchema.parse(columns), batch, "write")


def test_arrow_types_that_are_nested_too_deeply_are_refused() -> None:
    array = text
    for _ in range(20):
        array = coded(array)
    with pytest.raises(SchemaViolation, match="takes Arrow's string"):
        cast_column(Column("c", "utf8"), pa.string(), array)


@pytest.mark.parametrize("wrong", ["{", '{"$base64": 1}', '"\\ud800"'])
def test_a_text_that_is_no_json_is_refused(wrong: str) -> None:
    array = extended(pa.json_(), pa.array([wrong]))
    with pytest.raises(SchemaViolation):
        cast_column(Column("c", "any"), pa.binary(), array)


# ---- over REST, where a body must not become longer than it is


def stream_of(*arrays: Any) -> bytes:
    sink = io.BytesIO()
    batches = [pa.RecordBatch.from_arrays([it], names=["c"]) for it in arrays]
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


@pytest.mark.parametrize("name", GIVEN)
def test_an_arrow_body_is_accepted_or_refused_with_a_clear_error(name: str) -> None:
    array, fits = GIVEN[name]
    stream = ArrowStream()
    if "dictionary" in name or name.startswith("runs"):
        with pytest.raises(InvalidRequest, match=r"plain values|can't be read"):
            stream.feed(stream_of(array))
        return
    (batch,) = stream.feed(stream_of(array))
    for column_type in fits:
        column: Any = Column("c", column_type)
        found = cast_column(column, arrow_type(column), batch.column(0))
        assert len(found) == len(array)


@pytest.mark.parametrize("is_json", [False, True])
def test_views_that_show_one_text_many_times_are_refused(is_json: bool) -> None:
    long = pa.array(["x" * 1_000_000], pa.string_view())
    views_buffer = pa.py_buffer(long.buffers()[1].to_pybytes() * 1_000)
    many: Any = pa.Array.from_buffers(
        pa.string_view(), 1_000, [None, views_buffer, long.buffers()[2]]
    )
    if is_json:
        many = extended(pa.json_(pa.string_view()), many)
    with pytest.raises(LimitExceeded, match="are longer than their message"):
        ArrowStream().feed(stream_of(many))


def test_an_arrow_stream_without_rows_keeps_its_columns() -> None:
    reader = reader_of("arrow")
    assert reader.feed(stream_of(text)[:-1]) != []
    reader = reader_of("arrow")
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, ODD.select(["b", "s", "t", "x"]).schema):
        pass
    assert reader.feed(sink.getvalue()) == []
    (batch,) = reader.finish()
    assert (batch.num_rows, batch.schema.names) == (0, ["b", "s", "t", "x"])
