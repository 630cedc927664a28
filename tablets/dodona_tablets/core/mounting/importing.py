"""Take over the rows of a new tablet: from its own cell immediately, from other cells in pages.

Owns: `take_over` and `take_page`, which change tablets, live and in replay alike. It also has the
requests to other cells, which are limited in number and repeated until they are answered. A page is
taken only if it begins where the tablet's rows end. So a page that is lost, late or repeated does
no harm. Each page is logged, so that a restart goes on where it was. A tablet that lacks rows is
not served, and no other tablet takes over its rows. If the source tablet is not there, the new
tablet waits: a source that was dropped or lost may have had rows.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from msgspec.structs import replace

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.records import RowsTaken
from dodona_tablets.core.rows.chunks.chunk import Chunk, ChunkAway
from dodona_tablets.core.rows.migration import Migration, pack_version, plain_version, range_in
from dodona_tablets.core.rows.stores import TabletChunk
from dodona_tablets.core.rows.version import chain_of
from dodona_tablets.core.tablet.away import chunks_in
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep.caching import Caching, Need
from dodona_wire.cores.effects import SendToCell
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import TabletAssignment, TabletSource
from dodona_wire.messages.cells import AskRows, TellRows
from dodona_wire.messages.data import RowVersion
from dodona_wire.rows.keys import successor
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.sizes import write_bytes
from dodona_wire.types import Key, TabletId

PAGE_ROWS_MAX: Final = 5_000
PAGE_BYTES_MAX: Final = 4 << 20
"""About the most bytes of a page: it ends with the row that exceeds them."""
PAGES_ASKED_MAX: Final = 8


def is_source_ready(cell: Cell, source: TabletSource) -> bool:
    """Return whether rows may be taken over from a source. Another cell answers when its tablet is
    ready."""
    tablet = cell.tablets.get(source.tablet)
    return source.cell != cell.id or (tablet is not None and tablet.is_settled)


def take_over(cell: Cell, tablet: Tablet) -> None:
    """Take the rows that the own cell has for a new tablet, and note which rows other cells
    have."""
    for source in tablet.assignment.sources:
        if source.cell != cell.id:
            tablet.missing[source] = _range_of(tablet, source)[0]
        else:
            _copy(cell.tablets[source.tablet], tablet, source)


def _range_of(target: Tablet, source: TabletSource) -> tuple[Key, Key]:
    """Return the range of keys that the target takes from this source."""
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
    if cut.lower < cut.upper and is_reached:  # keys may have more columns now, so the byte is added
        target.stores.attach(cut, None if chunk.view is None else chunk.view.chunk)


def source_of(target: Tablet, page: TellRows) -> TabletSource | None:
    """Return the source whose next page this is, or None."""
    for source, lower in target.missing.items():
        if (source.tablet, source.cell, lower) == (page.tablet, page.source, page.lower):
            return source
    return None


def take_page(target: Tablet, page: TellRows) -> None:
    """Add rows from another cell, and note where its next page begins."""
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
    """The requests of a cell for rows of other cells, and its answers to their requests. One
    instance for each cell."""

    def __init__(self, cell: Cell, outbox: Outbox, caching: Caching) -> None:
        self._cell = cell
        self._outbox = outbox
        self._caching = caching
        self._asked_us: dict[tuple[TabletId, TabletSource], int] = {}
        self._fetching_for: set[AskRows] = set()
        """The questions whose answers wait for chunks."""
        self.is_waiting = True
        """Whether rows were missing at the last check."""

    def is_ready(self, wanted: TabletAssignment) -> bool:
        """Return whether a new tablet may be made: its sources in this cell do not change any
        more."""
        return all(is_source_ready(self._cell, source) for source in wanted.sources)

    def ask(self) -> None:
        """Ask for missing rows that were not requested recently, a few pages at a time, if there is
        room for them."""
        cell = self._cell
        self.is_waiting = any(it.missing and it.is_mounted for it in cell.tablets.values())
        if not self.is_waiting or cell.room.is_log_full or cell.room.disk_shortage is not None:
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
                    self._outbox.send(SendToCell(source.cell, body))

    def tell_rows(self, body: AskRows) -> None:
        """Answer with a page if the tablet is settled. Otherwise send nothing: the other cell asks
        again, also while this cell fetches chunks for its answer."""
        if body not in self._fetching_for:
            self._tell(body, ())

    def _tell(self, body: AskRows, held: Iterable[Chunk]) -> None:
        """Answer with a page. `held` are the chunks that were fetched for it."""
        tablet = self._cell.tablets.get(body.tablet)
        if tablet is None or not tablet.is_settled:
            return
        try:
            page = self._page(tablet, body)
        except ChunkAway as away:
            more = chunks_in(tablet, body.lower, body.upper, away)
            self._fetching_for.add(body)
            forget = partial(self._forget, body)
            self._caching.prepare([*held, *more], partial(self._tell_again, body), forget)
        else:
            self._outbox.send(SendToCell(body.source, page))

    def _tell_again(self, body: AskRows, need: Need) -> None:
        self._fetching_for.discard(body)
        self._tell(body, need.held.values())
        self._caching.end(need)

    def _forget(self, body: AskRows, _: Failure) -> None:
        """Say nothing about a chunk that can't be had: the other cell asks again."""
        self._fetching_for.discard(body)

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
        """Take a page. Return the tablet if this was the last page that it lacked."""
        tablet = self._cell.tablets.get(page.target)
        source = None if tablet is None else source_of(tablet, page)
        if tablet is None or source is None:
            return None  # a repeated page
        self._outbox.append(RowsTaken(page))
        take_page(tablet, page)
        self._asked_us.pop((page.target, source), None)
        self.ask()
        return None if tablet.missing else tablet
