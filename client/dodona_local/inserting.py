"""Rows of a file, brought into a table or taken out of it by their keys.

Owns: in which transactions that happens, and how errors say where in the file they are and what
had been written by then.

- `Whole`, for tables with atomicity: all of it at one commit timestamp or nothing. What fits into
  one transaction is one; what is longer is a bulk load.
- `Load`: a bulk load, however short it is.
- `Batches`: a transaction for every so many rows, one after the other; what was committed before
  an error stays.

Tables without atomicity know batches only.
"""

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from dodona._core.catalog.tables import TableInfo
from dodona.client import Client, Transaction
from dodona_local.files.formats import FileFormat
from dodona_local.files.parts import FilePart, Row, Want, placed
from dodona_local.files.reading import Source, open_source
from dodona_local.progress import Progress
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError, InvalidRequest, LimitExceeded
from dodona_wire.types import BatchKind, LoadMode, Timestamp

MODES: Final[dict[BatchKind, LoadMode]] = {
    "write": "upsert",
    "update": "update",
    "delete": "delete",
}
"""What a bulk load is to do with rows."""
OWNER: Final = "dodona"
BATCH_ROWS: Final = 10_000
"""Few enough for a transaction, enough to be quick."""
BULK_ROWS: Final = 1 << 20
"""Without transactions the more the better; there are bounds of bytes, too."""


class How(enum.Enum):
    """In which transactions."""

    WHOLE = enum.auto()
    LOAD = enum.auto()
    BATCHES = enum.auto()


class Written(NamedTuple):
    """What came of it. `timestamp` is that of the last commit; None for no rows, and where rows
    have timestamps of their own."""

    row_count: int
    timestamp: Timestamp | None
    is_whole: bool


class Bringing(NamedTuple):
    """A file for a table: what its rows do there, and how."""

    path: str
    file: Path
    form: FileFormat
    kind: BatchKind
    how: How
    rows_per_batch: int | None = None


def bring(db: Client, wanted: Bringing, progress: Progress) -> Written:
    """Write, update or delete all rows of a file. If a key comes twice the last row counts, but in
    a bulk load it is an error.

    Raises InvalidRequest if the file can't be read, SchemaViolation (its attributes say which
    `row`, counted from 1 without a heading, perhaps `line`, and which column), and whatever
    transactions and bulk loads do; `rows_written` is what had been committed by then.
    """
    table = db.get_table(wanted.path)
    if table.atomicity == "none" and wanted.how is How.LOAD:
        raise InvalidRequest(
            "a table of atomicity none takes rows as they come, never as a whole", table=wanted.path
        )
    rows_per_part = wanted.rows_per_batch or (
        BATCH_ROWS if table.atomicity == "full" else BULK_ROWS
    )
    want = Want(wanted.path, table.schema, wanted.kind, rows_per_part)
    state = _State()
    with state.told(), open_source(wanted.file, wanted.form, want) as source:
        progress.begin(_STEPS[wanted.kind], source.total, source.unit)
        writer = _Writer(db, wanted, table, state)
        return writer.write(_watched(source, progress))


_STEPS: Final[dict[BatchKind, str]] = {
    "write": "inserting",
    "update": "updating",
    "delete": "deleting",
}


