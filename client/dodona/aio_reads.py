"""Reads of rows in the asyncio API.

Owns: the public names and arguments of these calls, which `AsyncClient` has.
"""

# `python -m twins` makes reads.py of this module.

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dodona._core.reading.rows import Rows
from dodona._core.reading.versions import VersionedRow
from dodona._io.aio_running import async_answer
from dodona.aio_changes import AsyncChangeReader
from dodona_wire.types import NULL_TIMESTAMP, SYNC_LAST_COMMITTED, Timestamp

Row = Mapping[str, Any]


class AsyncReader(AsyncChangeReader):
    """The part of a client that reads rows."""

    async def lookup_rows(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the rows that have these keys, in the order of the keys.

        - `keys`: dicts with all key columns. None is null. At most 1,000,000 keys.
        - `columns`: the columns to return. The default is all columns.
        - `keep_missing`: return None in the place of a missing row. By default, the result leaves
          it out.
        - `timestamp`: read the rows as of this timestamp. By default, each row is its newest
          version. To read several rows from one snapshot, pass a timestamp, or read in a
          transaction.
        - `retention_timestamp`: ignore all writes and deletions before this timestamp. Those at
          this timestamp are visible. The default is 0, which ignores nothing.

        Each row is a dict of column names and values. Raises InvalidRequest, SchemaViolation,
        LimitExceeded (more than 1,000,000 keys), TableNotFound, TableNotMounted, SnapshotTooOld,
        RowBlocked, Unavailable. The other reads raise the same errors."""
        lookup = self._session.lookup_rows
        read = lookup(path, keys, columns, keep_missing, timestamp, retention_timestamp)
        return await self._run(read, timeout_ms)

    async def lookup_versions(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        since: Timestamp = NULL_TIMESTAMP,
        below: Timestamp | None = None,
        limit: int | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[VersionedRow]:
        """Return the history of each row: all its writes and deletions, newest first.

        The history ends at `timestamp`. It has the versions that the settings of the table keep.

        - `since`, `below`: return only versions with since < timestamp < below.
        - `limit`: return at most this many versions of each row. To get the next versions, pass the
          row's `more_below` as `below`.

        The other arguments and the errors are as in `lookup_rows`."""
        lookup = self._session.lookup_versions
        read = lookup(path, keys, columns, keep_missing, timestamp, since, below, limit)
        return await self._run(read, timeout_ms)

    async def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> Rows:
        """Return the rows with lower ≤ key < upper, in key order.

        - `lower`, `upper`: lists of leading key column values. None means no bound.
        - `timestamp`: read the snapshot at this timestamp. The default is a fresh snapshot. In a
          table with atomicity `"none"`, the default reads the newest rows, which are not one
          snapshot.

        The other arguments and the errors are as in `lookup_rows`."""
        select = self._session.select
        return await self._run(
            select(path, lower, upper, columns, timestamp, retention_timestamp), timeout_ms
        )

    async def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """Return the same rows as `select`, as a `pyarrow.Table`. Columns of type `any` contain
        MessagePack.

        The arguments and the errors are as in `select`. If a column has integers and nulls, the
        table's `to_pandas` converts the integers to floats. To keep integers, pass it a
        `types_mapper`, or use `select(...).to_pandas()`."""
        read = self._session.read_arrow
        return await self._run(
            read(path, lower, upper, columns, timestamp, retention_timestamp), timeout_ms
        )

    async def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """Run one SELECT in DuckDB's SQL, and return a `pyarrow.Table`. Name a table as `[//path]`.

        - `parameters`: the values that stand for `$name` in the SQL, as a mapping, or for `?` and
          `$1`, as a sequence. See below.
        - `timestamp`: read all tables at this timestamp. The default is a fresh timestamp. Then
          tables with atomicity `"none"` are read at their newest rows.
        - `retention_timestamp`: ignore versions that are older than this timestamp.

        The query reads only the columns that it needs. If it compares leading key columns with
        constants, it reads only that range of keys. In the SQL, these rules hold:

        - Columns of type `string` are BLOBs. Compare them with `encode('text')`, or with `'text'`
          if it is ASCII. `decode(column)` returns text.
        - Lists, structs and dicts are LIST, STRUCT and MAP: `tags[1]`, `at.day`, `stock['x']`.
        - Columns of type `any` are JSON text, as in REST and in files. `{"$base64": "/w=="}` stands
          for bytes, and `{"$double": "NaN"}` for a number such as NaN.
        - `farm_hash(a, b)` gives the value of a computed key column with this expression.
        - Names must differ in more than upper and lower case. If two names do not, the second one
          becomes `name_1`.
        - Times are in UTC, and dates are in the Gregorian calendar. The time zone of the process
          has no effect. `at time zone` converts to another zone.
        - Dates and times in the result are in the years 1 to 9999, and times of day end before
          24:00. Others, such as `infinity`, are refused. Cast them to text.

        Always pass values as `parameters`, and never write them into the SQL yourself. Then no
        value can change what the query does, and none needs quotes. A condition on a parameter
        bounds the range of keys as a constant does. These values are possible:

        - None, bool, int, float, str, bytes, date, datetime, time, timedelta, Decimal, UUID, and
          scalars of numpy, and lists and dicts of these values. For `column in $list`, pass a list.
        - A list is a LIST, and all of its items have one type. A dict whose keys are text is a
          STRUCT: `$order.price`. DuckDB compares it with columns of structs and of dicts. A dict
          whose keys are ints or bytes, or an empty dict, is a MAP: `$stock[5]`.
        - Fields of structs compare by name, and a missing field is null. The order of the items of
          lists counts, and so does the order of the entries of dicts. The page of types has
          examples ("Order in lists, structs and dicts").
        - All dicts in a list have the same fields. Lists and dicts are nested at most 16 deep. Such
          a list is a table in `from (select unnest($rows, recursive := true))`.
        - For a column of type `any`, pass the text of `dodona.json_of_any(value)`.
        - An int is from -2^63 to 2^64 - 1, and a Decimal has 38 digits at most.
        - A list of Decimals needs 38 digits at most, before and after the point together.
        - A time has an offset of whole seconds from 0 to 15:59:59, or none.
        - A datetime with a time zone is a moment, in UTC. A datetime without one is a TIMESTAMP,
          which DuckDB compares with moments as if it were in UTC.
        - Compare columns of type `string` with bytes. A str works as a literal does: it must be
          ASCII, and `\\xFF` in it is one byte. Lists for such columns must contain bytes.
        - Case does not count in names. All parameters have names, or none of them.

        To convert the result to a data frame and keep integers beside nulls, pass a `types_mapper`
        to `to_pandas`.

        A query can't use files, the network, extensions or variables. Raises InvalidRequest with
        DuckDB's message, for parameters that are not those of the query, or if the sql extra is not
        installed. Raises TableNotFound, and what
        `select` raises. Raises LimitExceeded above these limits: 1,048,576 characters of text,
        10,000,000 rows that it reads or returns, 1,024 MiB of memory, 1,000 parameters, 1 MiB of
        their values.

        With asyncio, DuckDB runs in a thread, and stops if the call is cancelled."""
        begin = self._session.prepare_query(sql, parameters, timestamp, retention_timestamp)
        return await async_answer(self._run, self._session, begin, None, self._bound_ms(timeout_ms))
