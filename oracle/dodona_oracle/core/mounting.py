"""The life of a table: how its tablets are mounted, frozen, divided anew, altered and copied.

Owns: the states of tablets and every change of them, as pure functions from a table to a table.
Each checks all it must before it makes anything, and returns the very same object where there is
nothing to do. Commands follow `TRANSITIONS`, the words of cells `REPORTS`. Who stores the table,
chooses cells and hands out ids is the catalog. Source: the YTsaurus document, on tablet states.

Invariants:
- A tablet's rows are in the log of its cell: once it has a cell, it stays there for good.
- `sources` are the tablets whose rows it has yet to take over. They are forgotten when its cell
  says that it has them; until then nobody has written to the tablet.
- A source is unmounted when it becomes one. Only if all its targets are in its own cell, as copies
  are, may it be mounted again: the cell takes over the rows first.
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
"""Cells for so many tablets that have none yet. May be asked for none, and raises Unavailable."""

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
    # in the order of STATES: where each leads, what is a repeat, and what can't be
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
"""(command, state) → the state after it: the same one for a repeat, None where it is refused."""

_MODES: Final = {
    MOUNTING: MOUNTED,
    FROZEN_MOUNTING: FROZEN,
    MOUNTED: MOUNTED,
    FREEZING: FROZEN,
    FROZEN: FROZEN,
    UNFREEZING: MOUNTED,
}
"""State → what the cell is to serve the tablet for. No entry: it is not to serve it."""

REPORTS: Final[dict[tuple[str, str], str]] = {
    (MOUNTING, MOUNTED): MOUNTED,
    (FROZEN_MOUNTING, FROZEN): FROZEN,
    (FREEZING, FROZEN): FROZEN,
    (UNFREEZING, MOUNTED): MOUNTED,
    (UNMOUNTING, UNMOUNTED): UNMOUNTED,
}
"""(state, what its cell says that it serves it for) → the state after it; otherwise it stays."""

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
    """Give what is unmounted to cells: where it was before, or where `place` says.

    Raises InvalidRequest, InvalidTabletState, and Unavailable of `place`.
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
    """Raises InvalidRequest, InvalidTabletState."""
    return _command(table, "unmount", first, last)


def freeze(table: StoredTable, first: int | None, last: int | None) -> StoredTable:
    """Raises InvalidRequest, InvalidTabletState."""
    return _command(table, "freeze", first, last)


def unfreeze(table: StoredTable, first: int | None, last: int | None) -> StoredTable:
    """Raises InvalidRequest, InvalidTabletState."""
    return _command(table, "unfreeze", first, last)


def remount(table: StoredTable, first: int | None, last: int | None) -> StoredTable:
    """Let tablets go by the settings as they are now, if any of these is served. Raises
    InvalidRequest."""
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
                f'in "{tablet.state}" state',
                table=table.path,
                tablet=tablet.tablet,
                state=tablet.state,
            )
        if state != tablet.state:
            tablets[at] = replace(tablet, state=state)
    return _with_tablets(table, tablets)


def _range(table: StoredTable, first: int | None, last: int | None) -> tuple[int, int]:
    """Tablets `first` to `last`, both included, as a slice. Raises InvalidRequest."""
    count = len(table.tablets)
    start = 0 if first is None else first
    end = count if last is None else last + 1
    if not 0 <= start < end <= count:
        raise InvalidRequest(
            f"tablets {start} to {end - 1} are no range of a table with tablets 0 to {count - 1}",
            table=table.path,
            first_tablet=start,
            last_tablet=end - 1,
        )
    return start, end


def _with_tablets(table: StoredTable, tablets: Iterable[StoredTablet]) -> StoredTable:
    """The table with these tablets; the same object if they are the same."""
    changed = tuple(tablets)
    return table if changed == table.tablets else replace(table, tablets=changed)


def _pairs(one: StoredTable, other: StoredTable) -> Iterable[tuple[StoredTablet, StoredTablet]]:
    return zip(one.tablets, other.tablets, strict=True)


# Cells


def is_moving(tablet: StoredTablet) -> bool:
    """Whether its cell's next word may change it."""
    return tablet.state not in _ENDS or is_awaiting_rows(tablet)


def is_awaiting_rows(tablet: StoredTablet) -> bool:
    """Whether it is an unmounted copy whose cell has yet to take over its rows."""
    return tablet.state == UNMOUNTED and bool(tablet.sources) and tablet.cell is not None


