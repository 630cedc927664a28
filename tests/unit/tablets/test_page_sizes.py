"""Pages of rows that are not alike in length: each fits into an answer, and looks no further."""

from typing import Any

import pytest

from dodona.types import KEY_MAX, KEY_MIN, NULL_TIMESTAMP
from dodona_tablets.core.rows.chunks.block import Block
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.tablet import changes, scans
from dodona_wire.messages.data import ArrowPage, ScanArrow, ScanVersions
from unit.tablets.cells import ATOMIC, REVISION, Bench, key, put
from unit.tablets.test_changes import flush

ALL = KEY_MIN, KEY_MAX, 3, 10_000


def page(bench: Bench, request: Any) -> ArrowPage:
    route = bench.ask(request)
    bench.answer_oracle()
    reply = bench.answer(route)
    assert isinstance(reply, ArrowPage), reply
    return reply


def scan(bench: Bench) -> ScanArrow:
    return ScanArrow(ATOMIC, REVISION, bench.timestamp(), *ALL)


def feed(bench: Bench) -> ScanVersions:
    return ScanVersions(ATOMIC, REVISION, NULL_TIMESTAMP, bench.timestamp(), *ALL)


@pytest.mark.parametrize(("request_of", "is_flushed"), [(feed, False), (feed, True), (scan, True)])
def test_a_page_with_long_rows_before_short_rows_fits_into_an_answer(
    request_of: Any, is_flushed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is too long for a frame is refused, however often it is asked for."""
    monkeypatch.setattr(changes, "PAGE_BYTES_MAX", 24_000)
    monkeypatch.setattr(scans, "PAGE_BYTES_MAX", 24_000)
    bench = Bench()
    long, short = range(10), range(10, 2_000)
    bench.commit(*[put(it, it, "x" * 10_000) for it in long], *[put(it, it) for it in short])
    if is_flushed:
        flush(bench)
    answer = page(bench, request_of(bench))
    assert answer.row_count == 2
    assert answer.resume is not None
    assert key(1) < answer.resume <= key(2)


def test_a_page_of_changes_reads_few_more_rows_than_it_can_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dodona_tablets.core.rows.chunks.writing.BLOCK_ROWS_MAX", 5)
    monkeypatch.setattr(changes, "PAGE_BYTES_MAX", 20_000)
    bench = Bench()
    bench.commit(*[put(number, number, "x" * 1_000) for number in range(200)])
    flush(bench)
    opened: list[int] = []
    open_block = Chunk.block

    def block(chunk: Chunk, place: int) -> Block:
        opened.append(place)
        return open_block(chunk, place)

    monkeypatch.setattr(Chunk, "block", block)
    answer = page(bench, feed(bench))
    assert 15 <= answer.row_count <= 20
    assert len(opened) <= 8
