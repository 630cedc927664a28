"""A byte order mark before JSON is taken: in bodies of every API as in files, once, and first."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dodona.errors import DodonaError, InvalidRequest
from dodona_gateway.core.content import decode_body
from dodona_gateway.core.row_stream import LinesOfJson
from dodona_wire.messages.catalog import CreateTable
from dodona_wire.messages.rest import OPERATIONS_BY_REQUEST, decode_request
from dodona_ytsaurus.terms.parameters import decode_parameters
from dodona_ytsaurus.yt_json import JsonRowReader, loads_json
from unit.cli.commands import Commands

MARK = "\ufeff".encode()
LINES = b'{"k": 1}\n{"k": 2}'
ROWS = [{"k": 1}, {"k": 2}]


class Wanted(msgspec.Struct):
    rows: list[dict[str, Any]]


def rows_of(reader: Any, *parts: bytes) -> list[Any]:
    return [row for part in parts for row in reader.feed(part)] + list(reader.finish())


ONE: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "/v1": (b'{"rows": [{"k": 1}]}', lambda it: decode_body(it, "json", Wanted).rows),
    "/v1, with marks": (
        b'{"rows": [{"k": {"$base64": "/w=="}}]}',
        lambda it: decode_body(it, "json", Wanted).rows,
    ),
    "YTsaurus's value": (b'{"k": [1]}', loads_json),
    "YTsaurus's parameters": (b'{"path": "//t"}', lambda it: decode_parameters(it, is_json=True)),
}
STREAMS: dict[str, Callable[[], Any]] = {
    "/v1": LinesOfJson,
    "YTsaurus": lambda: JsonRowReader(strings="text"),
}


@pytest.mark.parametrize("name", ONE)
def test_before_a_body_of_one_value(name: str) -> None:
    body, read = ONE[name]
    assert read(MARK + body) == read(body)
    for wrong in (MARK + MARK + body, body + MARK, MARK, MARK[:2] + body):
        with pytest.raises(InvalidRequest):
            read(wrong)


@pytest.mark.parametrize("name", STREAMS)
def test_a_body_of_lines_may_begin_with_a_byte_order_mark(name: str) -> None:
    body = MARK + LINES
    for cut in range(len(body)):
        parts = [body[a:b] for a, b in pairwise([0, cut, len(body)])]
        assert rows_of(STREAMS[name](), *parts) == ROWS
    assert rows_of(STREAMS[name](), *[body[it : it + 1] for it in range(len(body))]) == ROWS
    assert rows_of(STREAMS[name](), MARK) == []
    assert rows_of(STREAMS[name](), MARK + b"\n" + LINES) == ROWS
    for wrong in (LINES.replace(b"\n", b"\n" + MARK), MARK + body):
        with pytest.raises(DodonaError):
            rows_of(STREAMS[name](), wrong)


def test_before_a_body_for_the_master() -> None:
    operation = OPERATIONS_BY_REQUEST[CreateTable]
    content = b'{"path":"//a","columns":[]}'
    assert decode_request(operation, (), MARK + content) == decode_request(operation, (), content)


def test_the_input_of_commands_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    dodona = Commands(tmp_path / "db")
    schema = tmp_path / "schema"
    schema.write_bytes(MARK + b"k:int64:key,v:int64")
    dodona.said("create", "//t", "--schema", schema, "--mount")
    for form, text in (("json", b'{"k": 1, "v": 1}'), ("csv", b"k,v\n1,1\n")):
        dodona.said("insert", "//t", "-", "--input-format", form, stdin=MARK + text)
        assert dodona.rows("//t") == [{"k": 1, "v": 1}]
    assert dodona.said("query", "-", stdin=MARK + b"select 1 as one").startswith("one")
