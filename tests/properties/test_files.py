"""Rows that were written to a file come back as they were, whatever their values and however the
file is cut into parts; and whatever else a file has is told, in words.

Values are compared as MessagePack: -0.0 is not 0.0 there, 1 not 1.0, text not bytes, and NaN is
itself, of which text knows one kind only.
"""

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dodona
from dodona.errors import DodonaError, SchemaViolation
from dodona.schema import Column, TableSchema
from dodona.types import BatchKind
from dodona_local.exporting import Selection, export
from dodona_local.files import json_reading
from dodona_local.files.formats import FileFormat
from dodona_local.files.formatting import Shape
from dodona_local.files.parts import FilePart, Want
from dodona_local.files.reading import source_of
from dodona_local.files.writing import writer_to
from dodona_local.inserting import Bringing, How, bring
from dodona_local.progress import Progress
from dodona_wire.rows.arrow import arrow_of_tuples
from dodona_wire.rows.text_format import (
    RESERVED,
    format_any,
    format_bytes_as_text,
    json_of,
    read_value,
    value_of_text,
)
from suite.column_values import LOGICAL, values_of
from suite.column_values import NESTED as NESTED_TYPES
from suite.levels import examples

# Characters that formats mean something by, and some that are rare.
TEXT = st.text(max_size=12) | st.text(
    alphabet='",\n\r\\ \t\0{}[]:xé€😀\u2028\x7f\ufeff', max_size=8
)
BYTES = st.binary(max_size=12) | TEXT.map(str.encode) | st.sampled_from([b"base64:", b"base64:x"])
FLOATS = st.floats().map(lambda it: float("nan") if it != it else it)
INTEGERS = st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(-2, 2)
NESTED = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT | BYTES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT | st.sampled_from(RESERVED), inner, max_size=3)
    ),
    max_leaves=8,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 2),
    "uint64": st.integers(0, (1 << 64) - 1) | st.integers(0, 2),
    "double": FLOATS | st.sampled_from([-0.0, 1e22, 5e-324]),
    "boolean": st.booleans(),
    "string": BYTES,
    "utf8": TEXT,
    "any": NESTED,
    **{name: values_of(name) for name in (*LOGICAL, *NESTED_TYPES)},
}
KEYS = sorted(set(VALUES) - {"any", "float", *NESTED_TYPES})
EXAMPLES = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

Rows = list[tuple[Any, ...]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSchema, Rows]:
    """A schema, and rows of it. Its names are hard to spell, too."""
    types = [
        draw(st.sampled_from(KEYS)),
        *draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=4)),
    ]
    types.append(draw(st.sampled_from(sorted(VALUES))))
    names = draw(st.lists(TEXT, min_size=len(types), max_size=len(types), unique=True))
    columns = [
        Column(f"c{place}{name}", kind, "ascending" if not place else None)
        for place, (kind, name) in enumerate(zip(types, names, strict=True))
    ]
    values = [st.none() | VALUES[kind] for kind in types]
    if types[0] == "double":
        values[0] = st.none() | st.floats(allow_nan=False)
    return TableSchema.parse(columns), draw(st.lists(st.tuples(*values), max_size=6))


def text_of(form: FileFormat, columns: tuple[Column, ...], rows: Rows, cut: int) -> bytes:
    sink = io.BytesIO()
    writer = writer_to(sink, form, Shape.of_columns(columns))
    for at in range(0, len(rows), cut):
        for batch in arrow_of_tuples(columns, rows[at : at + cut]).to_batches():
            writer.write(batch)
    writer.finish()
    return sink.getvalue()


def parts_of(
    form: FileFormat, raw: bytes, schema: TableSchema, rows_per_part: int, kind: BatchKind = "write"
) -> Iterator[FilePart]:
    stream: Any = io.BufferedReader(io.BytesIO(raw))
    want = Want("//t", schema, kind, rows_per_part)
    for part, _ in source_of(stream, "it", len(raw), form, want).parts():
        yield part


def packed(rows: Any) -> bytes:
    return msgspec.msgpack.encode(rows)


@EXAMPLES
@given(tables(), st.sampled_from(FileFormat), st.integers(1, 7), st.integers(1, 7))
def test_rows_come_back(
    table: tuple[TableSchema, Rows], form: FileFormat, cut: int, rows_per_part: int
) -> None:
    schema, rows = table
    raw = text_of(form, schema.columns, rows, cut)
    expected = [dict(zip((it.name for it in schema.columns), row, strict=True)) for row in rows]
    parts = list(parts_of(form, raw, schema, rows_per_part))
    assert packed([row for part in parts for row in part.rows()]) == packed(expected)
    assert all(part.count <= rows_per_part for part in parts)
    tables_ = [batch for part in parts for batch in part.batches()]
    wanted = arrow_of_tuples(schema.columns, rows)
    assert all(batch.schema.types == wanted.schema.types for batch in tables_)
    found = [row for batch in tables_ for row in zip(*map(as_list, batch.columns), strict=True)]
    assert packed(found) == packed(list(zip(*map(as_list, wanted.columns), strict=True)))


def as_list(array: Any) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


@EXAMPLES
@given(tables(), st.integers(1, 7))
def test_a_key_column_alone_comes_back(table: tuple[TableSchema, Rows], rows_per_part: int) -> None:
    """In CSV a null is an empty line then."""
    schema, rows = table
    keys = [row[:1] for row in rows]
    for form in FileFormat:
        raw = text_of(form, schema.key_columns, keys, 3)
        parts = parts_of(form, raw, schema, rows_per_part, "delete")
        found = [tuple(row.values()) for part in parts for row in part.rows()]
        assert packed(found) == packed(keys)