def take_heartbeat(
    table: StoredTable, cell: CellId, mounted: Mapping[TabletId, MountedTablet]
) -> StoredTable:
    """Let the cell's own word end what is under way there."""
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
    """What the cell is to have of this table."""
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
            settings=table.settings_mounted,
            sources=tablet.sources,
        )
        for tablet, upper in zip(table.tablets, uppers, strict=True)
        if tablet.cell == cell and (tablet.state in _MODES or is_awaiting_rows(tablet))
    ]


def in_order(assigned: Iterable[TabletAssignment]) -> tuple[TabletAssignment, ...]:
    """Of all tables: first what has yet to take over rows, before their source may change."""
    return tuple(sorted(assigned, key=lambda it: not it.sources))


def needed(table: StoredTable) -> Iterator[TabletId]:
    """The tablets that have the table's rows: its own, and those to be taken over from. Some come
    more than once."""
    for tablet in table.tablets:
        yield tablet.tablet
        for source in tablet.sources:
            yield source.tablet


# The table as a whole


def tablet_state(table: StoredTable) -> str:
    """The state of all tablets together: `transient` while any is on its way and they differ,
    `mixed` if they differ otherwise."""
    states = {tablet.state for tablet in table.tablets}
    if len(states) == 1:
        return states.pop()
    return MIXED if states <= _ENDS else TRANSIENT


def check_all_unmounted(table: StoredTable, what: str) -> None:
    """Raises InvalidTabletState unless every tablet is unmounted; `what` completes "Cannot …"."""
    served = [tablet for tablet in table.tablets if tablet.state != UNMOUNTED]
    if served:
        raise InvalidTabletState(
            f"Cannot {what} since not all tablets are unmounted",
            table=table.path,
            tablet=served[0].tablet,
            state=served[0].state,
            tablet_count=len(served),
        )


def set_atomicity(table: StoredTable, atomicity: Atomicity) -> StoredTable:
    """Raises InvalidTabletState, InvalidRequest."""
    if atomicity not in ("full", "none"):
        raise InvalidRequest(f'Atomicity must be "full" or "none", not {shown(atomicity)}')
    if atomicity == table.atomicity:
        return table
    check_all_unmounted(table, "change table atomicity mode")
    return replace(table, atomicity=atomicity)


def set_settings(table: StoredTable, changes: Mapping[str, Any]) -> StoredTable:
    """Set some, by name; None sets one back to its default. Raises InvalidRequest,
    InvalidTabletState."""
    settings = changed_settings(table.settings, changes)
    if settings == table.settings:
        return table
    if settings.in_memory_mode != table.settings.in_memory_mode:
        check_all_unmounted(table, "change table in-memory mode")
    return replace(table, settings=settings)


def alter(table: StoredTable, columns: tuple[Column, ...]) -> StoredTable:
    """Change the schema; tablets learn it at their next mount. Raises InvalidTabletState,
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
    """Replace these tablets by as many as there are pivot keys, with ids from `first_id` on. They
    are placed at their next mount, so that a table is spread anew. Raises InvalidRequest,
    InvalidTabletState, SchemaViolation, LimitExceeded, Unavailable."""
    start, end = _range(table, first, last)
    old = table.tablets[start:end]
    for tablet in old:
        if tablet.state != UNMOUNTED:
            raise InvalidTabletState(
                f"Cannot reshard table since tablet {tablet.tablet} is not unmounted",
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
    """For each new tablet those whose rows may be in its range. The ranges of all sources are in
    key order and apart, so that each new one finds its own among thousands."""
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
    """Where the rows of a tablet of this range are: in itself, or where it would take them from.
    (Beyond its range others may have taken rows from there already, and changed them since.)"""
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
    """A table of its own with the same rows, unmounted: `first_id` is its id, and its tablets have
    the next ones. Each is in the cell of its source, which takes over the rows at once. What nobody
    has seen yet takes over its rows together with its copy: its sources stay as they are until
    then. Raises InvalidTabletState, Unavailable."""
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
    """What a copy takes its rows from may change later: it can't be passed on as a source."""
    for tablet in tablets:
        if is_awaiting_rows(tablet):
            text = "the table's own rows are still being copied: wait, then repeat the call"
            raise Unavailable(text, table=table.path, tablet=tablet.tablet, cell=tablet.cell)
