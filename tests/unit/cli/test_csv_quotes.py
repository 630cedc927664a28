"""Quotes in CSV: each row comes in as it is written, or the first wrong quote is refused."""

import io
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dodona.errors import InvalidRequest
from dodona.schema import TableSchema
from dodona_local.files import csv_reading
from dodona_local.files.csv_blocks import whole_rows
from dodona_local.files.formats import FileFormat
from dodona_local.files.parts import Want
from dodona_local.files.reading import source_of
from suite.levels import examples
from unit.cli.commands import TABLE, Commands

SCHEMA: Final = TableSchema.parse(
    [
        {"name": "a", "type": "string", "sort_order": "ascending"},
        {"name": "b", "type": "string"},
        {"name": "c", "type": "string"},
    ]
)
NAMES: Final = ("a", "b", "c")
UNCLOSED: Final = "the quote at the beginning of a cell is not closed"
BEHIND: Final = "text follows the closing quote of a cell"

WRONG: Final = [
    # duckdb #14117: the row behind was taken for text of this one, and the exit code was 0
    pytest.param('1,x\n2,"John, Doe\n3,y\n4,z\n', UNCLOSED, 2, id="unclosed"),
    pytest.param('1,x\n2,"John, Doe\n3,"Jane"\n', BEHIND, 2, id="closed_by_the_next_row"),
    pytest.param('1,"ab"cd\n', BEHIND, 1, id="text_behind"),
    pytest.param('1,"ab" \n', BEHIND, 1, id="blank_behind"),
    pytest.param('1,x\n\n2,"a\\"b"\n', BEHIND, 2, id="backslash"),
    pytest.param('1,"', UNCLOSED, 1, id="quote_at_the_end"),
    pytest.param('1,"a""\n', UNCLOSED, 1, id="doubled_at_the_end"),
    pytest.param('1,"a\n\r\n"\r\n2,5" pipe\r\n3,"a"b"\r\n', BEHIND, 3, id="behind_lines"),
]


@pytest.mark.parametrize(("text", "words", "row"), WRONG)
def test_a_wrong_quote_is_refused(text: str, words: str, row: int) -> None:
    """After the rows before it."""
    found: list[Any] = []
    with pytest.raises(InvalidRequest, match=words) as raised:
        found.extend(rows_of(io.BytesIO(b"a,b\n" + text.encode()), FileFormat.CSV, 1))
    assert raised.value.attributes["row"] == row
    assert len(found) == row - 1


@pytest.mark.parametrize(("text", "words", "row"), [WRONG[0], WRONG[-1]])
@pytest.mark.parametrize("how", ["whole", "atomic", "batches", "delete"])
def test_a_wrong_quote_is_refused_with_its_row(
    dodona: Commands, text: str, words: str, row: int, how: str
) -> None:
    """Nothing is written, but of batches what came before."""
    columns = "id:utf8:key,name:utf8:key,v:any" if how == "delete" else "id:utf8:key,name:utf8"
    dodona.said("create", TABLE, "--schema", columns)
    words_of_how: dict[str, list[object]] = {"atomic": ["--atomic"], "batches": ["--batch-rows", 1]}
    options = words_of_how.get(how, [])
    command = ("delete" if how == "delete" else "insert", TABLE, "-", "--input-format", "csv")
    said = dodona.refused(*command, *options, stdin="id,name\n" + text)
    assert words in said
    assert f"row={row}," in said
    written = row - 1 if how == "batches" else 0
    assert f"rows_written={written})" in said
    assert len(dodona.rows()) == written


def test_a_wrong_quote_in_the_heading_is_refused(bank: Commands) -> None:
    for heading in ('id,"name\n1,x\n', 'id,"na"me\n1,x\n'):
        said = bank.refused("insert", TABLE, "-", "--input-format", "csv", stdin=heading)
        assert "the heading can't be read" in said


