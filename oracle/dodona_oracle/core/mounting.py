"""The mounting of a table: how its tablets are mounted, frozen, resharded, altered and copied.

Owns: the states of tablets and every change of them, as pure functions from a table to a table.
Each function checks everything before it makes a change. If there is nothing to do, it returns the
very same object. Commands follow `TRANSITIONS`, reports of cells follow `REPORTS`. The catalog
stores the table, chooses the cells and gives out ids. Source: the YTsaurus document, on tablet
states.

Invariants:
- A tablet's rows are in the log of its cell: once it has a cell, it stays there for good.
- `sources` are the tablets from which the tablet must still take over rows. They are forgotten when
  its cell reports that it has the rows. Until then no client has written to the tablet.
- A tablet is unmounted when it becomes a source. It may be mounted again only if all its targets
  are in its own cell, as copies are. Then the cell takes over the rows first.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec.structs import replace

from dodona_oracle.core.definitions import changed_settings, check_alteration, check_pivots_between
from dodona_oracle.core.records import StoredTable, StoredTablet
from dodona_wire.errors import InvalidRequest, InvalidTabletState, Unavailable
from dodona_wire.messages.catalog import MountedTablet, TabletAssignment, TabletSource
from dodona_wire.rows.schema import Column
from dodona_wire.shown import shown
from dodona_wire.types import KEY_MAX, Atomicity, CellId, Key, Revision, TabletId

Command = Literal["mount", "mount_frozen", "unmount", "freeze", "unfreeze"]
Place = Callable[[int], Sequence[CellId]]
"""Returns cells for so many tablets that have none yet. The number may be 0. Raises Unavailable."""

UNMOUNTED: Final = "unmounted"
MOUNTING: Final = "mounting"
FROZEN_MOUNTING: Final = "frozen_mounting"
MOUNTED: Final = "mounted"
FREEZING: Final = "freezing"
FROZEN: Final = "frozen"
UNFREEZING: Final = "unfreezing"
UNMOUNTING: Final = "unmounting"
MIXED: Final = "mixed"
TRANSIENT: Final = "transient"

STATES: Final = (
    UNMOUNTED,
    MOUNTING,
    FROZEN_MOUNTING,
    MOUNTED,
    FREEZING,
    FROZEN,
    UNFREEZING,
    UNMOUNTING,
)
_SAME: Final = "same"
_NO: Final = "no"
_COMMANDS: Final[dict[Command, tuple[str, ...]]] = {
    # in the order of STATES: the next state, or whether it is a repeat or a refusal
    "mount": (MOUNTING, _SAME, _NO, _SAME, _NO, _NO, _SAME, _NO),
    "mount_frozen": (FROZEN_MOUNTING, _NO, _SAME, _NO, _SAME, _SAME, _NO, _NO),
    "unmount": (_SAME, _NO, _NO, UNMOUNTING, _NO, UNMOUNTING, _NO, _SAME),
    "freeze": (_NO, _NO, _SAME, FREEZING, _SAME, _SAME, _NO, _NO),
    "unfreeze": (_NO, _NO, _NO, _SAME, _NO, UNFREEZING, _SAME, _NO),
}
TRANSITIONS: Final[dict[tuple[Command, str], str | None]] = {
    (command, state): {_SAME: state, _NO: None}.get(new_state, new_state)
    for command, new_states in _COMMANDS.items()
    for state, new_state in zip(STATES, new_states, strict=True)
}
"""(command, state) → the next state: the same one for a repeat, None for a refusal."""

_MODES: Final = {
    MOUNTING: MOUNTED,
    FROZEN_MOUNTING: FROZEN,
    MOUNTED: MOUNTED,
    FREEZING: FROZEN,
    FROZEN: FROZEN,
    UNFREEZING: MOUNTED,
}
"""State → the mode in which the cell serves the tablet. No entry: it does not serve it."""

REPORTS: Final[dict[tuple[str, str], str]] = {
    (MOUNTING, MOUNTED): MOUNTED,
    (FROZEN_MOUNTING, FROZEN): FROZEN,
    (FREEZING, FROZEN): FROZEN,
    (UNFREEZING, MOUNTED): MOUNTED,
    (UNMOUNTING, UNMOUNTED): UNMOUNTED,
}
"""(state, the mode that its cell reports) → the next state; without an entry the state stays."""

_ENDS: Final = frozenset((UNMOUNTED, MOUNTED, FROZEN))


# Mounted, frozen, unmounted


def mount(
    table: StoredTable,
    first: int | None,
    last: int | None,
    *,
    is_frozen: bool,
    revision: Revision,
    place: Place,
) -> StoredTable:
    """Mount the unmounted tablets of a range, in the cell they had, or in one that `place` chooses.

    Raises InvalidRequest, InvalidTabletState, and Unavailable from `place`.
    """
    moved = _command(table, "mount_frozen" if is_frozen else "mount", first, last)
    if moved is table:
        return table
    is_new = [was.state == UNMOUNTED != now.state for was, now in _pairs(table, moved)]
    unplaced = sum(
        it and tablet.cell is None for it, tablet in zip(is_new, moved.tablets, strict=True)
    )
    cells = iter(place(unplaced))
    tablets = tuple(
        replace(it, revision=revision, cell=next(cells) if it.cell is None else it.cell)
        if new
        else it
        for new, it in zip(is_new, moved.tablets, strict=True)
    )
    return replace(moved, tablets=tablets, settings_mounted=table.settings)


def unmount(table: StoredTable, first: int | None, last: int | None) -> StoredTable:
    """Unmount a range of tablets. Raises InvalidRequest, InvalidTabletState."""
    return _command(table, "unmount", first, last)


def freeze(table: StoredTable, first: int | None, last: int | None) -> StoredTable:
    """Freeze a range of tablets. Raises InvalidRequest, InvalidTabletState."""
    return _command(table, "freeze", first, last)


def unfreeze(table: StoredTable, first: int | None, last: int | None) -> StoredTable:
    """Unfreeze a range of tablets. Raises InvalidRequest, InvalidTabletState."""
    return _command(table, "unfreeze", first, last)


def remount(table: StoredTable, first: int | None, last: int | None) -> StoredTable:
    """Make the current settings valid for the tablets, if a cell serves any tablet of the range.
    Raises InvalidRequest."""
    start, end = _range(table, first, last)
    if not any(tablet.state in _MODES for tablet in table.tablets[start:end]):
        return table
    if table.settings == table.settings_mounted:
        return table
    return replace(table, settings_mounted=table.settings)


def _command(
    table: StoredTable, command: Command, first: int | None, last: int | None
) -> StoredTable:
    start, end = _range(table, first, last)
    tablets = list(table.tablets)
    for at in range(start, end):
        tablet = tablets[at]
        state = TRANSITIONS[command, tablet.state]
        if state is None:
            raise InvalidTabletState(
                f"Cannot {command.partition('_')[0]} tablet {tablet.tablet} "
                f'in "{tablet.state}" state.',
                table=table.path,
                tablet=tablet.tablet,
                state=tablet.state,
            )
        if state != tablet.state:
            tablets[at] = replace(tablet, state=state)
    return _with_tablets(table, tablets)


def _range(table: StoredTable, first: int | None, last: int | None) -> tuple[int, int]:
    """Return tablets `first` to `last`, both included, as a slice. Raises InvalidRequest."""
    count = len(table.tablets)
    start = 0 if first is None else first
    end = count if last is None else last + 1
    if not 0 <= start < end <= count:
        raise InvalidRequest(
            f"Tablets {start} to {end - 1} are not a valid range: the table has tablets 0 to "
            f"{count - 1}.",
            table=table.path,
            first_tablet=start,
            last_tablet=end - 1,
        )
    return start, end


def _with_tablets(table: StoredTable, tablets: Iterable[StoredTablet]) -> StoredTable:
    """Return the table with these tablets. If they are the same, return the same object."""
    changed = tuple(tablets)
    return table if changed == table.tablets else replace(table, tablets=changed)


def _pairs(one: StoredTable, other: StoredTable) -> Iterable[tuple[StoredTablet, StoredTablet]]:
    return zip(one.tablets, other.tablets, strict=True)


# Cells


def is_moving(tablet: StoredTablet) -> bool:
    """Return whether the next report of its cell may change the tablet."""
    return tablet.state not in _ENDS or is_awaiting_rows(tablet)


def is_awaiting_rows(tablet: StoredTablet) -> bool:
    """Return whether this is an unmounted copy whose cell must still take over the rows."""
    return tablet.state == UNMOUNTED and bool(tablet.sources) and tablet.cell is not None


def take_heartbeat(
    table: StoredTable, cell: CellId, mounted: Mapping[TabletId, MountedTablet]
) -> StoredTable:
    """Complete the changes of this cell's tablets that its report confirms."""
    return _with_tablets(
        table,
        [
            _reported(tablet, mounted.get(tablet.tablet)) if tablet.cell == cell else tablet
            for tablet in table.tablets
        ],
    )


