"""Which versions of an application are in which tables. Pure.

Owns: the rows of `//sys/load_applications`, one for each application and table, written by the
transaction that makes a load's rows visible; and what they say about another load: that all of it
was done before, or nothing, or, which is an error, that some of its tables have the version.

Invariants:
- A version counts for the table that it was recorded for, at the path where the table was: not for
  a table made later at that path, and not for its table at another path. Rows from before there was
  one for each table have no path, and count for the tables that existed then.
- A load is skipped only if its version was there before it began. One that is recorded while it
  runs is another load's, and perhaps other rows: that is a conflict, and never silent.
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
"""A table's creation has the wall clock's time, which timestamps follow within about a second."""


class RecordedVersion(NamedTuple):
    """The last version of an application in one table: whose it was, and when it was published."""

    version: int
    query: str | None
    load: LoadId
    timestamp: Timestamp
    table: int | None
    """The node of the tree that it was recorded for; None if that is not known."""


Versions = Mapping[str, RecordedVersion]
"""By the table's path."""


def read_versions(
    records: Records, ticket: LoadTicket, transaction: TransactionBuffer | None = None
) -> Protocol[Versions]:
    """What is recorded of the load's application in the load's tables: as a transaction sees it,
    or by now."""
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
    """Buffer the records of the load's version: of all its tables."""
    rows: list[dict[str, Any]] = []
    for table in ticket.tables:
        node = yield from _attribute(records, table.path, "id")
        if node is None:
            text = "the table was removed while the load was under way"
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
    """None if there is none, or somebody wants the application to begin anew: what it was may be
    there still."""
    if row is None or max(row.delete_timestamps, default=0) > max(row.write_timestamps, default=-1):
        return None
    newest = {name: values[0].value for name, values in row.values.items()}
    at = row.write_timestamps[0]
    load = LoadId(newest["load"])
    return RecordedVersion(newest["version"], newest["query"], load, at, newest.get("table"))


def _is_of(records: Records, path: str, version: RecordedVersion) -> Protocol[bool]:
    """Whether it was recorded for the table that is at this path now."""
    if version.table is not None:
        return is_of(version, (yield from _attribute(records, path, "id")), None)
    return is_of(version, None, (yield from _attribute(records, path, "creation_time")))


def is_of(version: RecordedVersion, node: int | None, creation_time: str | None) -> bool:
    """Whether it was recorded for the table that has these attributes and is at the version's path.
    The creation time counts only if the version does not say of which table it is."""
    if version.table is not None:
        return node == version.table
    if creation_time is None:
        return False
    return _unix_us(creation_time) <= unix_us_from_timestamp(version.timestamp) + CLOCKS_US


def _unix_us(text: str) -> int:
    """The instant of the tree's `creation_time`, as in 2026-01-31T12:30:00.000000Z."""
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    hour, minute, second = int(text[11:13]), int(text[14:16]), int(text[17:19])
    year -= month <= 2  # a leap day is the last of a year that begins in March
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + int(text[20:26])


def _attribute(records: Records, path: str, name: str) -> Protocol[Any]:
    """Of the table that is at the path now; None if there is none."""
    try:
        return (yield from records.session.catalog.get(f"{path}/@{name}"))
    except NodeNotFound:
        return None


# What they say about a load


def is_done(ticket: LoadTicket, known: RecordedVersion) -> bool:
    """Whether the version is recorded, or a later one of the same query."""
    assert ticket.version is not None
    return known.query == ticket.query and known.version >= ticket.version


def skipped(ticket: LoadTicket, versions: Versions) -> Timestamp | None:
    """When the version was recorded, if all of the load's tables have it. Raises
    ConcurrentTransaction if some do and others do not."""
    done = _done(ticket, versions)
    missing = [table.path for table in ticket.tables if table.path not in done]
    if not done:
        return None
    if missing:
        raise _partly(ticket, done, missing)
    return max(it.timestamp for it in done.values())


def check_versions(ticket: LoadTicket, versions: Versions) -> Published | None:
    """What is to be said of a load that is about to be published: that it is skipped, if that is
    so. Raises ConcurrentTransaction."""
    assert ticket.version is not None
    for known in versions.values():
        if known.query != ticket.query and ticket.version > 0:
            raise _overtaken(ticket, known)
    at = skipped(ticket, versions)
    if at is None:
        return None
    if at < ticket.load:  # as of a batch of a stream, whose number is not known at its begin
        return Published(at, 0, is_skipped=True)
    done = _done(ticket, versions)
    text = (
        f"version {ticket.version} of application {ticket.application!r} was published by another "
        f"load while this one ran: {_listed(done)}. Look whether that one wrote the same rows"
    )
    raise ConcurrentTransaction(text, **_attributes(ticket, done, ()))


def _done(ticket: LoadTicket, versions: Versions) -> Versions:
    return {path: it for path, it in versions.items() if is_done(ticket, it)}


def _partly(ticket: LoadTicket, done: Versions, missing: Iterable[str]) -> ConcurrentTransaction:
    text = (
        f"version {ticket.version} of application {ticket.application!r} is recorded for some of "
        f"the load's tables: {_listed(done)}. It is not recorded for {', '.join(missing)}. Load "
        "these tables without the others, or give the load another version"
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
        f"application {ticket.application!r} is another query's by now: one of them has to "
        "stop, or to be given another name",
        application=ticket.application,
        version=ticket.version,
        query=ticket.query,
        other_query=known.query,
        other_version=known.version,
    )