class _State:
    """What has been committed so far."""

    def __init__(self) -> None:
        self.row_count = 0
        self.timestamp: Timestamp | None = None

    def add(self, row_count: int, timestamp: Timestamp | None = None) -> None:
        self.row_count += row_count
        self.timestamp = timestamp or self.timestamp

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors tell it."""
        try:
            yield
        except DodonaError as error:
            error.attributes.pop("row_count", None)  # of the last call alone
            error.attributes["rows_written"] = self.row_count
            raise
        except KeyboardInterrupt as error:
            raise type(error)(f"interrupted, with {self.row_count:,} rows written") from error


def _watched(source: Source, progress: Progress) -> Iterator[FilePart]:
    """A part is done when the next one is asked for."""
    for part, advanced in source.parts():
        yield part
        progress.advance(advanced)


def _batches(parts: Iterator[FilePart]) -> Iterator[Any]:
    for part in parts:
        yield from part.batches()


@contextmanager
def _counted_from_0() -> Iterator[None]:
    """Errors that name a row by its index among all have its number in the file."""
    try:
        yield
    except DodonaError as error:
        index = error.attributes.pop("row_index", None)
        if isinstance(index, int):
            error.attributes["row"] = index + 1
        raise


class _Writer:
    def __init__(self, db: Client, wanted: Bringing, table: TableInfo, state: _State) -> None:
        self._db = db
        self._wanted = wanted
        self._table = table
        self._state = state

    def write(self, parts: Iterator[FilePart]) -> Written:
        """Raises as `bring`."""
        if self._table.atomicity == "none" or self._wanted.how is How.BATCHES:
            for part in parts:
                self._batch(part)
            return self._written(is_whole=False)
        if self._wanted.how is How.WHOLE:
            first, second = next(parts, None), next(parts, None)
            if second is None:
                return self._whole(first)
            parts = chain([part for part in (first, second) if part is not None], parts)
        return self._load(parts)

    def _written(self, *, is_whole: bool) -> Written:
        return Written(self._state.row_count, self._state.timestamp, is_whole)

    # ---- as a whole

    def _whole(self, part: FilePart | None) -> Written:
        if part is not None:
            try:
                with placed(part):
                    self._transaction(part.rows())
            except LimitExceeded:
                return self._load(iter([part]))
        return self._written(is_whole=True)

    def _load(self, parts: Iterator[FilePart]) -> Written:
        wanted = self._wanted
        if wanted.kind == "update" and wanted.how is not How.LOAD:
            raise LimitExceeded(
                "these are more rows than one transaction takes. A bulk load (--atomic) updates "
                "rows that are there, all or none; batches (--batch-rows) make those that are not"
            )
        with self._db.loads.begin([wanted.path], mode=MODES[wanted.kind], owner=OWNER) as load:
            if wanted.kind == "update":  # of which each batch may have other columns
                for part in parts:
                    with placed(part):
                        for batch in part.batches():
                            load.write(wanted.path, batch)
            else:
                with _counted_from_0():
                    load.write(wanted.path, _batches(parts))
            published = load.publish()
        self._state.add(published.row_count, published.timestamp)
        return self._written(is_whole=True)

    # ---- in batches

    def _batch(self, part: FilePart) -> None:
        with placed(part):
            if self._table.atomicity == "none" and self._wanted.kind == "write":
                self._bulk(part)
            else:
                self._halves(part.rows())

    def _bulk(self, part: FilePart) -> None:
        try:
            self._state.add(self._db.write_arrow(self._wanted.path, part.batches()))
        except DodonaError as error:
            self._state.add(error.attributes.pop("row_count", 0))
            raise

    def _halves(self, rows: list[Row], first: int = 0) -> None:
        """In one transaction, or in several where one is too small for them."""
        try:
            self._transaction(rows)
        except LimitExceeded:
            if len(rows) < 2:
                raise
            middle = len(rows) // 2
            self._halves(rows[:middle], first)
            self._halves(rows[middle:], first + middle)
        except DodonaError as error:
            if first and isinstance(index := error.attributes.get("row_index"), int):
                error.attributes["row_index"] = first + index
            raise

    def _transaction(self, rows: list[Row]) -> None:
        """Conflicts and lost answers are dealt with, as far as that goes without a person."""
        if self._table.atomicity == "none":
            self._state.add(len(rows), self._plain(rows))
            return
        path, kind = self._wanted.path, self._wanted.kind

        def write(transaction: Transaction) -> Transaction:
            if kind == "delete":
                transaction.delete_rows(path, rows)
            else:
                transaction.insert_rows(path, rows, update=kind == "update")
            return transaction

        try:
            done = self._db.run_in_transaction(write)
        except CommitOutcomeUnknown as error:
            error.attributes["rows_unknown"] = len(rows)
            raise
        self._state.add(len(rows), done.commit_timestamp)

    def _plain(self, rows: list[Row]) -> Timestamp | None:
        path, kind = self._wanted.path, self._wanted.kind
        if kind == "delete":
            return self._db.delete_rows(path, rows)
        return self._db.insert_rows(path, rows, update=kind == "update")
