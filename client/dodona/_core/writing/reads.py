"""What a serializable transaction has read, in the client that holds it. Pure.

Owns: which reads are recorded, in which form, and how many. The isolation is chosen for each table
that is read. The rules are in `docs/explanation/commit-protocol.md#serializable`.

Invariants:
- A read is recorded before the program has its answer.
- What was recorded stays covered: ranges only become wider. Lock groups are only added.
- A read that a cell answers by a newer route is recorded by that route's isolation, too.
- A transaction has at most `READS_MAX` keys and ranges, or one for each table if that is more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, get_args

from dodona._core.protocol.routing import TableRoute
from dodona._core.writing.buffer import ORDINARY, TableBuffer
from dodona_wire.errors import InvalidRequest, TransactionAborted
from dodona_wire.rows.columns import MAIN_LOCK_MASK
from dodona_wire.rows.keys import successor
from dodona_wire.rows.schema import TableSchema
from dodona_wire.shown import shown
from dodona_wire.types import Isolation, Key

READS_MAX: Final = 1_000
READS_KEPT: Final = 500
"""How many are left when there were too many. It is lower, so that this is rare."""
_GAP_BYTES: Final = 12


def check_isolation(isolation: object) -> None:
    """Check an isolation that a caller gives. None is not given. Raises InvalidRequest."""
    if isolation is not None and isolation not in get_args(Isolation):
        text = f'isolation is "snapshot" or "serializable", not {shown(isolation)}'
        raise InvalidRequest(text)


class ReadKeys(NamedTuple):
    """Keys from `lower` up to `upper`, which is not one of them, read in these lock groups."""

    lower: Key
    upper: Key
    lock_mask: int


class TableReads:
    """What a transaction has read of one table."""

    __slots__ = ("_table", "is_altered", "is_required", "keys", "only_call", "ranges", "schema")

    def __init__(self, route: TableRoute, call: "CallReads", *, is_required: bool) -> None:
        self.schema = route.schema
        self.is_required = is_required
        """Whether the first attempt to commit is validated. Otherwise only a new attempt is."""
        self._table = route.table
        self.keys: dict[Key, int] = {}
        """The lock groups of single keys."""
        self.ranges: dict[tuple[Key, Key], int] = {}
        """The lock groups of ranges."""
        self.only_call: CallReads | None = call
        """The call that has made all of these reads, if it was one."""
        self.is_altered = False
        """Whether the table changed between two of these reads."""

    @property
    def count(self) -> int:
        return len(self.keys) + len(self.ranges)

    def is_of(self, route: TableRoute) -> bool:
        """Return whether the route is of the table that was read, with the same schema."""
        is_same = route.schema is self.schema or route.schema == self.schema
        return is_same and not route.is_another(self._table)

    def check(self, route: TableRoute) -> None:
        """Check at the commit that the table is the one that was read. Raises
        TransactionAborted."""
        if self.is_altered or not self.is_of(route):
            raise TransactionAborted(
                "A table that the transaction has read was altered or replaced. "
                "Run the transaction again.",
                table=route.path,
            )

    def all(self, own: TableBuffer | None = None) -> Iterator[ReadKeys]:
        """Yield all that was read, but keys that the writes and locks of the commit protect."""
        for key, mask in self.keys.items():
            if own is None or not _is_protected(own, key):
                yield ReadKeys(key, successor(key), mask)
        for (lower, upper), mask in self.ranges.items():
            yield ReadKeys(lower, upper, mask)

    def covers(self, key: Key) -> bool:
        """Return whether a row is among what was read."""
        return key in self.keys or any(lower <= key < upper for lower, upper in self.ranges)

    def keep(self, reads: Iterable[ReadKeys]) -> None:
        """Keep these reads instead of the present ones. They cover all that was read."""
        self.keys = {}
        self.ranges = {}
        for lower, upper, mask in reads:
            self.ranges[lower, upper] = self.ranges.get((lower, upper), 0) | mask


def _is_protected(own: TableBuffer, key: Key) -> bool:
    """Return whether the commit locks the main group of the row exclusively. This checks and holds
    all of its groups, as a validation of the row would do."""
    if own.locks and own.locks.get(key, {}).get("exclusive", 0) & MAIN_LOCK_MASK:
        return True
    write = own.writes.get(key)
    if write is None:
        return False
    _, shared = own.special.get(key, ORDINARY)
    return own.schema.lock_mask(write[1]) & ~shared & MAIN_LOCK_MASK != 0


class TransactionReads:
    """What a transaction has read, by path."""

    __slots__ = ("_asked", "_default", "_is_condensed", "keeps_all", "tables")

    def __init__(
        self, asked: Isolation | None, default: Isolation | None, *, keeps_all: bool = False
    ) -> None:
        """Record reads of a transaction. `asked` is the isolation of the transaction, if it was
        given one. `default` is that of the client. With `keeps_all`, reads of all tables are
        recorded, so that a new attempt can be validated."""
        self.keeps_all = keeps_all
        self._asked = asked
        self._default = default
        self._is_condensed = False
        self.tables: dict[str, TableReads] = {}

    def must_hold(self, route: TableRoute) -> bool:
        """Return whether reads of the table are validated at the commit."""
        wanted = self._asked or route.settings.isolation or self._default
        return wanted == "serializable" and route.atomicity == "full"

    def validated(self, *, is_again: bool) -> dict[str, TableReads]:
        """Return what an attempt must find as it was read, by path. `is_again` stands for a new
        attempt after a refusal."""
        if is_again:
            return self.tables
        return {path: it for path, it in self.tables.items() if it.is_required}

    def with_keys(self, rows: dict[str, list[Key]], count_max: int) -> dict[str, list[Key]]:
        """Return these rows and the single keys that were read, by path. If they are too many,
        return only the rows."""
        if self._is_condensed:
            return rows
        found = {path: dict.fromkeys(keys) for path, keys in rows.items()}
        for path, table in self.validated(is_again=False).items():
            found.setdefault(path, {}).update(dict.fromkeys(table.keys))
        is_few = sum(map(len, found.values())) <= count_max
        return {path: [*keys] for path, keys in found.items() if keys} if is_few else rows

    def limit(self) -> None:
        """Merge reads if there are too many."""
        count = 0
        for table in self.tables.values():
            count += table.count
        if count > READS_MAX:
            self.condense(READS_KEPT)

    def condense(self, count: int) -> None:
        """Merge reads until at most so many are left, or one for each table."""
        self._is_condensed = True
        merged = {path: merged_exactly(it.all()) for path, it in self.tables.items()}
        excess = sum(map(len, merged.values())) - count
        for path, reads in condensed(merged, excess).items():
            self.tables[path].keep(reads)


def reads_of(
    asked: Isolation | None, default: Isolation | None, refreshes: bool | None
) -> TransactionReads | None:
    """Return where the reads of a transaction are recorded, or None if none are. `refreshes` is
    what the client was opened with. None: serializable transactions may be sent again."""
    keeps_all = refreshes
    if refreshes is None:
        keeps_all = (asked or default) == "serializable"
    if asked == "snapshot" and not keeps_all:
        return None
    return TransactionReads(asked, default, keeps_all=bool(keeps_all))


class CallReads:
    """The recorder of one call. If the call begins again since its schema was old, the new reads
    replace those that it has made before."""

    __slots__ = ("_keys", "_ranges", "_reads")

    def __init__(self, reads: TransactionReads) -> None:
        self._reads = reads
        self._keys: tuple[Sequence[Key], int] | None = None
        self._ranges: tuple[Sequence[tuple[Key, Key]], int] | None = None

    def follow(self, route: TableRoute) -> None:
        """Record the same again, before the call goes on by a newer route of the table. Its
        isolation may be another one."""
        if self._keys is not None:
            self.note_keys(route, *self._keys)
        if self._ranges is not None:
            self.note_ranges(route, *self._ranges)

    def note_keys(self, route: TableRoute, keys: Sequence[Key], column_mask: int) -> None:
        """Record that these keys are read, with these value columns."""
        self._keys = keys, column_mask
        table = self._table(route)
        if table is None:
            return
        mask, known = groups_of(route.schema, column_mask), table.keys
        for key in keys:
            known[key] = known.get(key, 0) | mask
        self._reads.limit()

    def note_ranges(
        self, route: TableRoute, ranges: Sequence[tuple[Key, Key]], column_mask: int
    ) -> None:
        """Record that these ranges are read, with these value columns."""
        self._ranges = ranges, column_mask
        table = self._table(route)
        if table is None:
            return
        mask, known = groups_of(route.schema, column_mask), table.ranges
        for ends in ranges:
            if ends[0] < ends[1]:
                known[ends] = known.get(ends, 0) | mask
        self._reads.limit()

    def _table(self, route: TableRoute) -> TableReads | None:
        """Return where to record a read of the table, or None if it is not recorded."""
        reads = self._reads
        is_required = reads.must_hold(route)
        if route.atomicity == "none":
            reads.keeps_all = False  # such a table can't be validated
        if not is_required and not (reads.keeps_all and route.atomicity == "full"):
            return None
        known = reads.tables.get(route.path)
        if known is not None and known.only_call is not self:
            known.only_call = None
            known.is_required = known.is_required or is_required
            known.is_altered = known.is_altered or not known.is_of(route)
            return known
        if known is None or not known.is_of(route):
            known = reads.tables[route.path] = TableReads(route, self, is_required=is_required)
        known.is_required = known.is_required or is_required
        return known


def groups_of(schema: TableSchema, column_mask: int) -> int:
    """Return the lock groups of a read of these value columns. A read of none depends on which rows
    there are, and this on all groups."""
    return schema.lock_mask(column_mask) if column_mask else schema.lock_mask_all


def merged_exactly(reads: Iterable[ReadKeys]) -> list[ReadKeys]:
    """Return the same reads, in the order of keys. Those that overlap or touch are one, if their
    lock groups are equal."""
    made: list[ReadKeys] = []
    last_of: dict[int, int] = {}
    for read in sorted(reads):
        lower, upper, mask = read
        at = last_of.get(mask)
        if at is None or lower > made[at].upper:
            last_of[mask] = len(made)
            made.append(read)
        elif upper > made[at].upper:
            made[at] = ReadKeys(made[at].lower, upper, mask)
    return made


def condensed(
    reads_by_path: Mapping[str, list[ReadKeys]], excess: int
) -> dict[str, list[ReadKeys]]:
    """Return at least `excess` reads fewer, if that is possible, which cover all of these. The
    reads of a table are in the order of keys. The nearest neighbours become one."""
    gaps = [
        (gap, path, at)
        for path, reads in reads_by_path.items()
        for at, gap in enumerate(_gaps(reads), 1)
    ]
    joined: dict[str, set[int]] = {path: set() for path in reads_by_path}
    for _, path, at in sorted(gaps)[: max(0, excess)]:
        joined[path].add(at)
    return {path: _joined(reads, joined[path]) for path, reads in reads_by_path.items()}


def _joined(reads: list[ReadKeys], places: set[int]) -> list[ReadKeys]:
    """Return the reads, of which those at these places are joined with the ones before them."""
    made: list[ReadKeys] = []
    for at, read in enumerate(reads):
        if at in places:
            (lower, end, groups), (_, upper, mask) = made[-1], read
            made[-1] = ReadKeys(lower, max(end, upper), groups | mask)
        else:
            made.append(read)
    return made


def _gaps(reads: list[ReadKeys]) -> list[int]:
    """Return how far each read but the first is from the one before it, by the bytes in which the
    keys of the table differ. The number only says which neighbours are near."""
    if not reads:
        return []
    ends = list(accumulate([it.upper for it in reads], max))
    shared = _shared_length(reads[0].lower, ends[-1])
    stop, number = shared + _GAP_BYTES, int.from_bytes
    lowers = [number(it.lower[shared:stop].ljust(_GAP_BYTES, b"\0")) for it in reads[1:]]
    uppers = [number(it[shared:stop].ljust(_GAP_BYTES, b"\0")) for it in ends[:-1]]
    return [lower - upper for lower, upper in zip(lowers, uppers, strict=True)]


def _shared_length(lowest: Key, highest: Key) -> int:
    for at, (one, other) in enumerate(zip(lowest, highest, strict=False)):
        if one != other:
            return at
    return min(len(lowest), len(highest))
