"""A copy of a table in this process, which follows the table by its change feed. Pure.

Owns: the rows of the copy, and how they come from one timestamp to a later one. A refresh takes the
keys of all changes in between from the feed. Then it reads these rows at the later timestamp. So
deletions, writes of some columns and changes of aggregates need no care of their own.

Invariants:
- The copy is what a read of the table at its timestamp returned, or would have returned.
- A refresh that fails changes nothing. One that is interrupted has happened, or has not.
- The timestamp of a copy never falls, also if several refreshes of it are under way.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

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
from dodona_wire.errors import (
    InvalidRequest,
    LimitExceeded,
    MetadataChanged,
    SchemaViolation,
    SnapshotTooOld,
)
from dodona_wire.messages.data import ScanPage
from dodona_wire.types import KEY_MAX, KEY_MIN, Key, Timestamp

ROWS_MAX: Final = 1_000_000
"""How many rows a copy has at most, by default."""
ROWS_LIMIT: Final = 100_000_000
CHANGED_ROWS_MAX: Final = 100_000
"""If more rows than this have changed, a refresh reads all rows."""
VERSIONS_MAX: Final = 1_000_000
"""If the feed has more versions than this, a refresh reads all rows."""
AGE_MS_MAX: Final = 86_400_000

Values = tuple[Any, ...]


Bound = Sequence[Any] | None


class _Changes(NamedTuple):
    """What a refresh has found. To take it twice is to take it once."""

    there: dict[Key, Values]
    gone: list[Key]
    timestamp: Timestamp
    asked_us: int


class _Snapshot:
    """The rows of the copy at one timestamp."""

    __slots__ = (
        "asked_us",
        "bounds",
        "changes",
        "keys",
        "route",
        "rows",
        "timestamp",
        "whole",
    )

    def __init__(
        self,
        route: TableRoute,
        bounds: tuple[Key, Key],
        rows: dict[Key, Values],
        timestamp: Timestamp,
        asked_us: int,
    ) -> None:
        self.route = route
        self.bounds = bounds
        self.rows = rows
        """The stored values of all columns."""
        self.timestamp = timestamp
        self.asked_us = asked_us
        """When the timestamp was asked for: the copy has all commits from before."""
        self.whole = Projection(route.schema, None)
        self.keys: list[Key] | None = None
        """All keys in order. None: some have come or gone."""
        self.changes: _Changes | None = None
        """What is to be taken before the next look: a signal may have interrupted that."""

    def settle(self) -> None:
        """Take the changes, if there are any."""
        changes = self.changes
        if changes is None:
            return
        self.keys = None
        self.rows.update(changes.there)
        for key in changes.gone:
            self.rows.pop(key, None)
        self.timestamp, self.asked_us = changes.timestamp, changes.asked_us
        self.changes = None


class LocalRows:
    """The rows of a table, or of a range of its keys, at one timestamp."""

    def __init__(
        self, context: Context, path: str, ends: tuple[Bound, Bound], rows_max: int
    ) -> None:
        """Make a copy, which has no rows before its first `reload`. `ends` are as in `select`."""
        check_number(rows_max, "rows_max", 1, ROWS_LIMIT)
        self.path = path
        self._context = context
        self._ends = _own(ends[0]), _own(ends[1])
        self._rows_max = rows_max
        self._state: _Snapshot | None = None

    @property
    def _now(self) -> _Snapshot:
        assert self._state is not None, "a copy is read before anybody has it"
        self._state.settle()
        return self._state

    @property
    def timestamp(self) -> Timestamp:
        """The timestamp of the snapshot."""
        return self._now.timestamp

    def __len__(self) -> int:
        return len(self._now.rows)

    @property
    def age_ms(self) -> int:
        """For how long the copy may lack commits."""
        return (self._context.instant_us() - self._now.asked_us) // 1000

    # ---- from one timestamp to a later one

    def reload(self) -> Protocol[Timestamp]:
        """Read all rows at a fresh timestamp. Raises LimitExceeded, and the errors of a scan."""
        asked_us = self._context.instant_us()
        at = yield from self._context.generate_timestamp()
        read = partial(self._read_all, at, asked_us)
        state = yield from unless_stale(self._context, self.path, read)
        if self._state is None or at > self.timestamp:
            self._state = state
        return self.timestamp

    def refresh(self, max_age_ms: int) -> Protocol[Timestamp]:
        """Take all changes up to a fresh timestamp, unless the copy is young enough. Return its
        timestamp. Raises the errors of `reload`."""
        check_number(max_age_ms, "max_age_ms", 0, AGE_MS_MAX)
        if max_age_ms and self.age_ms <= max_age_ms:
            return self.timestamp
        state, asked_us = self._now, self._context.instant_us()
        at = yield from self._context.generate_timestamp()
        try:
            _check(state, (yield from self._context.route(self.path)))
            keys = yield from self._changed_keys(state, at)
            if keys is None:
                return (yield from self.reload())
            look = partial(self._look_up_now, state, keys, at)
            found = yield from unless_stale(self._context, self.path, look)
        except (MetadataChanged, SchemaViolation, SnapshotTooOld):
            # The table was altered or replaced, or the copy was not refreshed for long.
            return (yield from self.reload())
        if state is not self._state and at > self.timestamp:  # all rows were read meanwhile
            return (yield from self.refresh(0))
        if at > self.timestamp:  # else another refresh has come further
            state.changes = self._changes(state, dict(zip(keys, found, strict=True)), at, asked_us)
            state.settle()
        return self.timestamp

    def _read_all(self, at: Timestamp, asked_us: int) -> Protocol[_Snapshot]:
        route = yield from self._context.route(self.path)
        bounds, count = range_of(route.schema, *self._ends), 0

        def made(page: ScanPage) -> list[tuple[Key, Values]]:
            nonlocal count
            count += len(page.keys)
            self._check_count(count)
            return [*zip(page.keys, page.rows, strict=True)]

        pages, projection = ScanPages(ScanPage, made), Projection(route.schema, None)
        parts = yield from scan(self._context, route, [bounds], projection, ReadAt(at), pages)
        rows = {key: values for part in parts for key, values in part}
        return _Snapshot(route, bounds, rows, at, asked_us)

    def _changed_keys(self, state: _Snapshot, at: Timestamp) -> Protocol[list[Key] | None]:
        """Return the keys of all changes since the copy was made, each once, or None if they are
        too many."""
        from dodona_wire.rows.arrow_keys import encode_keys as encoded_keys
        from dodona_wire.rows.logical_arrow import stored_table

        schema, version_count = state.route.schema, 0
        names = [*schema.key_names]
        pages = ChangePages(self._context, self.path, state.timestamp, at, self._ends, names)
        keys: dict[Key, None] = {}
        while not pages.is_over:
            page = yield from pages.next()
            stored = stored_table(schema.key_columns, page.select(names))
            keys.update(dict.fromkeys(encoded_keys(schema, stored).to_pylist()))
            version_count += page.num_rows
            if len(keys) > CHANGED_ROWS_MAX or version_count > VERSIONS_MAX:
                return None
        return [*keys]

    def _look_up_now(
        self, state: _Snapshot, keys: list[Key], at: Timestamp
    ) -> Protocol[list[Values | None]]:
        route = yield from self._context.route(self.path)
        _check(state, route)
        question = LookupQuestion(state.whole.wire_mask, ReadAt(at))
        return (yield from look_up(self._context, route, keys, question))

    def _changes(
        self, state: _Snapshot, found: Mapping[Key, Values | None], at: Timestamp, asked_us: int
    ) -> _Changes:
        there = {key: values for key, values in found.items() if values is not None}
        gone = [key for key, values in found.items() if values is None and key in state.rows]
        new_count = len(there.keys() - state.rows.keys())
        self._check_count(len(state.rows) + new_count - len(gone))
        return _Changes(there, gone, at, asked_us)

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
        state = self._now
        encoded = _encoded(state.route, keys)
        if state.bounds != (KEY_MIN, KEY_MAX):
            self._check_bounds(state, encoded)
        found = [*map(state.rows.get, encoded)]
        projection = state.whole
        if columns is not None:
            projection = Projection(state.route.schema, repeatable_names(columns))
            found = [*map(projection.narrowed, found)]
        rows = projection.dicts(encoded, found)
        return rows if keep_missing else [row for row in rows if row is not None]

    def _check_bounds(self, state: _Snapshot, keys: Iterable[Key]) -> None:
        lower, upper = state.bounds
        for index, key in enumerate(keys):
            if not lower <= key < upper:
                raise self._outside(row_index=index)

    def select(self, lower: Bound, upper: Bound, columns: Sequence[str] | None) -> Rows:
        """Return the rows with lower ≤ key < upper, in key order. Raises InvalidRequest,
        SchemaViolation."""
        state = self._now
        first, end = range_of(state.route.schema, lower, upper)
        least, most = state.bounds
        if (lower is not None and not least <= first <= most) or (
            upper is not None and not least <= end <= most
        ):
            raise self._outside()
        projection = Projection(state.route.schema, repeatable_names(columns))
        if state.keys is None:
            state.keys = sorted(state.rows)
        chosen = state.keys[bisect_left(state.keys, first) : bisect_left(state.keys, end)]
        row_of, narrowed = projection.quick_row(), projection.narrowed
        rows = [row_of(key, narrowed(state.rows[key]) or ()) for key in chosen]
        return Rows(projection.columns, rows)

    def _outside(self, **attributes: Any) -> InvalidRequest:
        lower, upper = self._ends
        return InvalidRequest(
            "This is outside of the range of keys that was copied.",
            table=self.path,
            range=[lower, upper],
            **attributes,
        )


def _own(end: Bound) -> Bound:
    """Return a copy of an end, which its caller may change. The first read checks it."""
    return [*end] if isinstance(end, list) else end


def _check(state: _Snapshot, route: TableRoute) -> None:
    """Raise MetadataChanged if the table was altered or replaced since it was copied."""
    error = error_of_change(state.route, route, "this copy")
    if error is not None:
        raise error


def _encoded(route: TableRoute, keys: Iterable[Mapping[str, Any]]) -> list[Key]:
    """Encode keys, plain ones quickly."""
    if type(keys) is list:
        encoded = [*map(route.schema.code.key_of, keys)]
        if None not in encoded and len(encoded) <= LOOKUP_KEYS_MAX:
            return cast("list[Key]", encoded)  # none of them is None
    return encode_keys(route, keys)
