"""Bodies of /v1 are unpacked and bounded; a value that can't be read is named by its place."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any, Final

import brotli
import pytest
from fastapi import Request

from dodona.errors import (
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    SchemaViolation,
    UnsupportedMediaType,
)
from dodona.schema import Column, TableSchema
from dodona_gateway.core.content import decode_body
from dodona_gateway.core.json_values import given_rows
from dodona_gateway.core.requests import InsertRows
from dodona_gateway.core.row_stream import LinesOfJson
from dodona_gateway.shell.bodies import TAKE_BODY, pieces_of, whole_body
from dodona_server.pages import collect_body

CONTENT: Final = bytes(range(256)) * 1_000
PACKED: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "identity": bytes,
}


def request_of(
    encoding: str | None, body: bytes, take: Callable[[int], None] | None = None
) -> Request:
    parts = [body[at : at + 1_000] for at in range(0, len(body), 1_000)]

    async def receive() -> dict[str, Any]:
        part = parts.pop(0) if parts else b""
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    headers = [] if encoding is None else [(b"content-encoding", encoding.encode())]
    state = {} if take is None else {TAKE_BODY: take}
    return Request({"type": "http", "method": "POST", "headers": headers, "state": state}, receive)


@pytest.mark.parametrize("encoding", PACKED)
def test_a_packed_body_is_unpacked(encoding: str) -> None:
    packed = PACKED[encoding](CONTENT)

    async def pieces() -> bytes:
        return b"".join([it async for it in pieces_of(request_of(encoding, packed))])

    assert asyncio.run(pieces()) == CONTENT
    assert asyncio.run(whole_body(request_of(encoding, packed), len(CONTENT))) == CONTENT


@pytest.mark.parametrize("encoding", [it for it in PACKED if it != "identity"])
def test_the_size_of_an_unpacked_body_is_bounded(encoding: str) -> None:
    """By itself, and together with all that is under way."""
    packed = PACKED[encoding](bytes(8 << 20))
    with pytest.raises(LimitExceeded, match="unpacked"):
        asyncio.run(whole_body(request_of(encoding, packed), 1 << 20))
    taken: list[int] = []

    def take(size_bytes: int) -> None:
        taken.append(size_bytes)
        if sum(taken) > 3 << 20:
            raise Overloaded("too much")

    with pytest.raises(Overloaded):
        asyncio.run(whole_body(request_of(encoding, packed, take), 64 << 20))
    assert sum(taken) <= 6 << 20


@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_that_is_cut_or_another_is_refused(encoding: str) -> None:
    if encoding == "identity":
        return
    for wrong in (PACKED[encoding](CONTENT)[:-9], b"not packed at all" * 99):
        with pytest.raises(InvalidRequest):
            asyncio.run(whole_body(request_of(encoding, wrong), 1 << 20))


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(UnsupportedMediaType, match="is zstd"):
        asyncio.run(whole_body(request_of("zstd", b"x"), 1 << 20))


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_servers_without_unpacking_refuse_compressed_bodies(encoding: str) -> None:
    """A master, proxy or node took the packed bytes for JSON."""
    with pytest.raises(UnsupportedMediaType, match="without Content-Encoding"):
        asyncio.run(collect_body(request_of(encoding, b"x"), 1 << 20))
    assert asyncio.run(collect_body(request_of("identity", b"x"), 1 << 20)) == b"x"


BAD: Final = [{"$base64": "%"}, [1, {"a": {"$base64": 7}}], {"$dict": 1}, {"$double": "x"}]
SCHEMA: Final = TableSchema.parse([Column("k", "int64", "ascending"), Column("v", "any")])


@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_can_t_be_read_names_row_and_column(bad: Any) -> None:
    rows = [{"k": 1, "v": {"$base64": "/w=="}}, {"k": 2, "v": bad}]
    body = json.dumps({"table": "//t", "rows": rows}).encode()
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    for read in (decode_body(body, "json", InsertRows).rows, LinesOfJson().feed(lines)):
        with pytest.raises(SchemaViolation) as raised:
            given_rows(SCHEMA, read, "//t", is_json=True)
        assert raised.value.attributes == {"row_index": 1, "column": "v", "table": "//t"}
