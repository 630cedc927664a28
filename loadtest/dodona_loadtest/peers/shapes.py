"""Common parts of several systems' loads: how many rows, which rows, and what must add up."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.payload import RowSource

READ_ROWS: Final = 100_000
"""Rows of the table that lookups read."""
HOT_ROWS: Final = 10
_BATCH_ROWS: Final = 5_000


def batches() -> Iterator[list[dict[str, Any]]]:
    """Return the rows that lookups read, in parts that fit one transaction."""
    rows = RowSource()
    for first in range(0, READ_ROWS, _BATCH_ROWS):
        keys = range(first, first + _BATCH_ROWS)
        yield [{"id": key, "payload": rows.next_value()} for key in keys]


def check_sum(counts: Sequence[int], done_count: int) -> None:
    """Raise ContenderFailed unless just the acknowledged increments are in the rows."""
    if sum(counts) != done_count:
        raise ContenderFailed(f"{done_count} increments were acknowledged, {sum(counts)} are there")
