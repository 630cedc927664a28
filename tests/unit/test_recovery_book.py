"""The book of a server's starts: what it says of the one before, and that nothing depends on it."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dodona.types import CellId
from dodona_server import recovery_book
from dodona_server.recoveries_page import add_recoveries_page
from dodona_server.recovery_book import FILE_NAME, RecoveryBook
from dodona_server.statistics_page import add_statistics_page
from dodona_tablets.shell import recovery_notes
from dodona_tablets.shell.recovery_notes import RecoveryNotes
from dodona_wire.cores.recoveries import Recovery
from suite.waiting import until
from unit.tablets.cells import Bench, put


def start(folder: Path, record_count: int = 5) -> RecoveryBook:
    book = RecoveryBook.open(folder)
    book.begin(Recovery(1_000_000, 20, record_count=record_count))
    return book


def test_each_start_records_how_the_previous_run_ended(tmp_path: Path) -> None:
    start(tmp_path, record_count=0)
    start(tmp_path).amend(stopped_us=2_000_000)
    book = start(tmp_path)
    assert [it.after for it in book.recoveries] == ["nothing", "crash", "stop"]
    assert [it.stopped_us for it in book.recoveries] == [None, 2_000_000, None]
    assert RecoveryBook.open(tmp_path).recoveries == book.recoveries


def test_a_folder_of_before_there_was_a_book_is_not_called_new(tmp_path: Path) -> None:
    assert start(tmp_path).recoveries[0].after == "unknown"


def test_only_the_last_starts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_book, "KEPT_MAX", 3)
    for count in range(5):
        start(tmp_path, record_count=count)
    assert [it.record_count for it in RecoveryBook.open(tmp_path).recoveries] == [2, 3, 4]


@pytest.mark.parametrize("content", [b"", b"{", b'{"recoveries": 7}', b"\xff", b"x" * 100])
def test_a_damaged_book_is_replaced_with_a_warning(
    tmp_path: Path,
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(recovery_book, "BYTES_MAX", 99)
    (tmp_path / FILE_NAME).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        book = RecoveryBook.open(tmp_path)
    assert book.recoveries == ()
    assert "so a new one begins" in caplog.text


def test_a_book_that_cannot_be_written_logs_a_warning_and_raises_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    book = RecoveryBook.open(tmp_path / "gone")
    with caplog.at_level(logging.WARNING):
        book.begin(Recovery(1, 1))
    assert "can't be written" in caplog.text
    assert len(book.recoveries) == 1


async def get(pages: FastAPI, path: str) -> Any:
    transport = httpx.ASGITransport(pages)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
        response = await http.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    return response.json()


@pytest.mark.anyio
async def test_the_pages_show_the_recoveries_and_the_statistics(tmp_path: Path) -> None:
    pages = FastAPI()
    add_recoveries_page(pages, start(tmp_path))
    add_statistics_page(pages, lambda: {"proxy": {"batch_count": 3}})
    (found,) = (await get(pages, "/v1/recoveries"))["recoveries"]
    assert (found["began_us"], found["replay_ms"], found["after"]) == (1_000_000, 20, "unknown")
    assert await get(pages, "/v1/statistics") == {"proxy": {"batch_count": 3}}


@pytest.mark.anyio
async def test_the_book_records_the_outcomes_of_recovered_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_notes, "LOOK_S", 0.001)
    bench = Bench(2)
    bench.prepare(bench.begin(), put(1, 1), cell=1)
    bench.answer_oracle()
    bench.start(CellId(1))
    book = start(tmp_path)
    notes = RecoveryNotes(book, bench.nodes[CellId(1)].recovered)
    notes.start()
    for _ in range(5):
        bench.pass_time(1)
        bench.settle()
        await asyncio.sleep(0)
    bench.pass_time(0.1)

    def is_over() -> bool:
        noted = RecoveryBook.open(tmp_path).recoveries[-1].transactions
        return bool(noted) and noted[0].outcome is not None

    await until(is_over)
    found = RecoveryBook.open(tmp_path).recoveries[-1]
    assert found.served_after_ms is not None
    assert (found.transaction_count, found.transactions[0].outcome) == (1, "aborted")
    await notes.close()
    assert RecoveryBook.open(tmp_path).recoveries[-1].stopped_us is not None