def _reported(tablet: StoredTablet, report: MountedTablet | None) -> StoredTablet:
    mode = UNMOUNTED if report is None else report.mode
    is_this = report is not None and report.revision == tablet.revision
    if is_this and tablet.sources:
        tablet = replace(tablet, sources=())
    if is_this or mode == UNMOUNTED:
        state = REPORTS.get((tablet.state, mode), tablet.state)
        if state != tablet.state:
            tablet = replace(tablet, state=state)
    return tablet


def assignments(table: StoredTable, cell: CellId) -> list[TabletAssignment]:
    """Return the tablets of this table that the cell must have. Only clients use the isolation: a
    cell of an earlier release would refuse all tablets for a setting that it does not know."""
    settings = replace(table.settings_mounted, isolation=None)
    uppers = [tablet.pivot_key for tablet in table.tablets[1:]] + [KEY_MAX]
    return [
        TabletAssignment(
            tablet=tablet.tablet,
            revision=tablet.revision,
            path=table.path,
            columns=table.columns,
            atomicity=table.atomicity,
            lower=tablet.pivot_key,
            upper=upper,
            mode=_MODES.get(tablet.state, UNMOUNTED),
            settings=settings,
            sources=tablet.sources,
        )
        for tablet, upper in zip(table.tablets, uppers, strict=True)
        if tablet.cell == cell and (tablet.state in _MODES or is_awaiting_rows(tablet))
    ]


