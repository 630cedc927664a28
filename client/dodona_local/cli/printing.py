"""Print rows in batches, and whole lists, for commands.

Owns: the standard output of each `--format`. Rows in JSON are one object in each line, and a list
is one array. A command imports this module when it has something to print.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import msgspec

from dodona_local.cli.options import Format
from dodona_local.cli.streams import output_failure, write_output
from dodona_local.files.formatting import Shape, json_columns, rows_of
from dodona_local.files.writing import (
    CsvWriter,
    LinesWriter,
    StreamWriter,
    TableWriter,
    Writer,
)
from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.arrow import arrow_of_tuples
from dodona_wire.rows.schema import Column


def print_rows(form: Format, shape: Shape, batches: Iterable[Any]) -> None:
    """Print record batches of one shape."""
    if form is Format.JSON and len(set(shape.names)) < len(shape.names):
        raise InvalidRequest(
            "two columns have the same name: rename one (AS), or use another format"
        )
    writer = _writer(form, shape)
    for batch in batches:
        if batch.num_rows:
            writer.write(batch)
        if output_failure() is not None:
            return
    writer.finish()
    sys.stdout.flush()


def print_list(form: Format, columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> None:
    """Print tuples of these columns' values."""
    shape = Shape.of_columns(columns)
    batches = arrow_of_tuples(columns, rows).to_batches()
    if form is not Format.JSON:
        print_rows(form, shape, batches)
        return
    objects = [row for batch in batches for row in rows_of(shape, json_columns(shape, batch))]
    print_json(objects)


def print_json(value: Any) -> None:
    """Print one value as JSON, formatted for people too."""
    write_output(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def _writer(form: Format, shape: Shape) -> Writer:
    sys.stdout.flush()
    sink: BinaryIO = sys.stdout.buffer
    match form:
        case Format.TABLE:
            return TableWriter(sink, shape)
        case Format.JSON:
            return LinesWriter(sink, shape)
        case Format.CSV:
            return CsvWriter(sink, shape)
        case Format.ARROW:
            return StreamWriter(sink, shape)
