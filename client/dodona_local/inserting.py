"""Write the rows of a file into a table, or delete rows of a table by the keys in a file.

Owns: the transactions in which that happens. Owns also how errors name the place in the file, and
the rows that were written by then.

- `WHOLE`, for tables with atomicity: all rows at one commit timestamp, or none. Rows that fit into
  one transaction are one transaction. More rows are a bulk load.
- `LOAD`: a bulk load, even for few rows.
- `BATCHES`: a transaction for each so many rows, one after the other. Rows that were committed
  before an error stay.

Tables without atomicity have batches only.
"""

import enum
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType
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
"""The mode of a bulk load for each kind of change."""
OWNER: Final = "dodona"
BATCH_ROWS: Final = 10_000
"""The rows of one batch: few enough for a transaction, and enough to be fast."""
BULK_ROWS: Final = 1 << 20
"""The rows of one batch without transactions, where larger is faster. There are bounds in bytes
too."""


class How(enum.Enum):
    """The kind of transactions that write a file."""

    WHOLE = enum.auto()
    LOAD = enum.auto()
    BATCHES = enum.auto()


class Written(NamedTuple):
    """The result. `timestamp` is that of the last commit; None if there were no rows, or if each
    row has a separate timestamp."""

    row_count: int
    timestamp: Timestamp | None
    is_whole: bool


class Bringing(NamedTuple):
    """A file for a table: the change that its rows make, and the kind of transactions."""

    path: str
    file: Path
    form: FileFormat
    kind: BatchKind
    how: How
    rows_per_batch: int | None = None
    conditions: Mapping[str, Any] = MappingProxyType({})
    """Named arguments of `insert_rows` and `delete_rows`, for all rows. They need one
    transaction."""


def bring(db: Client, wanted: Bringing, progress: Progress) -> Written:
    """Write, update or delete all rows of a file. If a key comes twice, the last row counts, but in
    a bulk load that is an error.

    Raises InvalidRequest if the file can't be read. Raises SchemaViolation, whose attributes name
    the `row` (counted from 1 without a heading), the column, and for some formats the `line`.
    Raises the errors of transactions and bulk loads. `rows_written` is the number of rows that were
    committed by then.
    """
    table = db.get_table(wanted.path)
    if table.atomicity == "none" and wanted.conditions:
        raise InvalidRequest(
            "a table of atomicity none has no conditions: leave them out", table=wanted.path
        )
    if table.atomicity == "none" and wanted.how is How.LOAD:
        raise InvalidRequest(
            "a table of atomicity none can't take all rows or none: leave out --atomic",
            table=wanted.path,
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
    """The rows that were committed so far."""

    def __init__(self) -> None:
        self.row_count = 0
        self.timestamp: Timestamp | None = None

    def add(self, row_count: int, timestamp: Timestamp | None = None) -> None:
        self.row_count += row_count
        self.timestamp = timestamp or self.timestamp

    @contextmanager
    def told(self) -> Iterator[None]:
        """Add the state to errors."""
        try:
            yield
        except DodonaError as error:
            error.attributes.pop("row_count", None)  # it is that of the last call alone
            error.attributes["rows_written"] = self.row_count
            raise
        except KeyboardInterrupt as error:
            raise type(error)(f"interrupted, with {self.row_count:,} rows written") from error


def _watched(source: Source, progress: Progress) -> Iterator[FilePart]:
    """Yield the parts. A part is done when the next one is asked for."""
    for part, advanced in source.parts():
        yield part
        progress.advance(advanced)


def _batches(parts: Iterator[FilePart]) -> Iterator[Any]:
    for part in parts:
        yield from part.batches()


@contextmanager
def _counted_from_0() -> Iterator[None]:
    """Give errors that name a row by its index the number of the row in the file."""
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
        """Write all parts. Raises the errors of `bring`."""
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
        if wanted.conditions:
            raise LimitExceeded(
                "these are more rows than one transaction can have, and a bulk load has no "
                "conditions: write the file in parts"
            )
        if wanted.kind == "update" and wanted.how is not How.LOAD:
            raise LimitExceeded(
                "these are more rows than one transaction can have. Use a bulk load (--atomic), "
                "which updates existing rows, all or none. Or use batches (--batch-rows), which "
                "also create missing rows"
            )
        with self._db.loads.begin([wanted.path], mode=MODES[wanted.kind], owner=OWNER) as load:
            if wanted.kind == "update":  # each batch of an update may have other columns
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
        """Write the rows in one transaction, or, if they are too many, in several."""
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
        """Write the rows in one transaction. Conflicts and lost answers are retried, as far as that
        is safe."""
        if self._table.atomicity == "none":
            self._state.add(len(rows), self._plain(rows))
            return
        path, kind, conditions = self._wanted.path, self._wanted.kind, self._wanted.conditions

        def write(transaction: Transaction) -> Transaction:
            if kind == "delete":
                transaction.delete_rows(path, rows, **conditions)
            else:
                transaction.insert_rows(path, rows, update=kind == "update", **conditions)
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
