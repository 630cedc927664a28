"""Which versions of an application are in which tables. Pure.

Owns: the rows of `//sys/load_applications`, one for each application and table. The transaction
that makes a load's rows visible writes them. These rows say about another load that all of its
tables have its version, or none, or only some. The last case is an error.

Invariants:
- A version counts only for the table that it was recorded for, at the path of the table then. It
  does not count for a later table at that path, or for its table at another path.
- Old rows, from before there was one for each table, have no path. They count for the tables that
  existed then.
- A load is skipped only if its version was recorded before it began. A version that is recorded
  while the load runs is that of another load, perhaps with other rows. That is a conflict, and
  raises an error.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from dodona._core.loads.records import APPLICATIONS, Records
from dodona._core.loads.ticket import LoadTicket, Published
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.versions import VersionedRow
from dodona._core.writing.transaction import TransactionBuffer
from dodona_wire.errors import ConcurrentTransaction, NodeNotFound, ProtocolChanged
from dodona_wire.types import SYNC_LAST_COMMITTED, LoadId, Timestamp, unix_us_from_timestamp

CLOCKS_US: Final = 2_000_000
"""A table has its creation time from the wall clock. Timestamps differ from it by about a second at
most."""


class RecordedVersion(NamedTuple):
    """The last version of an application in one table, with the load that recorded it and the
    time."""

    version: int
    query: str | None
    load: LoadId
    timestamp: Timestamp
    table: int | None
    """The tree node that the version was recorded for, or None if it is unknown."""


Versions = Mapping[str, RecordedVersion]
"""The last version in each table, by the path of the table."""


def read_versions(
    records: Records, ticket: LoadTicket, transaction: TransactionBuffer | None = None
) -> Protocol[Versions]:
    """Return the recorded versions of the load's application in the load's tables. `transaction`
    says at which snapshot; None is now."""
    at = SYNC_LAST_COMMITTED if transaction is None else transaction.read_timestamp()
    paths = [table.path for table in ticket.tables]
    keys = [{"application": ticket.application, "path": path} for path in (*paths, None)]
    yield from records.ensure()
    rows = yield from records.read(
        lambda: records.session.lookup_versions(APPLICATIONS, keys, timestamp=at)
    )
    found = {row.key["path"]: row for row in rows}
    known: dict[str, RecordedVersion] = {}
    for path in paths:
        version = version_of(found.get(path, found.get(None)))
        if version is not None and (yield from _is_of(records, path, version)):
            known[path] = version
    return known


def insert_versions(
    records: Records, ticket: LoadTicket, transaction: TransactionBuffer
) -> Protocol[None]:
    """Put the records of the load's version into the transaction, one for each table of the
    load."""
    rows: list[dict[str, Any]] = []
    for table in ticket.tables:
        node = yield from _attribute(records, table.path, "id")
        if node is None:
            text = "The table was removed during the load. Check the path, then begin a new load."
            raise ProtocolChanged(text, table=table.path)
        rows.append(
            {
                "application": ticket.application,
                "path": table.path,
                "version": ticket.version,
                "load": ticket.load,
                "query": ticket.query,
                "table": node,
            }
        )
    yield from records.session.insert_rows(transaction, APPLICATIONS, rows)


def version_of(row: VersionedRow | None) -> RecordedVersion | None:
    """Return the version in a record. None if there is none, or if its record was deleted to let
    the application begin again. Old versions of a deleted row may still be there."""
    if row is None or max(row.delete_timestamps, default=0) > max(row.write_timestamps, default=-1):
        return None
    newest = {name: values[0].value for name, values in row.values.items()}
    at = row.write_timestamps[0]
    load = LoadId(newest["load"])
    return RecordedVersion(newest["version"], newest["query"], load, at, newest.get("table"))


def _is_of(records: Records, path: str, version: RecordedVersion) -> Protocol[bool]:
    """Return whether the version was recorded for the table that is at this path now."""
    if version.table is not None:
        return is_of(version, (yield from _attribute(records, path, "id")), None)
    return is_of(version, None, (yield from _attribute(records, path, "creation_time")))


def is_of(version: RecordedVersion, node: int | None, creation_time: str | None) -> bool:
    """Return whether the version was recorded for the table with these attributes, at the version's
    path. The creation time counts only if the version does not name its table."""
    if version.table is not None:
        return node == version.table
    if creation_time is None:
        return False
    return _unix_us(creation_time) <= unix_us_from_timestamp(version.timestamp) + CLOCKS_US


def _unix_us(text: str) -> int:
    """Return the microseconds of the tree's `creation_time`, as in 2026-01-31T12:30:00.000000Z."""
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    hour, minute, second = int(text[11:13]), int(text[14:16]), int(text[17:19])
    year -= month <= 2  # years begin in March here, so a leap day is the last day
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + int(text[20:26])


