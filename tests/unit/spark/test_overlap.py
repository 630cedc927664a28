"""Writing while reading: the two threads of a task, without Spark and without a cluster."""

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyspark_dodona.overlap import ReadingFailed, overlapped

BATCH_BYTES = 800


def batches(count: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.record_batch({"n": pa.array([number] * 100, pa.int64())})


def numbers(taken: Iterator[pa.RecordBatch]) -> list[int]:
    return [batch.column("n")[0].as_py() for batch in taken]


def test_all_batches_arrive_in_order_and_the_result_comes_back() -> None:
    assert overlapped(batches(1000), numbers) == list(range(1000))
    assert overlapped(batches(0), numbers) == []


def test_a_second_thread_writes_while_the_first_thread_reads() -> None:
    reader = threading.get_ident()
    is_second_read = threading.Event()

    def read() -> Iterator[pa.RecordBatch]:
        for batch in batches(2):
            assert threading.get_ident() == reader
            yield batch
        is_second_read.set()

    def write(taken: Iterator[pa.RecordBatch]) -> int:
        next(taken)
        assert is_second_read.wait(60), "nothing is read while something is written"
        return threading.get_ident()

    assert overlapped(read(), write) != reader


@pytest.mark.parametrize("bytes_max", [1, BATCH_BYTES, 5 * BATCH_BYTES])
def test_no_more_is_read_ahead_than_fits(bytes_max: int) -> None:
    read_count = written_count = ahead_max = 0

    def read() -> Iterator[pa.RecordBatch]:
        nonlocal read_count, ahead_max
        for batch in batches(50):
            read_count += 1
            ahead_max = max(ahead_max, read_count - written_count)
            yield batch

    def write(taken: Iterator[pa.RecordBatch]) -> None:
        nonlocal written_count
        for _ in taken:
            written_count += 1

    overlapped(read(), write, bytes_max)
    assert written_count == 50
    # What waits, one that just was read, and one that is taken and not counted yet.
    assert ahead_max <= -(-bytes_max // BATCH_BYTES) + 2


def test_a_writer_that_fails_stops_the_reader() -> None:
    read = batches(1000)

    def write(taken: Iterator[pa.RecordBatch]) -> Any:
        next(taken)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        overlapped(read, write, BATCH_BYTES)
    assert next(read, None) is not None, "it read to the end"


def test_a_failed_reader_stops_the_writer_before_a_normal_end() -> None:
    ends: list[str] = []

    def read() -> Iterator[pa.RecordBatch]:
        yield from batches(3)
        raise OSError("the pipe broke")

    def write(taken: Iterator[pa.RecordBatch]) -> None:
        try:
            numbers(taken)
        except ReadingFailed:
            ends.append("cut short")
            raise
        ends.append("well")

    with pytest.raises(OSError, match="the pipe broke"):
        overlapped(read(), write)
    assert ends == ["cut short"]
