"""Which versions of an application are in which tables. Pure.

Owns: the rows of `//sys/load_applications`, one for each application and table. The transaction
that makes a load's rows visible writes them. These rows say about another load that all of its
tables have its version, or none, or only some. The last case is an error.

Invariants:
- A version counts only for the table that it was recorded for, at the path of the table then. It
  does not count for a later table at that path, or for its table at another path.
- A load is skipped only if its version was recorded before it began. A version that is recorded
  while the load runs is that of another load, perhaps with other rows. That is a conflict, and
  raises an error.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dodona._core.loads.records import APPLICATIONS, Records
from dodona._core.loads.ticket import LoadTicket, Published
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.versions import VersionedRow
from dodona._core.writing.transaction import TransactionBuffer
from dodona_wire.errors import ConcurrentTransaction, NodeNotFound, ProtocolChanged
from dodona_wire.types import SYNC_LAST_COMMITTED, LoadId, Timestamp


class RecordedVersion(NamedTuple):
    """The last version of an application in one table, with the load that recorded it and the
    time."""

    version: int
    query: str | None
    load: LoadId
    timestamp: Timestamp
    table: int
    """The tree node that the version was recorded for."""


Versions = Mapping[str, RecordedVersion]
"""The last version in each table, by the path of the table."""


def read_versions(
    records: Records, ticket: LoadTicket, transaction: TransactionBuffer | None = None
) -> Protocol[Versions]:
    """Return the recorded versions of the load's application in the load's tables. `transaction`
    says at which snapshot; None is now."""
    at = SYNC_LAST_COMMITTED if transaction is None else transaction.read_timestamp()
    paths = [table.path for table in ticket.tables]
    keys = [{"application": ticket.application, "path": path} for path in paths]
    yield from records.ensure()
    rows = yield from records.read(
        lambda: records.session.lookup_versions(APPLICATIONS, keys, timestamp=at)
    )
    found = {row.key["path"]: row for row in rows}
    known: dict[str, RecordedVersion] = {}
    for path in paths:
        version = version_of(found.get(path))
        if version is not None and version.table == (yield from _node_at(records, path)):
            known[path] = version
    return known


def insert_versions(
    records: Records, ticket: LoadTicket, transaction: TransactionBuffer
) -> Protocol[None]:
    """Put the records of the load's version into the transaction, one for each table of the
    load."""
    rows: list[dict[str, Any]] = []
    for table in ticket.tables:
        node = yield from _node_at(records, table.path)
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
    return RecordedVersion(newest["version"], newest["query"], load, at, newest["table"])


def _node_at(records: Records, path: str) -> Protocol[int | None]:
    """Return the tree node of the table that is at the path now, or None if there is no table."""
    try:
        node: int = yield from records.session.catalog.get(f"{path}/@id")
    except NodeNotFound:
        return None
    return node


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
