"""Save and restore versions of applications: which loads are in the rows of a backup's tables.

Owns: how versions are read from `//sys/load_applications`, and how they are written there for
restored tables. That table itself is neither saved nor restored. Its rows name tables by their ids,
and a restored table has a new id. Another cluster may have given the old id to another table. So a
backup has, for each table, the versions that counted for it.

Invariants:
- Versions are read at the same timestamp as the rows. So the rows of each saved version are in the
  backup.
- A version is written for the id of a staged table, and for that table's final path. It has no
  effect until the table is there, and counts from then on.
- A version that is not certain is dropped, with a warning. A load that is repeated is then
  published again, but no load is skipped that was never published.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from dodona._core.loads.records import APPLICATIONS, ATTRIBUTES, SCHEMAS, check_columns
from dodona._core.loads.versions import RecordedVersion, version_of
from dodona.client import Client
from dodona_local.backup.manifest import SavedVersion
from dodona_wire.errors import DodonaWarning, SnapshotTooOld
from dodona_wire.types import Timestamp

VERSIONS_COME_WITH_TABLES: Final = (
    f"{APPLICATIONS} can't be saved or restored: each table brings the versions of applications "
    "that were published in it. Name those tables"
)
ROWS_PER_CALL: Final = 1000

VersionsByPath = Mapping[str, tuple[SavedVersion, ...]]
Row = TypeVar("Row")


# ---- reading


def read_versions(db: Client, paths: Sequence[str], timestamp: Timestamp) -> VersionsByPath:
    """Return the versions that counted for the tables at these paths, as of a timestamp. Warns if
    that is not known any more. Raises TableNotMounted, Unavailable."""
    if not paths:
        return {}
    try:
        found = _recorded(db, timestamp)
    except SnapshotTooOld:
        text = (
            f"{APPLICATIONS} does not reach back to the timestamp, so the backup has no versions "
            "of applications. If a load is repeated after a restore, it is published again"
        )
        warnings.warn(text, DodonaWarning, stacklevel=3)
        return {}
    return {path: _of_table(db, path, found) for path in paths} if found else {}


_Found = Mapping[str, Mapping[str, RecordedVersion]]
"""The versions by application and path."""


def _recorded(db: Client, timestamp: Timestamp) -> _Found:
    """Return all recorded versions, also those that count for no table any more."""
    schema = db.get_table(APPLICATIONS).schema
    check_columns(APPLICATIONS, schema)
    keys = list(db.select(APPLICATIONS, columns=schema.key_names, timestamp=timestamp))
    found: dict[str, dict[str, RecordedVersion]] = {}
    for some in _in_calls(keys):
        for row in db.lookup_versions(APPLICATIONS, some, timestamp=timestamp):
            version = version_of(row)
            if version is not None:
                found.setdefault(row.key["application"], {})[row.key["path"]] = version
    return found


def _of_table(db: Client, path: str, found: _Found) -> tuple[SavedVersion, ...]:
    node = db.get(f"{path}/@id")
    counting = []
    for application, by_path in found.items():
        version = by_path.get(path)
        if version is not None and version.table == node:
            counting.append(SavedVersion(application, version.version, version.load, version.query))
    return tuple(counting)


# ---- restoring


def prepare_versions_table(db: Client) -> None:
    """Create and mount the table of versions if needed. Loads create the same table, so it may stay
    if a restore fails. Raises InvalidRequest if the table has other columns."""
    if not db.exists(APPLICATIONS):
        db.create_table(
            APPLICATIONS, SCHEMAS[APPLICATIONS], attributes=ATTRIBUTES[APPLICATIONS], mount=True
        )
        return
    table = db.get_table(APPLICATIONS)
    check_columns(APPLICATIONS, table.schema)
    if not table.is_mounted:
        db.mount_table(APPLICATIONS)


def write_versions(db: Client, path: str, node: int, versions: Sequence[SavedVersion]) -> None:
    """Record versions for a table that is not at this path yet. Versions that are recorded for the
    path belong to a table that was removed or moved, and are overwritten."""
    rows = [
        {
            "application": it.application,
            "path": path,
            "version": it.version,
            "load": it.load,
            "query": it.query,
            "table": node,
        }
        for it in versions
    ]
    for some in _in_calls(rows):
        db.insert_rows(APPLICATIONS, some)


def _in_calls(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for begin in range(0, len(rows), ROWS_PER_CALL):
        yield rows[begin : begin + ROWS_PER_CALL]
