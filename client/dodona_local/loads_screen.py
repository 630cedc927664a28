"""Print bulk loads on the command line: a table for people, all fields for programs.

Owns: the columns, and the line at the end of a load. Sends no request.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dodona import LoadRecord, LoadRecovery, Published
from dodona_local.cli.options import Format
from dodona_local.cli.printing import print_json, print_list
from dodona_local.progress_screen import show_table
from dodona_wire.rows.schema import Column
from dodona_wire.types import LoadId, Timestamp, unix_us_from_timestamp

LOAD_COLUMNS = ("load", "began", "state", "mode", "rows", "deleted", "tables", "owner", "")
RECOVERY_COLUMNS = ("load", "began", "outcome", "was", "tables", "by", "why")
NUMBERS: Final = frozenset(
    {"load", "lease_ms", "version", "row_count", "deleted_count", "commit_timestamp", "timestamp"}
)


def show_loads(records: Sequence[LoadRecord], form: str) -> None:
    """Print the loads to standard output."""
    if form != Format.TABLE:
        _show_fields(LoadRecord, records, form)
        return
    show_table(
        LOAD_COLUMNS,
        [
            (
                *(str(it.load), _time_of(it.load), it.state, it.mode, _count(it.row_count)),
                *(_count(it.deleted_count), ", ".join(it.tables), it.owner, _remark(it)),
            )
            for it in records
        ],
    )


def show_recoveries(recoveries: Sequence[LoadRecovery], form: str) -> None:
    """Print the recoveries to standard output."""
    if form != Format.TABLE:
        _show_fields(LoadRecovery, recoveries, form)
        return
    show_table(
        RECOVERY_COLUMNS,
        [
            (
                *(str(it.load), _time_of(it.load), it.outcome, it.state_before),
                *(", ".join(it.tables), it.owner, it.reason),
            )
            for it in recoveries
        ],
    )


def show_end(load: int, published: Published | None, form: str) -> None:
    """Print the end of a load that was to be aborted, to standard output."""
    if form == Format.JSON:
        print_json({"load": load, "published": published})
    elif form != Format.TABLE:
        names = ("timestamp", "row_count", "deleted_count")
        end = [None if published is None else getattr(published, name) for name in names]
        print_list(Format(form), [*map(_column, ("load", *names))], [(load, *end)])
    elif published is None:
        print(f"load {load} is aborted")
    else:
        rows = f"{published.row_count:,} rows at timestamp {published.timestamp}"
        print(f"load {load} was published before, with {rows}, and stays published")


def _show_fields(kind: type[msgspec.Struct], found: Sequence[Any], form: str) -> None:
    """Print all known fields of each."""
    if form == Format.JSON:
        print_json(found)
        return
    columns = [_column(name) for name in kind.__struct_fields__]
    print_list(Format(form), columns, [msgspec.structs.astuple(it) for it in found])


def _column(name: str) -> Column:
    if name == "tables":
        return Column(name, "any")
    return Column(name, "int64" if name in NUMBERS else "utf8")


def _remark(record: LoadRecord) -> str:
    if record.application is None:
        return record.reason or ""
    version = f"version {record.version} of {record.application}"
    return f"{version}: {record.reason}" if record.reason else version


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _time_of(load: LoadId) -> str:
    moment = datetime.fromtimestamp(unix_us_from_timestamp(Timestamp(load)) / 1e6, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"
