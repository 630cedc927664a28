"""Check all rows of data before the first request, and make writes of few rows. Pure.

Owns: the order of the checks, and what the checks keep. Columns and values come first, part by
part, then the keys of all rows together. So nothing is sent of data with a mistake.
pyarrow is imported on first use.
Invariant: the errors name the column and the row. Rows count from 0, in the whole data.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from dodona._core.protocol.limits import TransactionLimits
from dodona._core.protocol.steps import Pause, Protocol
from dodona._core.writing.bulk import (
    PART_BYTES_FIRST,
    Pace,
    check_values,
    counted_from,
    parts_of,
)
from dodona._core.writing.tabular import batches_of, converted, is_whole
from dodona_wire.errors import DuplicateKey, InvalidRequest, LimitExceeded
from dodona_wire.rows.arrow import arrow_schema, value_rows
from dodona_wire.rows.arrow_keys import KEYS_BYTES_MAX, encode_keys, first_disorder, first_repeated
from dodona_wire.rows.schema import TableSchema
from dodona_wire.shown import shown
from dodona_wire.types import DELETE_MASK, BatchKind, Key, Write

NO_TIME: Final = Pause(0)
"""Lets other tasks of an event loop run between two parts."""


class Checked(NamedTuple):
    """Data that fits a table: record batches with the table's columns, and their encoded keys."""

    parts: list[Any]
    keys: list[Any]

    @property
    def row_count(self) -> int:
        return sum(it.num_rows for it in self.parts)

    @property
    def size_bytes(self) -> int:
        return sum(it.nbytes for it in self.parts)


def check_all(schema: TableSchema, data: Any, kind: BatchKind) -> Protocol[Checked]:
    """Return the checked data, which must be whole (see `tabular`). Raises SchemaViolation,
    DuplicateKey, LimitExceeded, InvalidRequest."""
    checked = Checked([], [])
    for _ in _checking(schema, data, kind, checked):
        yield NO_TIME
    return checked


def check_at_once(schema: TableSchema, data: Any, kind: BatchKind) -> Checked:
    """Return the checked data, as `check_all` does, without a pause: for few rows."""
    checked = Checked([], [])
    for _ in _checking(schema, data, kind, checked):
        pass
    return checked


def _checking(schema: TableSchema, data: Any, kind: BatchKind, checked: Checked) -> Iterator[None]:
    """Check the data and put it into `checked`. Yield after each part."""
    arrow_schema(schema)  # if pyarrow is missing, says what to install
    batches = batches_of(converted(schema, data, is_update=kind == "update"))
    row_count = 0
    for part in parts_of(schema, batches, Pace(PART_BYTES_FIRST), kind):
        with counted_from(row_count):
            check_values(schema, part)
            keys = encode_keys(schema, part)
        checked.parts.append(part)
        checked.keys.append(keys)
        row_count += part.num_rows
        yield
    _check_repeated(schema, checked.keys)


def _check_repeated(schema: TableSchema, parts: list[Any]) -> None:
    """Check that no key comes twice. Keys in order, as most are, are only compared with the next
    ones."""
    import pyarrow

    if _is_rising(parts):
        return
    size_bytes = sum(it.nbytes for it in parts)
    if size_bytes > KEYS_BYTES_MAX:
        raise LimitExceeded(
            f"The keys of all rows have more than {KEYS_BYTES_MAX} bytes. Sort the rows by key, or "
            "write them in parts.",
            size_bytes=size_bytes,
        )
    keys = pyarrow.concat_arrays(parts)
    found = first_repeated(keys)
    if found is None:
        return
    first, again = found
    key = schema.named_key(Key(keys[again].as_py()))
    text = f"rows {first} and {again} of the data have the same key {key}: write each key once"
    raise DuplicateKey(
        text, key=key, columns=[*schema.key_names], row_index=again, first_row_index=first
    )


def _is_rising(parts: list[Any]) -> bool:
    """Return whether each key is above the one before it, across all parts."""
    parts = [it for it in parts if len(it)]
    if any(first_disorder(it) is not None for it in parts):
        return False
    return all(before[-1].as_py() < after[0].as_py() for before, after in pairwise(parts))


def check_short_write(data: Any, mode: str) -> None:
    """Check the data and the mode of a write in a transaction. Raises InvalidRequest."""
    if mode not in ("upsert", "delete"):
        raise InvalidRequest(
            f"In a transaction, mode is 'upsert' or 'delete', not {shown(mode)}. The other modes "
            "are for `write` of the client."
        )
    if not is_whole(data):
        raise InvalidRequest(
            "A transaction keeps rows in memory, and takes no stream. Make a table of it first, or "
            "use `write` of the client."
        )


def check_short(checked: Checked, path: str, limits: TransactionLimits) -> None:
    """Check that a transaction can have so many rows, before each of them is a Python object.
    Raises LimitExceeded."""
    if checked.row_count > limits.rows_max or checked.size_bytes > limits.bytes_max:
        raise LimitExceeded(
            f"A transaction writes at most {limits.rows_max} rows and {limits.bytes_max} bytes. "
            "Write this data with `write` of the client, outside of the transaction.",
            table=path,
            row_count=checked.row_count,
            size_bytes=checked.size_bytes,
        )


def writes_of(schema: TableSchema, checked: Checked, kind: BatchKind) -> list[Write]:
    """Return the rows as writes of whole rows, or as deletions. Each is a Python object, so this is
    for few rows."""
    keys = [Key(key) for part in checked.keys for key in part.to_pylist()]
    if kind == "delete":
        return [(key, DELETE_MASK, ()) for key in keys]
    rows = [row for part in checked.parts for row in value_rows(schema, part)]
    mask = schema.full_mask
    return [(key, mask, row) for key, row in zip(keys, rows, strict=True)]