def _attribute(records: Records, path: str, name: str) -> Protocol[Any]:
    """Return an attribute of the table that is at the path now, or None if there is no table."""
    try:
        return (yield from records.session.catalog.get(f"{path}/@{name}"))
    except NodeNotFound:
        return None


# What the versions say about a load


def is_done(ticket: LoadTicket, known: RecordedVersion) -> bool:
    """Return whether the version, or a later one of the same query, is recorded."""
    assert ticket.version is not None
    return known.query == ticket.query and known.version >= ticket.version


def skipped(ticket: LoadTicket, versions: Versions) -> Timestamp | None:
    """Return when the version was recorded, if all tables of the load have it, or None. Raises
    ConcurrentTransaction if some have it and others do not."""
    done = _done(ticket, versions)
    missing = [table.path for table in ticket.tables if table.path not in done]
    if not done:
        return None
    if missing:
        raise _partly(ticket, done, missing)
    return max(it.timestamp for it in done.values())


def check_versions(ticket: LoadTicket, versions: Versions) -> Published | None:
    """Return the result of a load that is skipped, or None if it must be published. Raises
    ConcurrentTransaction."""
    assert ticket.version is not None
    for known in versions.values():
        if known.query != ticket.query and ticket.version > 0:
            raise _overtaken(ticket, known)
    at = skipped(ticket, versions)
    if at is None:
        return None
    if at < ticket.load:  # a batch of a stream: at its begin, its number is not known
        return Published(at, 0, is_skipped=True)
    done = _done(ticket, versions)
    text = (
        f"Another load published version {ticket.version} of application {ticket.application!r} "
        f"during this load: {_listed(done)}. Check whether that load wrote the same rows."
    )
    raise ConcurrentTransaction(text, **_attributes(ticket, done, ()))


def _done(ticket: LoadTicket, versions: Versions) -> Versions:
    return {path: it for path, it in versions.items() if is_done(ticket, it)}


def _partly(ticket: LoadTicket, done: Versions, missing: Iterable[str]) -> ConcurrentTransaction:
    text = (
        f"Version {ticket.version} of application {ticket.application!r} is recorded for some of "
        f"the load's tables: {_listed(done)}. It is not recorded for {', '.join(missing)}. Load "
        "only the tables without the version, or give the load another version."
    )
    return ConcurrentTransaction(text, **_attributes(ticket, done, missing))


def _listed(done: Versions) -> str:
    return ", ".join(f"{path} (by load {it.load})" for path, it in done.items())


def _attributes(ticket: LoadTicket, done: Versions, missing: Iterable[str]) -> dict[str, Any]:
    return {
        "application": ticket.application,
        "version": ticket.version,
        "recorded": {path: it.version for path, it in done.items()},
        "not_recorded": list(missing),
        "loads": sorted({it.load for it in done.values()}),
    }


def _overtaken(ticket: LoadTicket, known: RecordedVersion) -> ConcurrentTransaction:
    return ConcurrentTransaction(
        f"Another query now uses application {ticket.application!r}. Stop one of the two queries, "
        "or give one of them another application.",
        application=ticket.application,
        version=ticket.version,
        query=ticket.query,
        other_query=known.query,
        other_version=known.version,
    )