def in_order(assigned: Iterable[TabletAssignment]) -> tuple[TabletAssignment, ...]:
    """Return the assignments of all tables in order: tablets that must still take over rows come
    first, before their sources may change."""
    return tuple(sorted(assigned, key=lambda it: not it.sources))


def needed(table: StoredTable) -> Iterator[TabletId]:
    """Yield the tablets that have the table's rows: its own tablets and their sources. Some come
    more than once."""
    for tablet in table.tablets:
        yield tablet.tablet
        for source in tablet.sources:
            yield source.tablet


# The table as a whole


def tablet_state(table: StoredTable) -> str:
    """Return the common state of all tablets. If they differ, it is `transient` while any of them
    changes, and `mixed` otherwise."""
    states = {tablet.state for tablet in table.tablets}
    if len(states) == 1:
        return states.pop()
    return MIXED if states <= _ENDS else TRANSIENT


def check_all_unmounted(table: StoredTable, what: str) -> None:
    """Raise InvalidTabletState unless all tablets are unmounted. `what` completes "Cannot …"."""
    served = [tablet for tablet in table.tablets if tablet.state != UNMOUNTED]
    if served:
        raise InvalidTabletState(
            f"Cannot {what} since not all tablets are unmounted. Unmount the table.",
            table=table.path,
            tablet=served[0].tablet,
            state=served[0].state,
            tablet_count=len(served),
        )


def set_atomicity(table: StoredTable, atomicity: Atomicity) -> StoredTable:
    """Set the atomicity. Raises InvalidTabletState, InvalidRequest."""
    if atomicity not in ("full", "none"):
        raise InvalidRequest(f'Atomicity must be "full" or "none", not {shown(atomicity)}.')
    if atomicity == table.atomicity:
        return table
    check_all_unmounted(table, "change table atomicity mode")
    return replace(table, atomicity=atomicity)


def set_settings(table: StoredTable, changes: Mapping[str, Any]) -> StoredTable:
    """Change settings by name. None sets one back to its default. Raises InvalidRequest,
    InvalidTabletState."""
    settings = changed_settings(table.path, table.settings, changes)
    if settings == table.settings:
        return table
    if settings.in_memory_mode != table.settings.in_memory_mode:
        check_all_unmounted(table, "change table in-memory mode")
    return replace(table, settings=settings)


def alter(table: StoredTable, columns: tuple[Column, ...]) -> StoredTable:
    """Change the schema. Tablets get it at their next mount. Raises InvalidTabletState,
    SchemaViolation."""
    check_all_unmounted(table, "alter table")
    check_alteration(table.columns, columns)
    return table if columns == table.columns else replace(table, columns=columns)


