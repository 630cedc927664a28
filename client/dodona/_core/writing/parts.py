"""Divide the buffer of a transaction among tablets, and pack it for them. Pure.

Owns: the form of modifications in messages. The fast path here is for ordinary writes to one
tablet, as nearly all writes are.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from dodona._core.protocol.routing import TableRoute
from dodona._core.writing.buffer import Special, TableBuffer
from dodona._core.writing.reads import TableReads
from dodona_wire.errors import ProtocolChanged
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.conditions import RowCondition, TabletConditions
from dodona_wire.messages.data import (
    CommitOne,
    ConditionalCommit,
    Prepare,
    Publication,
    RowLock,
    TabletModifications,
    ValidatedCommit,
)
from dodona_wire.messages.reads import ReadRange
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Key, Owner, SpecialWrites, TabletId, Timestamp, Write


class Terms(NamedTuple):
    """On which terms a transaction commits, in each of its cells."""

    conditions: Mapping[TabletId, list[RowCondition]]
    owner: Owner
    """The owner of its early locks."""
    since: Timestamp
    """When its rows were read, for a new attempt after a refusal."""


def modifications_of(
    route: TableRoute, buffer: TableBuffer
) -> list[tuple[Tablet, TabletModifications]]:
    """Return the modifications for each tablet of the table."""
    if buffer.special or buffer.locks or buffer.conditions:
        return _special_modifications(route, buffer)
    writes, pack = buffer.writes, route.schema.pack_writes
    if len(writes) == 1 or len(route.tablets) == 1:
        tablet = route.tablet_of(next(iter(writes)))
        packed = pack(writes.values())
        return [(tablet, TabletModifications(tablet.tablet, tablet.revision, packed))]
    return [
        (tablet, TabletModifications(tablet.tablet, tablet.revision, pack(group)))
        for tablet, group in group_by_tablet(route, writes.values())
    ]


def publications_of(
    route: TableRoute, publications: Mapping[TabletId, Publication]
) -> list[tuple[Tablet, TabletModifications]]:
    """Return what becomes visible in each tablet. Raises ProtocolChanged if the table has other
    tablets now."""
    tablets = {tablet.tablet: tablet for tablet in route.tablets}
    gone = [number for number in publications if number not in tablets]
    if gone:
        text = "The table was resharded or created again during the load. Begin a new load."
        raise ProtocolChanged(text, table=route.path, tablets=gone)
    return [
        (
            tablets[number],
            TabletModifications(
                number, tablets[number].revision, (), publication=publications[number]
            ),
        )
        for number in publications
    ]


def _special_modifications(
    route: TableRoute, buffer: TableBuffer
) -> list[tuple[Tablet, TabletModifications]]:
    by_tablet: dict[TabletId, tuple[Tablet, list[Write], list[RowLock]]] = {}
    for key in {**buffer.writes, **buffer.locks, **buffer.conditions}:
        tablet = route.tablet_of(key)
        _, writes, locks = by_tablet.setdefault(tablet.tablet, (tablet, [], []))
        if key in buffer.writes:
            writes.append(buffer.writes[key])
        locks += [RowLock(key, mask, how) for how, mask in buffer.locks.get(key, {}).items()]
    return [
        (
            tablet,
            TabletModifications(
                tablet.tablet,
                tablet.revision,
                route.schema.pack_writes(writes),
                tuple(locks),
                pack_special(route.schema, buffer.special, writes),
            ),
        )
        for tablet, writes, locks in by_tablet.values()
    ]


def with_reads(
    route: TableRoute,
    modified: Iterable[tuple[Tablet, TabletModifications]],
    reads: TableReads,
    own: TableBuffer | None,
) -> list[tuple[Tablet, TabletModifications]]:
    """Return the modifications of a table with what the transaction has read of it. A tablet that
    was only read has a part without writes. `own` are the writes of the transaction to the
    table."""
    by_tablet = {tablet.tablet: (tablet, part) for tablet, part in modified}
    found: dict[TabletId, list[ReadRange]] = {}
    for read in reads.all(own):
        for tablet, lower, upper in route.parts_of(read.lower, read.upper):
            empty = tablet, TabletModifications(tablet.tablet, tablet.revision, ())
            by_tablet.setdefault(tablet.tablet, empty)
            its = found.setdefault(tablet.tablet, [])
            its.append(ReadRange(lower, upper, read.lock_mask))
    return [
        (tablet, replace(part, reads=tuple(found.get(tablet.tablet, ()))))
        for tablet, part in by_tablet.values()
    ]


def conditions_of(
    routes: Iterable[TableRoute], buffers: Iterable[TableBuffer]
) -> dict[TabletId, list[RowCondition]]:
    """Return the conditions of a transaction for each tablet. Nearly always there are none."""
    found: dict[TabletId, list[RowCondition]] = {}
    for route, buffer in zip(routes, buffers, strict=False):
        for key, condition in buffer.conditions.items():
            found.setdefault(route.tablet_of(key).tablet, []).append(condition)
    return found


def under(
    terms: Terms, request: CommitOne | Prepare
) -> CommitOne | Prepare | ConditionalCommit | ValidatedCommit:
    """Return the request on the terms of its transaction. A request with reads, and that of a new
    attempt, is wrapped, so that the cell must know what this means."""
    made = _with_conditions(terms.conditions, terms.owner, request)
    if terms.since or any(it.reads for it in request.modifications):
        return ValidatedCommit(made, terms.since)
    return made


def _with_conditions(
    conditions: Mapping[TabletId, list[RowCondition]], owner: Owner, request: CommitOne | Prepare
) -> CommitOne | Prepare | ConditionalCommit:
    if not conditions and not owner:
        return request
    tablets = [part.tablet for part in request.modifications]
    found = [TabletConditions(it, tuple(conditions[it])) for it in tablets if it in conditions]
    return ConditionalCommit(request, tuple(found), owner) if found or owner else request


def pack_special(
    schema: TableSchema, special: Mapping[Key, Special], writes: Iterable[Write]
) -> SpecialWrites | None:
    """Return the special parts of these writes in the form of messages, or None."""
    if not special:
        return None
    found = [(write[0], special[write[0]]) for write in writes if write[0] in special]
    return {key: (schema.pack_mask(deltas), shared) for key, (deltas, shared) in found} or None


def group_by_tablet(route: TableRoute, writes: Iterable[Write]) -> list[tuple[Tablet, list[Write]]]:
    """Group writes by the tablet of their key."""
    groups: dict[TabletId, tuple[Tablet, list[Write]]] = {}
    for write in writes:
        tablet = route.tablet_of(write[0])
        known = groups.get(tablet.tablet)
        if known is None:
            groups[tablet.tablet] = (tablet, [write])
        else:
            known[1].append(write)
    return list(groups.values())
