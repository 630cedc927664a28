"""Rows that a new tablet takes over: from tablets of its own cell at once, from others in pages.

Owns: `take_over` and `take_page`, which change tablets, live and in replay alike; and the questions
to other cells, bounded in number, repeated until answered. A page is taken only if it begins where
the tablet is, so that one which is lost, late or repeated does no harm; each is logged, so that a
restart goes on where it was. A tablet that misses rows is not served, and is nobody's source.
Who takes over from a tablet that is not there waits: that it was dropped, or lost, does not mean
that it had no rows.
"""

from typing import Final

from msgspec.structs import replace

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.records import RowsTaken
from dodona_tablets.core.rows.migration import Migration, pack_version, plain_version, range_in
from dodona_tablets.core.rows.stores import TabletChunk
from dodona_tablets.core.rows.version import chain_of
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.cores.effects import SendToCell
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.catalog import TabletAssignment, TabletSource
from dodona_wire.messages.cells import AskRows, TellRows
from dodona_wire.messages.data import RowVersion
from dodona_wire.rows.keys import successor
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.sizes import write_bytes
from dodona_wire.types import Key, TabletId

PAGE_ROWS_MAX: Final = 5_000
PAGE_BYTES_MAX: Final = 4 << 20
"""About: a page ends with the row that passes it."""
PAGES_ASKED_MAX: Final = 8


def is_source_ready(cell: Cell, source: TabletSource) -> bool:
    """Whether rows may be taken over from it. Another cell answers when it is."""
    tablet = cell.tablets.get(source.tablet)
    return source.cell != cell.id or (tablet is not None and tablet.is_settled)


def take_over(cell: Cell, tablet: Tablet) -> None:
    """A tablet that was just made: take what its own cell has, and note what others have."""
    for source in tablet.assignment.sources:
        if source.cell != cell.id:
            tablet.missing[source] = _range_of(tablet, source)[0]
        else:
            _copy(cell.tablets[source.tablet], tablet, source)


def _range_of(target: Tablet, source: TabletSource) -> tuple[Key, Key]:
    """The keys that the target takes from this source."""
    assignment = target.assignment
    return max(assignment.lower, source.lower), min(assignment.upper, source.upper)


def _copy(tablet: Tablet, target: Tablet, source: TabletSource) -> None:
    assert tablet.is_settled, "rows taken over while they change"
    lower, upper = _range_of(target, source)
    for chunk in tablet.stores.chunks:
        _share(chunk, target, lower, upper)
    target.retained_timestamp = max(target.retained_timestamp, tablet.retained_timestamp)
    target.newest_stamp = max(target.newest_stamp, tablet.newest_stamp)


def _share(chunk: TabletChunk, target: Tablet, lower: Key, upper: Key) -> None:
    """Attach the part of a source's chunk that lies in a range to the target, too."""
    attached = chunk.attached
    cut = replace(attached, lower=max(attached.lower, lower), upper=min(attached.upper, upper))
    info = attached.info
    is_reached = cut.lower <= info.upper + b"\xff" and info.lower < cut.upper
    if cut.lower < cut.upper and is_reached:  # keys may have got more columns: hence the byte
        target.stores.attach(cut, None if chunk.view is None else chunk.view.chunk)


def source_of(target: Tablet, page: TellRows) -> TabletSource | None:
    """Which source's next page this is, if it is one's."""
    for source, lower in target.missing.items():
        if (source.tablet, source.cell, lower) == (page.tablet, page.source, page.lower):
            return source
    return None


def take_page(target: Tablet, page: TellRows) -> None:
    """Rows from another cell, and where its next page begins."""
    source = source_of(target, page)
    assert source is not None, "a page that nobody waits for"
    schema = TableSchema(page.columns)
    lower, upper = _range_of(target, source)
    if page.rows:
        migration = Migration(schema, target.schema)
        for key, packed in page.rows:
            new_key = migration.key(key)
            if lower <= new_key < upper:
                versions = [migration.version(plain_version(schema, it)) for it in packed]
                target.active.put(new_key, chain_of(versions))
                target.newest_stamp = max(target.newest_stamp, versions[0][0])
    target.retained_timestamp = max(target.retained_timestamp, page.retained_timestamp)
    if page.resume is None:
        del target.missing[source]
    else:
        target.missing[source] = page.resume


class Importing:
    """Asks other cells for rows, and answers them. One instance a cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._asked_us: dict[tuple[TabletId, TabletSource], int] = {}
        self.is_waiting = True
        """Whether rows were missing when they were last asked for."""

    def is_ready(self, wanted: TabletAssignment) -> bool:
        """Whether a new tablet may be made: its sources in this cell do not change any more."""
        return all(is_source_ready(self._cell, source) for source in wanted.sources)

    def ask(self) -> None:
        """Ask for what is missing and was not asked for lately, a few pages at a time, if there is
        room for them."""
        cell = self._cell
        self.is_waiting = any(it.missing and it.is_mounted for it in cell.tablets.values())
        if not self.is_waiting or cell.is_log_full or cell.disk_shortage is not None:
            return
        late_us = cell.now.instant_us - cell.limits.repeat_after_ms * 1000
        asked = {name: at for name, at in self._asked_us.items() if at > late_us}
        self._asked_us = asked
        for number, tablet in cell.tablets.items():
            if not tablet.missing or not tablet.is_mounted:
                continue
            for source, lower in tablet.missing.items():
                if len(asked) >= PAGES_ASKED_MAX:
                    return
                if (number, source) not in asked:
                    asked[number, source] = cell.now.instant_us
                    upper = _range_of(tablet, source)[1]
                    body = AskRows(cell.id, source.tablet, number, lower, upper)
                    cell.effects.append(SendToCell(source.cell, body))

    def tell_rows(self, body: AskRows) -> None:
        """Answer with a page, or not yet: whoever asks asks again."""
        tablet = self._cell.tablets.get(body.tablet)
        if tablet is not None and tablet.is_settled:
            self._cell.effects.append(SendToCell(body.source, self._page(tablet, body)))

    def _page(self, tablet: Tablet, body: AskRows) -> TellRows:
        schema = tablet.schema
        rows: list[tuple[Key, tuple[RowVersion, ...]]] = []
        left_bytes = PAGE_BYTES_MAX
        rows_max = 1 if self._cell.fault_at(FaultPoint.TELL_ONE_ROW) else PAGE_ROWS_MAX
        resume = None
        for key, found in tablet.stores.rows(*range_in(schema, body.lower, body.upper)):
            if len(rows) == rows_max or left_bytes <= 0:
                resume = successor(rows[-1][0])
                break
            rows.append((key, tuple([pack_version(schema, version) for version in found])))
            left_bytes -= sum([write_bytes((key, it[1], it[2])) for it in found])
        return TellRows(
            self._cell.id,
            body.tablet,
            body.target,
            schema.columns,
            body.lower,
            tuple(rows),
            resume,
            tablet.retained_timestamp,
        )

    def take_rows(self, page: TellRows) -> Tablet | None:
        """→ the tablet, if this was the last page that it missed."""
        tablet = self._cell.tablets.get(page.target)
        source = None if tablet is None else source_of(tablet, page)
        if tablet is None or source is None:
            return None  # repeated
        self._cell.append(RowsTaken(page))
        take_page(tablet, page)
        self._asked_us.pop((page.target, source), None)
        self.ask()
        return None if tablet.missing else tablet
