"""Write data by one call: in one transaction, as a bulk load, or directly without atomicity. Pure.

Owns: the modes of such a call, and how the data is written.

- An upsert or a delete of few rows of a table with atomicity is one transaction. If it conflicts,
  it is a load.
- All else, also each insert, update and replace, of a table with atomicity is a bulk load. The
  client carries it out, since it renews the lease meanwhile: this module returns a `Pending` load.
- A table without atomicity gets the rows in bulk.

Whole data (see `tabular`) is checked before the first request. A stream is checked as it is sent.
If it says its columns before it has rows, these are checked first.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from dodona._core.loads.ticket import KINDS, Published, Range, WriteMode
from dodona._core.protocol.arguments import check_path
from dodona._core.protocol.attempts import unless_stale
from dodona._core.protocol.context import Context
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.spans import traced_as
from dodona._core.protocol.steps import Protocol
from dodona._core.row_session import RowSession
from dodona._core.writing import bulk
from dodona._core.writing.tabular import columns_of_reader, is_whole
from dodona._core.writing.whole import Checked, check_all, writes_of
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    TransactionConflict,
)
from dodona_wire.shown import shown
from dodona_wire.types import BatchKind, LoadMode, timestamp_from_unix_us

ROWS_MAX: Final = 10_000
"""The most rows that are one transaction, of which each is a Python object."""
BYTES_MAX: Final = 8 << 20


class Pending(NamedTuple):
    """A load that the client still has to carry out."""

    mode: LoadMode
    erased: Mapping[str, Range] | None
    data: Any


@traced_as("write")
def write(
    session: RowSession, context: Context, path: str, data: Any, mode: WriteMode
) -> Protocol[Published | Pending]:
    """Write the data, or return the load that writes it. Raises SchemaViolation, DuplicateKey,
    InvalidRequest, and the errors of a transaction."""
    check_path(path)
    if mode not in get_args(WriteMode):
        raise InvalidRequest(f"mode is one of {get_args(WriteMode)}, not {shown(mode)}")
    kind = KINDS["upsert" if mode == "replace" else mode]
    try:
        if not is_whole(data):
            route = yield from context.fresh_route(path)
            return (yield from _write_stream(context, route, data, mode))

        def check() -> Protocol[tuple[TableRoute, Checked]]:
            route = yield from context.route(path)
            _check_mode(route, mode)
            return route, (yield from check_all(route.schema, data, kind))

        route, checked = yield from unless_stale(context, path, check)
        return (yield from _write_checked(session, context, route, checked, mode))
    except DodonaError as error:
        error.attributes.setdefault("table", path)
        raise


def _check_mode(route: TableRoute, mode: WriteMode) -> None:
    if route.atomicity == "none" and mode not in ("upsert", "delete"):
        raise InvalidRequest(
            "A table without atomicity takes the modes 'upsert' and 'delete' only, not "
            f"{shown(mode)}.",
            table=route.path,
        )


def _write_stream(
    context: Context, route: TableRoute, data: Any, mode: WriteMode
) -> Protocol[Published | Pending]:
    _check_mode(route, mode)
    kind = KINDS["upsert" if mode == "replace" else mode]
    if (columns := columns_of_reader(data)) is not None:
        bulk.fit(route.schema, columns, kind)
    if route.atomicity == "none":
        return (yield from _write_directly(context, route.path, data, mode))
    return _pending(route.path, data, mode)


def _write_checked(
    session: RowSession, context: Context, route: TableRoute, checked: Checked, mode: WriteMode
) -> Protocol[Published | Pending]:
    path = route.path
    is_short = checked.row_count <= ROWS_MAX and checked.size_bytes <= BYTES_MAX
    if not checked.row_count and mode != "replace":  # every snapshot from now on has all of them
        return Published((yield from context.generate_timestamp()), 0)
    # Stored forms of logical types are no users' data, so they must not be converted again.
    is_stored = route.schema.has_logical
    data = bulk.Fitted(route.schema, checked.parts) if is_stored else checked.parts
    if route.atomicity == "none":
        return (yield from _write_directly(context, path, data, mode))
    if is_short and mode in ("upsert", "delete"):
        writes = writes_of(route.schema, checked, KINDS[mode])
        try:
            timestamp = yield from session.write_made(route, writes)
        except LimitExceeded:  # many values in few rows
            return _pending(path, data, mode)
        except TransactionConflict:  # in several cells, it has a snapshot; a load overwrites
            return _pending(path, data, mode)
        return Published(timestamp, checked.row_count)
    return _pending(path, data, mode)


def _pending(path: str, data: Any, mode: WriteMode) -> Pending:
    if mode == "replace":
        return Pending("upsert", {path: (None, None)}, data)
    return Pending(mode, None, data)


def _write_directly(context: Context, path: str, data: Any, mode: WriteMode) -> Protocol[Published]:
    stamp = timestamp_from_unix_us(context.unix_us())
    kind: BatchKind = "delete" if mode == "delete" else "write"
    row_count = yield from bulk.write_arrow(context, path, data, "sync", None, kind=kind)
    return Published(stamp, row_count)
