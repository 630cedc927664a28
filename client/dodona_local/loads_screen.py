"""Bulk loads as the command line shows them: a table for people, JSON for programs.

Owns: which columns there are, and what one line says at the end of a load. Asks nobody anything.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from dodona import LoadRecord, LoadRecovery, Published
from dodona.types import LoadId, Timestamp, unix_us_from_timestamp
from dodona_local.progress_screen import show_table

LOAD_COLUMNS = ("load", "began", "state", "mode", "rows", "deleted", "tables", "owner", "")
RECOVERY_COLUMNS = ("load", "began", "outcome", "was", "tables", "by", "why")
JSON = "json"


def show_loads(records: Sequence[LoadRecord], form: str) -> None:
    """To standard output."""
    if form == JSON:
        _show_json(records)
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
    """To standard output."""
    if form == JSON:
        _show_json(recoveries)
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
    """Of a load that was to be aborted: to standard output."""
    if form == JSON:
        _show_json({"load": load, "published": published})
    elif published is None:
        print(f"load {load} is aborted")
    else:
        rows = f"{published.row_count:,} rows at timestamp {published.timestamp}"
        print(f"load {load} was published before, with {rows}, and stays so")


def _show_json(found: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


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