@EXAMPLES
@given(tables(), st.integers(1, 20))
def test_json_may_be_cut_anywhere(table: tuple[TableSchema, Rows], read_bytes: int) -> None:
    schema, rows = table
    raw = text_of(FileFormat.JSON, schema.columns, rows, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_reading, "READ_BYTES", read_bytes)
        found = [row for part in parts_of(FileFormat.JSON, raw, schema, 2) for row in part.rows()]
    assert packed([tuple(row.values()) for row in found]) == packed(rows)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as client:
        yield client


@settings(EXAMPLES, max_examples=examples(25))
@given(
    tables(),
    st.sampled_from(FileFormat),
    st.sampled_from(["full", "none"]),
    st.sampled_from([How.WHOLE, How.BATCHES]),
)
def test_what_is_exported_can_be_inserted(
    db: dodona.Client,
    table: tuple[TableSchema, Rows],
    form: FileFormat,
    atomicity: Literal["full", "none"],
    how: How,
) -> None:
    """From table to file to table: each row that comes out is the one that went in."""
    schema, rows = table
    names = [column.name for column in schema.columns]
    for path in ("//from", "//to"):
        db.remove(path, force=True)
        db.create_table(path, schema, atomicity, mount=True)
    db.insert_rows("//from", [dict(zip(names, row, strict=True)) for row in rows])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        done = export(db, Selection("//from", schema), file, form, Progress())
        written = bring(db, Bringing("//to", file, form, "write", how, 3), Progress())
    before, after = db.select("//from").tuples(), db.select("//to").tuples()
    assert packed(after) == packed(before)
    assert done.row_count == written.row_count == len(before)


@EXAMPLES
@given(NESTED)
@example({"$dict": {"$dict": 1}})
@example({"$base64": "no base64"})
@example({"$double": "NaN", "other": 1})
def test_any_value_has_one_spelling(value: Any) -> None:
    column = Column("c", "any")
    text = msgspec.json.encode(format_any(value)).decode()
    assert packed(value_of_text(column, text)) == packed(value)
    assert packed(read_value(column, json_of(text, "c"))) == packed(value)
    assert format_any(read_value(column, json_of(text, "c"))) == json_of(text, "c")


@EXAMPLES
@given(BYTES)
def test_bytes_have_one_spelling(value: bytes) -> None:
    assert value_of_text(Column("c", "string"), format_bytes_as_text(value)) == value


SCHEMA = TableSchema.parse(
    [
        Column("k", "int64", "ascending"),
        *(Column(name, name) for name in VALUES),
    ]
)
SCRAPS = st.sampled_from(
    [
        *(
            "k",
            "int64",
            "any",
            "string",
            "double",
            '"',
            ",",
            "\n",
            "{",
            "}",
            "[",
            "]",
            ":",
            "1",
            "-",
        ),
        *("e9", '"k"', "null", "true", '"$base64"', '"$dict"', "NaN", "base64:", "\\ud800", "\\"),
        "9" * 30,
    ]
)


def check_told(form: FileFormat, raw: bytes, schema: TableSchema) -> None:
    """It can be read, or why it can't is told."""
    told = []
    try:
        for part in parts_of(form, raw, schema, 2):
            part.rows()
            list(part.batches())
    except DodonaError as error:
        told.append(error)
    assert all(error.action == "fix" for error in told)


@settings(EXAMPLES, max_examples=examples(300))
@given(
    st.lists(SCRAPS).map("".join).map(str.encode) | st.binary(max_size=40),
    st.sampled_from(["", "k,any\n", "k,string\n", "k,int64,double\n", '[{"k":1,"any":', "ARROW1"]),
    st.sampled_from(FileFormat),
)
def test_a_file_of_nonsense_is_read_or_raises_an_error_with_action_fix(
    scraps: bytes, beginning: str, form: FileFormat
) -> None:
    check_told(form, beginning.encode() + scraps, SCHEMA)


@settings(EXAMPLES, max_examples=examples(200))
@given(tables(), st.sampled_from(FileFormat), st.data())
def test_a_damaged_file_is_read_or_raises_an_error_with_action_fix(
    table: tuple[TableSchema, Rows], form: FileFormat, data: st.DataObject
) -> None:
    schema, rows = table
    raw = bytearray(text_of(form, schema.columns, rows, 3))
    for _ in range(data.draw(st.integers(1, 4)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    check_told(form, bytes(raw), schema)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("int64", it) for it in ("", " 1", "+1", "1.0", "1_0", "0x1", "9" * 19, "٣", "1e3")),
        *(("uint64", it) for it in ("-1", "9" * 20)),
        *(("double", it) for it in ("1e400", "1,5", "0x1p3", "1_0", "x", "-")),
        *(("boolean", it) for it in ("1", "yes", "")),
        *(("string", it) for it in ("base64:x", "base64:%%", "\ud800")),
        *(("any", it) for it in ("{", "NaN", '{"$base64":"x"}', '{"$double":1}', '{"$dict":1}')),
    ],
)
def test_a_text_that_is_no_value_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(SchemaViolation) as raised:
        value_of_text(Column("c", kind), text)
    assert raised.value.attributes["column"] == "c"