def test_a_quote_that_hides_the_rest_of_a_long_file_is_named(
    bank: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not called a long row."""
    monkeypatch.setattr(csv_reading, "BLOCK_BYTES", 100)
    text = "id,name\n" + "1,x\n" * 30 + '2,"y\n' + "3,z\n" * 99
    said = bank.refused("insert", TABLE, "-", "--input-format", "csv", stdin=text)
    assert f"{UNCLOSED} within 100 bytes" in said
    assert "row=31," in said


# ---- against a reader that looks at one character after the other


def ends_of_rows(text: str) -> tuple[list[int], str | None]:
    """→ where rows end, and what is wrong with the one that begins at the last end."""
    ends, at = [0], 0
    while at < len(text):
        if text[at] == '"':
            at += 1
            while at < len(text) and (text[at] != '"' or text[at : at + 2] == '""'):
                at += 2 if text[at] == '"' else 1
            if at >= len(text):
                return ends, UNCLOSED
            at += 1
            if at < len(text) and text[at] not in ",\r\n":
                return ends, BEHIND
        while at < len(text) and text[at] not in ",\r\n":
            at += 1
        if at < len(text) and text[at] != ",":
            at += 2 if text[at : at + 2] == "\r\n" else 1
            ends.append(at)
        else:
            at += 1
    return [*ends, len(text)], None


@settings(max_examples=examples(300), deadline=None)
@given(st.text('",\r\nx', max_size=40), st.integers(40, 50))
@example('x,"a""b"\r\nx"y,"\r"\r', 40)
def test_blocks_are_whole_rows_until_the_first_wrong_quote(text: str, block_bytes: int) -> None:
    """With texts before and behind it, so that it is cut anywhere."""
    text = "x,y\n" * 11 + text + "\nx\r" * 5 + text
    ends, fault = ends_of_rows(text)
    blocks: list[bytes] = []
    said = None
    try:
        stream: Any = io.BufferedReader(io.BytesIO(text.encode()))
        blocks.extend(block.to_pybytes() for block in whole_rows(stream, block_bytes))
    except InvalidRequest as error:
        said = error.message
    at = 0
    for block in blocks:
        at += len(block)
        assert at in ends
    assert b"".join(blocks) == text[:at].encode()
    if said is None:
        assert (at, fault) == (len(text), None)
    elif fault is None or "longer than" in said or "within" in said:
        assert min(end for end in [*ends, len(text)] if end > at) - at >= block_bytes
    else:
        assert (at, fault in said) == (ends[-1], True)


CELLS: Final = st.tuples(
    st.text('",\r\nx é', max_size=8),
    st.booleans(),
)


def spelled(cell: tuple[str, bool]) -> str:
    """In quotes if it must be, or may be and shall be."""
    text, is_quoted = cell
    if is_quoted or not text or text[0] == '"' or set(text) & set(",\r\n"):
        return '"' + text.replace('"', '""') + '"'
    return text


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.integers(100, 120),
)
def test_cells_come_in_as_they_are_written(
    rows: list[tuple[tuple[str, bool], ...]], line_end: str, is_open: bool, block_bytes: int
) -> None:
    lines = [",".join(map(spelled, row)) + line_end for row in rows]
    raw = ("a,b,c\n" + "".join(lines)).encode()
    if is_open and rows:
        raw = raw.removesuffix(line_end.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reading, "BLOCK_BYTES", block_bytes)
        found = [tuple(row.values()) for row in rows_of(io.BytesIO(raw), FileFormat.CSV)]
    assert found == [tuple(text.encode() for text, _ in row) for row in rows]


def rows_of(raw: Any, form: FileFormat, count: int = 3) -> Iterator[dict[str, Any]]:
    want = Want("//t", SCHEMA, "write", count)
    source = source_of(io.BufferedReader(raw), "it", 1, form, want)
    for part, _ in source.parts():
        yield from part.rows()


# ---- who reads


class Watched(io.BytesIO):
    """Remembers the threads that read it, and whether one does while nobody asked for rows."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self.readers: set[int] = set()
        self.is_asked = True
        self.is_read_unasked = False

    def readinto(self, buffer: Any) -> int:
        self.readers.add(threading.get_ident())
        self.is_read_unasked |= not self.is_asked
        return super().readinto(buffer)


def sample_of(form: FileFormat) -> bytes:
    """Many rows, of which the last can't be read."""
    table = pa.table({name: [f"{name}{number}" for number in range(5_000)] for name in NAMES})
    sink = io.BytesIO()
    match form:
        case FileFormat.CSV:
            return b"a,b,c\n" + b"1,2,3\n" * 50_000 + b"1,2\n" + b"1,2,3\n" * 400_000
        case FileFormat.PARQUET:
            pyarrow.parquet.write_table(table, sink, row_group_size=500)
        case FileFormat.ARROW:
            with pyarrow.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, 100)
        case FileFormat.ARROWS:
            with pyarrow.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table, 100)
            return sink.getvalue()[:-5_000]
        case _:
            return b'{"a":"1","b":"2"}\n' * 50_000 + b"{"
    return sink.getvalue()


@pytest.mark.parametrize("form", FileFormat)
def test_no_thread_reads_a_file_between_two_parts(
    form: FileFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of Arrow's that still reads when the interpreter ends aborts the process, which is
    how a bad CSV ended the command now and then."""
    monkeypatch.setattr(csv_reading, "BLOCK_BYTES", 1 << 16)
    raw = Watched(sample_of(form))
    want = Want("//t", SCHEMA, "write", 1_000)
    source = source_of(io.BufferedReader(raw), "it", 1, form, want)
    try:
        for count, _ in enumerate(source.parts()):
            raw.is_asked = False
            if count < 3:
                time.sleep(0.02)  # for whoever reads ahead: who takes longer is not seen
            raw.is_asked = True
    except InvalidRequest:
        raw.is_asked = False
        time.sleep(0.05)
    assert not raw.is_read_unasked
    if form not in (FileFormat.PARQUET, FileFormat.ARROW):  # there a call waits for its threads
        assert raw.readers == {threading.get_ident()}
