"""The limits of a session: of its retries, its transactions and its queries. Pure data."""

from typing import Final

import msgspec

RETRY_MS_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 64
BULK_WAIT_MS_MAX: Final = 45_000
"""It is shorter than the delay that a cell accepts for a client's timestamp. Even behind a hundred
writers, a writer usually gets its turn within this time."""
ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 32 << 20
LIFE_MS_MAX: Final = 60_000


class TransactionLimits(msgspec.Struct, frozen=True):
    """What one transaction may hold, and how long it may live."""

    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX
    life_ms_max: int = LIFE_MS_MAX


class QueryLimits(msgspec.Struct, frozen=True):
    """The limits of one SQL query."""

    text_length_max: int = 1 << 20
    rows_max: int = 10_000_000
    """The limit for rows read from all tables together, and again for the rows of the result."""
    memory_mib_max: int = 1_024
    """The limit for data read from all tables together, for the work of DuckDB, and for the
    result."""
    threads_max: int = 2
    result_bytes_max: int | None = None
    """The most bytes of the result, if that is less than the limits above allow, or None."""
    rows_per_batch: int = 100_000
    """How many rows of the result are made before its size is measured again."""
    parameters_max: int = 1_000
    parameter_bytes_max: int = 1 << 20
    """The most bytes of the values of all parameters together. A text counts as UTF-8, and a value
    of any other type but bytes as 8 bytes."""


class SessionLimits(msgspec.Struct, frozen=True):
    """All limits of a session. Durations are in milliseconds."""

    retry_ms_max: int = RETRY_MS_MAX
    """How long an operation is retried before its caller gets the error."""
    attempts_max: int = ATTEMPTS_MAX
    bulk_wait_ms_max: int = BULK_WAIT_MS_MAX
    """How long bulk data is retried while a cell has no room for it."""
    transaction: TransactionLimits = TransactionLimits()
    keys_per_request_max: int = 10_000
    rows_per_page_max: int = 65_536
    """The most rows in a page. A tablet sends fewer if each row costs it more."""
    requests_in_flight_max: int = 16
    query: QueryLimits = QueryLimits()
    outcomes_remembered_max: int = 10_000
