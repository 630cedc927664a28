"""The bounds of a session: of its retries, its transactions and its queries. Pure data."""

from typing import Final

import msgspec

RETRY_MS_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 64
BULK_WAIT_MS_MAX: Final = 45_000
"""Less than a client's stamp may be late: behind a hundred writers it is soon anybody's turn."""
ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 32 << 20
LIFE_MS_MAX: Final = 60_000


class TransactionLimits(msgspec.Struct, frozen=True):
    """What one transaction may hold, and for how long it may live."""

    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX
    life_ms_max: int = LIFE_MS_MAX


class QueryLimits(msgspec.Struct, frozen=True):
    """The bounds of one SQL query."""

    text_length_max: int = 1 << 20
    rows_max: int = 10_000_000
    """Of rows read from all tables together, and again of rows of the result."""
    memory_mib_max: int = 1_024
    """Of what is read from all tables together, of DuckDB's own work, and of the result."""
    threads_max: int = 2
    result_bytes_max: int | None = None
    """Of the result, if that is bounded more closely."""
    rows_per_batch: int = 100_000
    """The result is measured at this pace, while it is made."""


class SessionLimits(msgspec.Struct, frozen=True):
    """Every bound of a session. Durations in milliseconds."""

    retry_ms_max: int = RETRY_MS_MAX
    """How long one operation is tried again before its caller sees the error."""
    attempts_max: int = ATTEMPTS_MAX
    bulk_wait_ms_max: int = BULK_WAIT_MS_MAX
    """The same of bulk data that a busy cell has no room for."""
    transaction: TransactionLimits = TransactionLimits()
    keys_per_request_max: int = 10_000
    rows_per_page_max: int = 65_536
    """A tablet gives fewer where each costs it more."""
    requests_in_flight_max: int = 16
    query: QueryLimits = QueryLimits()
    outcomes_remembered_max: int = 10_000
