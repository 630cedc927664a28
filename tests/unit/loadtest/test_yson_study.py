"""The YSON study's codecs do the same work, or are found out."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.peers.yson_codecs import CodecWorker, DodonaCodec, TextOrBinary
from dodona_loadtest.studies.yson import NATIVE, PYTHON


class Forgetful(DodonaCodec):
    """Loses the last row, both ways."""

    def encode(self, rows: list[object], format: TextOrBinary) -> bytes:
        return super().encode(rows[:-1], format)

    def decode(self, data: bytes) -> int:
        return super().decode(data) - 1


async def prepared(codec: CodecWorker) -> CodecWorker:
    await codec.open()
    await codec.prepare(100)
    return codec


async def call(codec: CodecWorker, story: Callable[[CodecWorker], Awaitable[object]]) -> None:
    await story(await prepared(codec))


@pytest.mark.parametrize("format", ["binary", "text"])
@pytest.mark.parametrize("codec", [DodonaCodec(), NATIVE, PYTHON])
def test_a_codec_reads_and_writes_the_rows(codec: CodecWorker, format: TextOrBinary) -> None:
    asyncio.run(call(codec, lambda it: it.read(format)))
    asyncio.run(call(codec, lambda it: it.write(format)))


@pytest.mark.parametrize("format", ["binary", "text"])
def test_a_codec_that_loses_rows_is_found_out(format: TextOrBinary) -> None:
    with pytest.raises(ContenderFailed, match="other rows"):
        asyncio.run(call(Forgetful(), lambda it: it.write(format)))
    with pytest.raises(ContenderFailed, match="read 99 rows of 100"):
        asyncio.run(call(Forgetful(), lambda it: it.read(format)))
