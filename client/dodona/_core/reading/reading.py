"""Read rows by key, and ranges in key order. Pure.

Owns: how a read is divided among tablets, its pages, and the form of its result. A read changes
nothing. So each part may be repeated, and the parts that were read stay read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from dodona._core.protocol.altered import altered_error
from dodona._core.protocol.arguments import check_columns, check_prefix
from dodona._core.protocol.attempts import may_read_again
from dodona._core.protocol.context import Context, error_of, expect
from dodona._core.protocol.fan_out import Job, fan_out
from dodona._core.protocol.routing import TableRoute, is_served
from dodona._core.protocol.steps import Calls, Protocol
from dodona._core.reading.own_writes import overlay_found, overlay_range
from dodona._core.reading.rows import Rows
from dodona._core.reading.scan_pages import Made, Page, ScanPages
from dodona._core.writing.buffer import TableBuffer
from dodona._core.writing.early_locks import LockedRows
from dodona._core.writing.reads import CallReads
from dodona._core.writing.transaction import check_schema
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import InvalidRequest, LimitExceeded, SchemaViolation
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import ArrowPage, Lookup, LookupReply, Scan, ScanArrow, ScanPage
from dodona_wire.messages.families import Reply
from dodona_wire.rows.row_code import no_row
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.values import own_copies
from dodona_wire.shown import shown
from dodona_wire.types import (
    ASYNC_LAST_COMMITTED,
    KEY_MAX,
    KEY_MIN,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Key,
    Timestamp,
    WireMask,
)

Bound = Sequence[Any] | None
Ranges = Sequence[tuple[Bound, Bound]]
"""Ranges of keys, each with a lower and an upper end. None means that there is no end."""
LOOKUP_KEYS_MAX: Final = 1_000_000

_HINT: Final = ". Pass a timestamp from the oracle or from timestamp_from_datetime."


def check_timestamp(timestamp: int) -> Timestamp:
    """Check a timestamp to read at. Raises InvalidRequest."""
    if type(timestamp) is int:
        is_special = timestamp in (SYNC_LAST_COMMITTED, ASYNC_LAST_COMMITTED)
        if is_special or MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            return Timestamp(timestamp)
    raise InvalidRequest(f"Invalid read timestamp {shown(timestamp)}{_HINT}")


def check_snapshot(timestamp: int) -> Timestamp:
    """Check the timestamp of all reads of a transaction. Raises InvalidRequest."""
    if type(timestamp) is int and MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        return Timestamp(timestamp)
    raise InvalidRequest(f"Invalid read timestamp {shown(timestamp)}{_HINT}")


def check_retention(retention_timestamp: int, timestamp: Timestamp) -> Timestamp:
    """Check the retention timestamp of a read at `timestamp`. Raises InvalidRequest."""
    if type(retention_timestamp) is int:
        is_none = retention_timestamp == NULL_TIMESTAMP
        if is_none or MIN_TIMESTAMP <= retention_timestamp <= MAX_TIMESTAMP:
            if retention_timestamp <= timestamp:
                return Timestamp(retention_timestamp)
            raise InvalidRequest(
                "The retention timestamp is above the timestamp of the read. Pass a lower one.",
                retention_timestamp=retention_timestamp,
                timestamp=timestamp,
            )
    raise InvalidRequest(f"Invalid retention timestamp {shown(retention_timestamp)}{_HINT}")


class ReadAt(NamedTuple):
    """What a read sees: the state at a timestamp, without versions older than `retention`. Some
    transactions also see, on top, what they have written to the table."""

    timestamp: Timestamp
    retention: Timestamp = NULL_TIMESTAMP
    own: TableBuffer | None = None
    known: LockedRows | None = None
    """Rows at the timestamp that the client has already."""
    reads: CallReads | None = None
    """Where to record what is read, before it is answered."""

    @property
    def moved(self) -> Callable[[TableRoute], None] | None:
        """What to call with a newer route by which the read goes on, if anything."""
        return None if self.reads is None else self.reads.follow

    def has(self, schema: TableSchema, keys: Iterable[Key]) -> bool:
        """Return whether the client has these rows, in this schema."""
        known = self.known
        is_known = known is not None and not self.retention and known.schema is schema
        return is_known and all(key in known.rows for key in keys)  # type: ignore[union-attr]


class Projection:
    """The columns that a reader wants, and how its rows are made of tuples of keys and values."""

    __slots__ = ("_key_places", "_loads", "columns", "mask", "names", "schema", "wire_mask")

    def __init__(self, schema: TableSchema, columns: Sequence[str] | None) -> None:
        """Choose columns, or all for None. Raises SchemaViolation if the schema lacks a name."""
        columns = check_columns(columns)
        key_names = schema.key_names
        places = [at for at, it in enumerate(key_names) if columns is None or it in columns]
        self.schema = schema
        self.mask = schema.column_mask(columns)
        self.wire_mask = schema.pack_mask(self.mask)
        self._key_places = places
        self._loads = schema.has_logical
        self.columns = (
            *(schema.key_columns[at] for at in places),
            *schema.columns_of(self.mask),
        )
        """The wanted columns in the order of the schema, not in the order of the request."""
        self.names = tuple([column.name for column in self.columns])

    def row(self, key: Key, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the wanted columns of one row, in the order of `names`, as users have them. Values
        of type any are still the stored objects: `Rows` copies them on each access."""
        if self._loads:
            values = self.schema.load_values(self.mask, values)
        if not self._key_places:
            return values
        decoded = self.schema.decode_key(key)
        if len(self._key_places) == len(decoded):
            return decoded + values
        return tuple([decoded[at] for at in self._key_places]) + values

    def narrowed(self, values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """Return the wanted ones of the stored values of all columns."""
        if values is None or self.mask == self.schema.full_mask:
            return values
        return tuple([it for bit, it in enumerate(values) if self.mask >> bit & 1])

    def quick_row(self) -> Callable[[Key, tuple[Any, ...]], tuple[Any, ...]]:
        """Return a function that does what `row` does, for many rows."""
        return self.schema.tuple_code(self._key_places, self.mask) or self.row

    def dicts(
        self, keys: Sequence[Key], found: Sequence[tuple[Any, ...] | None]
    ) -> list[dict[str, Any] | None]:
        """Return the wanted columns of rows by name, or None for a missing row. The caller may keep
        the dicts."""
        names, row = self.names, self._own_row if self.schema.has_any else self.row
        quick = self.schema.code.row_of if len(names) == len(self.schema.columns) else no_row
        return [
            None
            if values is None
            else quick(key, values) or dict(zip(names, row(key, values), strict=True))
            for key, values in zip(keys, found, strict=True)
        ]

    def table(self, stream: bytes) -> Any:
        """Return a page as a `pyarrow.Table` of the Arrow types that users see. A page has all key
        columns."""
        from dodona_wire.rows.arrow import table_of
        from dodona_wire.rows.logical_arrow import user_table

        found = table_of(stream)
        if not self._loads:
            return found
        schema = self.schema
        return user_table((*schema.key_columns, *schema.columns_of(self.mask)), found)

    def _own_row(self, key: Key, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.row(key, own_copies(values))


# ---- by key


def lookup(
    context: Context,
    path: str,
    keys: Iterable[Mapping[str, Any]],
    columns: Sequence[str] | None,
    at: ReadAt,
) -> Protocol[list[dict[str, Any] | None]]:
    """Return the rows of these keys, in their order, with None for a missing row."""
    route = yield from checked_route(context, path, at)
    encoded = encode_keys(route, keys)
    projection = Projection(route.schema, columns)
    if at.known is not None and at.has(route.schema, encoded):
        found = [projection.narrowed(at.known.rows[key]) for key in encoded]
    else:
        if at.reads is not None:
            at.reads.note_keys(route, encoded, projection.mask)
        question = LookupQuestion(projection.wire_mask, at)
        found = yield from look_up(context, route, encoded, question)
    if at.own is not None:
        overlay_found(at.own, projection.mask, encoded, found)
    return projection.dicts(encoded, found)


def lookup_on_fast_path(
    context: Context, path: str, keys: Iterable[Mapping[str, Any]], at: ReadAt
) -> Protocol[list[dict[str, Any] | None] | None]:
    """Look up rows on the fast path: all columns of plain keys in one tablet whose route is known.
    Nearly all lookups are of this kind.
    Return None if the lookup is of another kind, or if the route may have caused the failure.
    Nothing has changed then, and `lookup` can do it from the start."""
    route = context.routing.find(path)
    if route is None or type(keys) is not list:
        return None
    if context.injects_faults and context.fault_at(FaultPoint.LOOK_UP_THE_LONG_WAY):
        return None
    schema = route.schema
    encoded = [*map(schema.code.key_of, keys)]
    if not 0 < len(encoded) <= context.limits.keys_per_request_max or None in encoded:
        return None
    plain: list[Key] = encoded  # type: ignore[assignment]  # none of them is None
    tablet = route.tablet_of(min(plain))
    if not is_served(tablet, is_write=False) or tablet is not route.tablet_of(max(plain)):
        return None
    if at.reads is not None:
        at.reads.note_keys(route, plain, schema.full_mask)
    mask = schema.pack_mask(schema.full_mask)
    asked = tablet.tablet, tablet.revision, at.timestamp, tuple(plain), mask, at.retention
    (reply,) = yield Calls(((tablet.cell, Lookup(*asked)),))  # type: ignore[arg-type]  # is served
    if type(reply) is LookupReply and len(reply.rows) == len(plain):
        return Projection(schema, None).dicts(plain, reply.rows)
    if type(reply) is Failure and not may_read_again(reply):
        error = error_of(reply)
        if not isinstance(error, InvalidRequest):  # the schema may have changed
            raise error
    return None


def checked_route(context: Context, path: str, at: ReadAt) -> Protocol[TableRoute]:
    """Return the table's route. Raises TransactionAborted if the schema is no longer that of the
    own writes in `at`."""
    route = yield from context.route(path)
    if at.own is not None:
        check_schema(path, at.own, route.schema)
    return route


def encode_keys(route: TableRoute, keys: Iterable[Mapping[str, Any]]) -> list[Key]:
    """Encode keys from a user. Raises InvalidRequest, SchemaViolation, LimitExceeded."""
    if isinstance(keys, Mapping | str | bytes) or not isinstance(keys, Iterable):
        raise InvalidRequest(f"keys are given as a list of dicts, not as one {type(keys).__name__}")
    encoded: list[Key] = []
    try:
        key_of = route.schema.key_of
        for key in islice(keys, LOOKUP_KEYS_MAX + 1):
            if type(key) is not dict and not isinstance(key, Mapping):
                raise SchemaViolation(f"a key is a dict, not {type(key).__name__}")
            encoded.append(key_of(key))
    except SchemaViolation as error:
        error.attributes.update(table=route.path, row_index=len(encoded))
        raise
    if len(encoded) > LOOKUP_KEYS_MAX:
        raise LimitExceeded(
            f"One call looks up at most {LOOKUP_KEYS_MAX} keys. Split the keys among calls."
        )
    return encoded


class LookupQuestion(NamedTuple):
    """What a lookup asks for each key: its row at one timestamp."""

    mask: WireMask
    at: ReadAt


def look_up(
    context: Context, route: TableRoute, keys: list[Key], question: LookupQuestion
) -> Protocol[list[Any]]:
    """Return the answer for each key, in their order."""
    found: list[Any] = [None] * len(keys)
    limit = context.limits.keys_per_request_max
    job = _LookupJob(keys, range(len(keys)), question, found, limit)
    yield from fan_out(context, [(route, job)], moved=question.at.moved)
    return found


def places_by_tablet(
    route: TableRoute, keys: Sequence[Key], places: Iterable[int], count_max: int
) -> Iterator[tuple[Tablet, list[int]]]:
    """Yield the tablets of these keys, with the indexes of the keys, at most `count_max` at a
    time."""
    by_tablet: dict[int, tuple[Tablet, list[int]]] = {}
    for place in places:
        tablet = route.tablet_of(keys[place])
        by_tablet.setdefault(tablet.tablet, (tablet, []))[1].append(place)
    for tablet, its_places in by_tablet.values():
        for start in range(0, len(its_places), count_max):
            yield tablet, its_places[start : start + count_max]


class _LookupJob:
    """Some keys of a lookup, as indexes in the caller's list."""

    is_write: ClassVar[bool] = False
    __slots__ = ("_found", "_keys", "_limit", "_places", "_question")

    def __init__(
        self,
        keys: list[Key],
        places: Sequence[int],
        question: LookupQuestion,
        found: list[Any],
        limit: int,
    ) -> None:
        self._keys = keys
        self._places = places
        self._question = question
        self._found = found
        self._limit = limit

    def divide(self, route: TableRoute) -> list[tuple[Tablet, Job]]:
        parts = places_by_tablet(route, self._keys, self._places, self._limit)
        return [(tablet, self._part(places)) for tablet, places in parts]

    def _part(self, places: list[int]) -> "_LookupJob":
        return _LookupJob(self._keys, places, self._question, self._found, self._limit)

    def request(self, tablet: Tablet) -> Lookup:
        mask, at = self._question
        keys = tuple([self._keys[place] for place in self._places])
        return Lookup(tablet.tablet, tablet.revision, at.timestamp, keys, mask, at.retention)

    def accept(self, reply: Reply) -> None:
        rows = expect(reply, LookupReply).rows
        for place, row in zip(self._places, rows, strict=True):
            self._found[place] = row

    def refuse(self, failure: Failure) -> bool:
        return may_read_again(failure)


# ---- by range


def select(
    context: Context,
    path: str,
    lower: Sequence[Any] | None,
    upper: Sequence[Any] | None,
    columns: Sequence[str] | None,
    at: ReadAt,
) -> Protocol[Rows]:
    """Return the rows of lower ≤ key < upper, in key order."""
    route = yield from checked_route(context, path, at)
    projection = Projection(route.schema, columns)
    first, end = range_of(route.schema, lower, upper)
    row_of, own = projection.quick_row(), at.own

    def made(page: ScanPage) -> list[Any]:
        rows = zip(page.keys, page.rows, strict=True)
        if own is not None:
            return [*rows]
        return [row_of(key, values) for key, values in rows]

    pages = ScanPages(ScanPage, made)
    parts = yield from scan(context, route, [(first, end)], projection, at, pages)
    rows = [row for part in parts for row in part]
    if own is not None:
        overlaid = overlay_range(own, projection.mask, first, end, rows)
        rows = [row_of(key, values) for key, values in overlaid]
    return Rows(projection.columns, rows)


def read_arrow(
    context: Context, path: str, ranges: Ranges, columns: Sequence[str] | None, at: ReadAt
) -> Protocol[Any]:
    """Read these ranges of keys, and return a `pyarrow.Table` in key order. The ranges are apart,
    and in their order. The cells read them side by side. With own writes, they are read one after
    the other, and the table is made from rows."""
    from dodona_wire.rows.arrow import arrow_schema, concatenate

    if at.own is not None:
        found = []
        for lower, upper in ranges:
            found.append((yield from select(context, path, lower, upper, columns, at)).to_arrow())
        return concatenate(found)
    route = yield from context.route(path)
    projection = Projection(route.schema, columns)
    empty = arrow_schema(route.schema, projection.mask).empty_table()
    ends = [range_of(route.schema, lower, upper) for lower, upper in ranges]

    def made(page: ArrowPage) -> Any:
        return projection.table(page.batch) if page.row_count else None

    pages = ScanPages(ArrowPage, made)
    tables = yield from scan(context, route, ends, projection, at, pages)
    found = concatenate([empty, *[it for it in tables if it is not None]])
    return found.select(list(projection.names))


def range_of(
    schema: TableSchema, lower: Sequence[Any] | None, upper: Sequence[Any] | None
) -> tuple[Key, Key]:
    """Return the encoded ends of a range of keys. Raises InvalidRequest, SchemaViolation."""
    first = KEY_MIN if lower is None else schema.bound_of(check_prefix(lower, "lower"))
    end = KEY_MAX if upper is None else schema.bound_of(check_prefix(upper, "upper"))
    return first, end


def scan(
    context: Context,
    route: TableRoute,
    ends: Sequence[tuple[Key, Key]],
    projection: Projection,
    at: ReadAt,
    pages: ScanPages[Page, Made],
) -> Protocol[list[Made]]:
    """Return what `pages` makes of each page of ranges that are apart, in key order."""
    limit = context.limits.rows_per_page_max
    question = ScanQuestion(projection.wire_mask, at, limit, pages.kind)
    check_atomicity(route, None, at)
    if at.reads is not None:
        at.reads.note_ranges(route, ends, projection.mask)
    jobs = [(route, _ScanJob(question, first, end, pages)) for first, end in ends]
    yield from fan_out(context, jobs, meanwhile=pages.make_some, moved=at.moved)
    check_atomicity(route, context.routing.find(route.path), at)
    return pages.all_made()


def check_atomicity(route: TableRoute, by_now: TableRoute | None, at: ReadAt) -> None:
    """Check that a scan of the newest rows is not one of an atomic table: each page would be of
    another time. Raises MetadataChanged if the table has become atomic since `at` was chosen."""
    found = route if by_now is None else by_now
    if at.timestamp == SYNC_LAST_COMMITTED and "full" in (route.atomicity, found.atomicity):
        raise altered_error(route.path, route.schema.columns, found.schema.columns, "this read")


class ScanQuestion(NamedTuple):
    """What all parts of one scan have in common."""

    mask: WireMask
    at: ReadAt
    limit: int
    kind: type[Any]

    def request(self, tablet: Tablet, lower: Key, upper: Key) -> Scan | ScanArrow:
        """Return the request for this range of keys, which is inside the tablet."""
        return (Scan if self.kind is ScanPage else ScanArrow)(
            tablet.tablet,
            tablet.revision,
            self.at.timestamp,
            lower,
            upper,
            self.mask,
            self.limit,
            self.at.retention,
        )


class _ScanJob:
    """A range of keys that is still to be read. Each page is kept with the key at which it
    began."""

    is_write: ClassVar[bool] = False
    __slots__ = ("_lower", "_pages", "_question", "_upper")

    def __init__(
        self, question: ScanQuestion, lower: Key, upper: Key, pages: ScanPages[Any, Any]
    ) -> None:
        self._question = question
        self._lower = lower
        self._upper = upper
        self._pages = pages

    def divide(self, route: TableRoute) -> list[tuple[Tablet, Job]]:
        parts = route.parts_of(self._lower, self._upper)
        return [
            (tablet, _ScanJob(self._question, lower, upper, self._pages))
            for tablet, lower, upper in parts
        ]

    def request(self, tablet: Tablet) -> Scan | ScanArrow:
        return self._question.request(tablet, self._lower, self._upper)

    def accept(self, reply: Reply) -> "_ScanJob | None":
        page = expect(reply, self._question.kind)
        self._pages.add(self._lower, page)
        if page.resume is None:
            return None
        assert page.resume > self._lower, "a scan must move on"
        return _ScanJob(self._question, page.resume, self._upper, self._pages)

    def refuse(self, failure: Failure) -> bool:
        return may_read_again(failure)
