"""Read a request of YTsaurus's HTTP API: its parameters, a value, or rows.

Owns: the order in which parameters are taken from the places of a request, and the reading of
bodies. A body with rows is never held as a whole. Bounds: bytes, values, and the time of the whole
request, which the edge bounds.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from fastapi import Request

from dodona_wire.messages.rest import JSON_TYPE
from dodona_ytsaurus.commands.commands import Command
from dodona_ytsaurus.gateway import Caller
from dodona_ytsaurus.terms.bodies import (
    BODY_BYTES_MAX,
    check_size,
    check_values,
    count_values,
)
from dodona_ytsaurus.terms.formats import Format
from dodona_ytsaurus.terms.parameters import Parameters, decode_parameters

PARAMETERS_HEADER: Final = "x-yt-parameters"
FORMAT_HEADER: Final = "x-yt-header-format"
BYTES_AT_ONCE: Final = 64 << 10
"""The bytes of rows that are decoded in the event loop. Later rows are decoded in a thread, so that
other callers are answered meanwhile."""


async def read_parameters(
    request: Request, caller: Caller, found: Command, bytes_max: int
) -> Parameters:
    """Read the parameters of a query string, a header, and the body of a POST. A later place wins.
    Raises InvalidRequest, LimitExceeded."""
    values: dict[str, Any] = dict(request.query_params)
    header = request.headers.get(PARAMETERS_HEADER)
    if header:
        is_json = "yson" not in request.headers.get(FORMAT_HEADER, "json")
        values |= decode_parameters(header.encode("latin-1"), is_json=is_json)
    if found.method == "POST":
        body = await read_content(caller, bytes_max)
        if body:
            media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            values |= decode_parameters(body, is_json=media == JSON_TYPE)
    return Parameters(values)


async def read_content(caller: Caller, bytes_max: int) -> bytes:
    """Return a whole body, unpacked. Raises InvalidRequest, LimitExceeded."""
    return b"".join([piece async for piece in _pieces(caller, bytes_max)])


async def read_rows(caller: Caller, format: Format) -> list[dict[str, Any]]:
    """Return the rows in the body, decoded while they arrive. Raises InvalidRequest,
    LimitExceeded."""
    reader = format.row_reader()
    found: list[Any] = []
    value_count = size_bytes = 0
    async for piece in _pieces(caller, BODY_BYTES_MAX):
        size_bytes += len(piece)
        read = partial(_counted, reader.feed, piece)
        # A row that is not complete is decoded again with the next piece, so each step may take
        # long.
        rows, count = read() if size_bytes <= BYTES_AT_ONCE else await asyncio.to_thread(read)
        value_count += count
        check_values(value_count)
        found += rows
    rest, count = _counted(reader.finish)
    check_values(value_count + count)
    return found + rest


def _counted(read: Callable[..., list[Any]], *piece: bytes) -> tuple[list[Any], int]:
    """Return rows, and how many values are in them."""
    rows = read(*piece)
    return rows, count_values(rows)


async def _pieces(caller: Caller, bytes_max: int) -> AsyncIterator[bytes]:
    size_bytes = 0
    async with aclosing(caller.pieces()) as pieces:
        async for piece in pieces:
            size_bytes += len(piece)
            check_size(size_bytes, bytes_max)
            yield piece