def reshard(
    table: StoredTable,
    pivot_keys: tuple[Key, ...],
    first: int | None,
    last: int | None,
    first_id: int,
) -> StoredTable:
    """Replace these tablets by one tablet for each pivot key, with ids from `first_id` on. They get
    cells at their next mount, so the table spreads anew. Raises InvalidRequest, InvalidTabletState,
    SchemaViolation, LimitExceeded, Unavailable."""
    start, end = _range(table, first, last)
    old = table.tablets[start:end]
    for tablet in old:
        if tablet.state != UNMOUNTED:
            raise InvalidTabletState(
                f"Cannot reshard table since tablet {tablet.tablet} is not unmounted. Unmount it.",
                table=table.path,
                tablet=tablet.tablet,
                state=tablet.state,
            )
    upper = KEY_MAX if end == len(table.tablets) else table.tablets[end].pivot_key
    other_count = len(table.tablets) - len(old)
    check_pivots_between(table.columns, pivot_keys, old[0].pivot_key, upper, other_count)
    _check_rows_are_there(table, old)
    new = [
        StoredTablet(TabletId(first_id + at), key, UNMOUNTED, None, Revision(0), sources)
        for at, (key, sources) in enumerate(
            zip(pivot_keys, _sources_of(old, pivot_keys, upper), strict=True)
        )
    ]
    return replace(table, tablets=(*table.tablets[:start], *new, *table.tablets[end:]))


def _sources_of(
    old: Sequence[StoredTablet], pivot_keys: Sequence[Key], upper: Key
) -> Iterable[tuple[TabletSource, ...]]:
    """Yield for each new tablet the sources that may have rows in its range. The ranges of all
    sources are disjoint and in key order. So each new tablet finds its own among thousands."""
    old_uppers = [*(tablet.pivot_key for tablet in old[1:]), upper]
    sources = [
        source
        for tablet, old_upper in zip(old, old_uppers, strict=True)
        for source in _own_sources(tablet, tablet.pivot_key, old_upper)
    ]
    lowers, uppers = [it.lower for it in sources], [it.upper for it in sources]
    for lower, end in zip(pivot_keys, [*pivot_keys[1:], upper], strict=True):
        touched = slice(bisect_right(uppers, lower), bisect_left(lowers, end))
        yield tuple(_clipped(source, lower, end) for source in sources[touched])


def _own_sources(tablet: StoredTablet, lower: Key, upper: Key) -> tuple[TabletSource, ...]:
    """Return where the rows of a tablet with this range are: in itself, or in its sources. (Outside
    this range, other tablets may already have taken over rows from a source and changed them.)"""
    if not tablet.sources and tablet.cell is not None:
        return (TabletSource(tablet.tablet, tablet.cell, lower, upper),)
    return tuple(
        _clipped(source, lower, upper)
        for source in tablet.sources
        if source.lower < upper and lower < source.upper
    )


def _clipped(source: TabletSource, lower: Key, upper: Key) -> TabletSource:
    return replace(source, lower=max(source.lower, lower), upper=min(source.upper, upper))


def copied(table: StoredTable, path: str, first_id: int, *, is_seen: bool = True) -> StoredTable:
    """Return an unmounted table of its own with the same rows. Its id is `first_id`, and its
    tablets have the next ids. Each tablet is in the cell of its source, which takes over the rows
    immediately. A table that is not committed yet (`is_seen` is false) may itself wait for rows.
    Then its copy takes them over from the same sources, which stay as they are until then. Raises
    InvalidTabletState, Unavailable."""
    check_all_unmounted(table, "copy table")
    if is_seen:
        _check_rows_are_there(table, table.tablets)
    uppers = [*(tablet.pivot_key for tablet in table.tablets[1:]), KEY_MAX]
    tablets = tuple(
        replace(
            tablet,
            tablet=TabletId(first_id + 1 + at),
            revision=Revision(0),
            sources=_own_sources(tablet, tablet.pivot_key, upper),
        )
        for at, (tablet, upper) in enumerate(zip(table.tablets, uppers, strict=True))
    )
    return replace(table, table=first_id, path=path, tablets=tablets)


def _check_rows_are_there(table: StoredTable, tablets: Iterable[StoredTablet]) -> None:
    """Raise Unavailable while a tablet waits for its own rows. They are still in a source, which
    may change later, so the tablet cannot be a source itself."""
    for tablet in tablets:
        if is_awaiting_rows(tablet):
            text = "The rows of the table are still being copied. Wait, then repeat the call."
            raise Unavailable(text, table=table.path, tablet=tablet.tablet, cell=tablet.cell)
