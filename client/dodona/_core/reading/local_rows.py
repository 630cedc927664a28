"""A copy of a table in this process, which follows the table by its change feed. Pure.

Owns: the rows of the copy, and how they come from one timestamp to a later one. A refresh takes the
keys of all changes in between from the feed. Then it reads these rows at the later timestamp. So
deletions, writes of some columns and changes of aggregates need no care of their own.

Invariants:
- The copy is what a read of the table at its timestamp returned, or would have returned.
- A refresh that fails changes nothing.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from dodona._core.protocol.altered import error_of_change
from dodona._core.protocol.arguments import check_number, repeatable_names
from dodona._core.protocol.attempts import unless_stale
from dodona._core.protocol.context import Context
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.changes import ChangePages
from dodona._core.reading.reading import (
    LOOKUP_KEYS_MAX,
    LookupQuestion,
    Projection,
    ReadAt,
    encode_keys,
    look_up,
    range_of,
    scan,
)
from dodona._core.reading.rows import Rows
from dodona._core.reading.scan_pages import ScanPages
from dodona_wire.errors import InvalidRequest, LimitExceeded, MetadataChanged, SnapshotTooOld
from dodona_wire.messages.data import ScanPage
from dodona_wire.types import KEY_MAX, KEY_MIN, Key, Timestamp

ROWS_MAX: Final = 1_000_000
"""How many rows a copy has at most, by default."""
ROWS_LIMIT: Final = 100_000_000
CHANGED_ROWS_MAX: Final = 100_000
"""If more rows than this have changed, a refresh reads all rows."""
AGE_MS_MAX: Final = 86_400_000

Values = tuple[Any, ...]


class LocalRows:
    """The rows of a table, or of a range of its keys, at one timestamp."""

    def __init__(
        self,
        context: Context,
        path: str,
        ends: tuple[Sequence[Any] | None, Sequence[Any] | None],
        rows_max: int,
    ) -> None:
        """Make a copy, which has no rows before its first `reload`. `ends` are as in `select`."""
        check_number(rows_max, "rows_max", 1, ROWS_LIMIT)
        self.path = path
        self.timestamp: Timestamp
        self._context = context
        self._ends = ends
        self._rows_max = rows_max
        self._asked_us = 0
        """When the timestamp was asked for: the copy has all commits from before."""
        self._route: TableRoute
        self._bounds: tuple[Key, Key]
        self._whole: Projection
        """All columns."""
        self._rows: dict[Key, Values] = {}
        """The stored values of all columns."""
        self._keys: list[Key] | None = None
        """All keys in order. None: some have come or gone."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def age_ms(self) -> int:
        """For how long the copy may lack commits."""
        return (self._context.instant_us() - self._asked_us) // 1000

    # ---- from one timestamp to a later one

    def reload(self) -> Protocol[Timestamp]:
        """Read all rows at a fresh timestamp. Raises LimitExceeded, and the errors of a scan."""
        asked_us = self._context.instant_us()
        at = yield from self._context.generate_timestamp()
        read = partial(self._read_all, at)
        self._route, self._bounds, self._rows = yield from unless_stale(
            self._context, self.path, read
        )
        self._whole = Projection(self._route.schema, None)
        self._keys, self.timestamp, self._asked_us = None, at, asked_us
        return at

    def refresh(self, max_age_ms: int) -> Protocol[Timestamp]:
        """Take all changes up to a fresh timestamp, unless the copy is young enough. Return its
        timestamp. Raises the errors of `reload`."""
        check_number(max_age_ms, "max_age_ms", 0, AGE_MS_MAX)
        if max_age_ms and self.age_ms <= max_age_ms:
            return self.timestamp
        asked_us = self._context.instant_us()
        at = yield from self._context.generate_timestamp()
        try:
            self._check((yield from self._context.route(self.path)))
            keys = yield from self._changed_keys(at)
            if keys is None:
                return (yield from self.reload())
            look = partial(self._look_up_now, keys, at)
            found = yield from unless_stale(self._context, self.path, look)
        except (MetadataChanged, SnapshotTooOld):  # altered, replaced, or long not refreshed
            return (yield from self.reload())
        self._take(keys, found)
        self.timestamp, self._asked_us = at, asked_us
        return at

    def _read_all(
        self, at: Timestamp
    ) -> Protocol[tuple[TableRoute, tuple[Key, Key], dict[Key, Values]]]:
        route = yield from self._context.route(self.path)
        bounds, count = range_of(route.schema, *self._ends), 0

        def made(page: ScanPage) -> list[tuple[Key, Values]]:
            nonlocal count
            count += len(page.keys)
            self._check_count(count)
            return [*zip(page.keys, page.rows, strict=True)]

        pages, projection = ScanPages(ScanPage, made), Projection(route.schema, None)
        parts = yield from scan(self._context, route, [bounds], projection, ReadAt(at), pages)
        return route, bounds, {key: values for part in parts for key, values in part}

    def _changed_keys(self, at: Timestamp) -> Protocol[list[Key] | None]:
        """Return the keys of all changes since the copy was made, each once, or None if they are
        too many."""
        from dodona_wire.rows.arrow_keys import encode_keys as encoded_keys
        from dodona_wire.rows.logical_arrow import stored_table

        schema = self._route.schema
        names = [*schema.key_names]
        pages = ChangePages(self._context, self.path, self.timestamp, at, self._ends, names)
        keys: dict[Key, None] = {}
        while not pages.is_over:
            page = yield from pages.next()
            stored = stored_table(schema.key_columns, page.select(names))
            keys.update(dict.fromkeys(encoded_keys(schema, stored).to_pylist()))
            if len(keys) > CHANGED_ROWS_MAX:
                return None
        return [*keys]

    def _look_up_now(self, keys: list[Key], at: Timestamp) -> Protocol[list[Values | None]]:
        route = yield from self._context.route(self.path)
        self._check(route)
        question = LookupQuestion(self._whole.wire_mask, ReadAt(at))
        return (yield from look_up(self._context, route, keys, question))

    def _check(self, route: TableRoute) -> None:
        """Raise MetadataChanged if the table was altered or replaced since it was copied."""
        error = error_of_change(self._route, route, "this copy")
        if error is not None:
            raise error

    def _take(self, keys: Sequence[Key], found: Sequence[Values | None]) -> None:
        rows = self._rows
        gone = [key for key, it in zip(keys, found, strict=True) if it is None and key in rows]
        there = {key: it for key, it in zip(keys, found, strict=True) if it is not None}
        new_count = len(there.keys() - rows.keys())
        self._check_count(len(rows) + new_count - len(gone))
        rows.update(there)
        for key in gone:
            del rows[key]
        if gone or new_count:
            self._keys = None

    def _check_count(self, count: int) -> None:
        if count > self._rows_max:
            raise LimitExceeded(
                f"The copy of the table would have more than {self._rows_max} rows. Copy a smaller "
                "range of keys, or pass a larger `rows_max`.",
                table=self.path,
                rows_max=self._rows_max,
            )

    # ---- reads, without any server

    def look_up(
        self,
        keys: Iterable[Mapping[str, Any]],
        columns: Sequence[str] | None,
        *,
        keep_missing: bool,
    ) -> list[dict[str, Any] | None]:
        """Return rows by key. Raises InvalidRequest, SchemaViolation, LimitExceeded."""
        encoded = self._encoded(keys)
        if self._bounds != (KEY_MIN, KEY_MAX):
            self._check_bounds(encoded)
        found = [*map(self._rows.get, encoded)]
        projection = self._whole
        if columns is not None:
            projection = Projection(self._route.schema, repeatable_names(columns))
            found = [*map(projection.narrowed, found)]
        rows = projection.dicts(encoded, found)
        return rows if keep_missing else [row for row in rows if row is not None]

    def _encoded(self, keys: Iterable[Mapping[str, Any]]) -> list[Key]:
        """Encode keys, plain ones quickly."""
        if type(keys) is list:
            encoded = [*map(self._route.schema.code.key_of, keys)]
            if None not in encoded and len(encoded) <= LOOKUP_KEYS_MAX:
                return cast("list[Key]", encoded)  # none of them is None
        return encode_keys(self._route, keys)

    def _check_bounds(self, keys: Iterable[Key]) -> None:
        lower, upper = self._bounds
        for index, key in enumerate(keys):
            if not lower <= key < upper:
                raise self._outside(row_index=index)

    def select(
        self,
        lower: Sequence[Any] | None,
        upper: Sequence[Any] | None,
        columns: Sequence[str] | None,
    ) -> Rows:
        """Return the rows with lower ≤ key < upper, in key order. Raises InvalidRequest,
        SchemaViolation."""
        first, end = range_of(self._route.schema, lower, upper)
        if (lower is not None and first < self._bounds[0]) or (
            upper is not None and end > self._bounds[1]
        ):
            raise self._outside()
        projection = Projection(self._route.schema, repeatable_names(columns))
        if self._keys is None:
            self._keys = sorted(self._rows)
        chosen = self._keys[bisect_left(self._keys, first) : bisect_left(self._keys, end)]
        row_of, narrowed = projection.quick_row(), projection.narrowed
        rows = [row_of(key, narrowed(self._rows[key]) or ()) for key in chosen]
        return Rows(projection.columns, rows)

    def _outside(self, **attributes: Any) -> InvalidRequest:
        lower, upper = self._ends
        return InvalidRequest(
            "This is outside of the range of keys that was copied.",
            table=self.path,
            range=[lower, upper],
            **attributes,
        )
