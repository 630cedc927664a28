"""What a caller requires of its rows at the commit, in the client that holds them. Pure.

Owns: the arguments `if_absent`, `if_version` and `expect`, and the conditions that they make. A
condition is about committed rows, at the commit. It knows nothing of the transaction's own writes.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from dodona._core.protocol.arguments import check_flag, check_number
from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.conditions import RowCondition
from dodona_wire.rows.conditions import differing, required_values
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.sizes import VALUE_BYTES, write_bytes
from dodona_wire.shown import shown
from dodona_wire.types import MAX_TIMESTAMP, MIN_TIMESTAMP, NULL_TIMESTAMP, Key, Timestamp


class Requirement(NamedTuple):
    """What one call requires of each of its rows."""

    is_absent: bool
    version: Timestamp
    expected: Mapping[str, Any]
    """The values of columns. None may be among them. No columns: no values are required."""


class Conditions(NamedTuple):
    """The conditions that one call adds to a transaction. `size_bytes` is about how long they are
    in a message, and never too little."""

    by_key: Mapping[Key, RowCondition]
    size_bytes: int


NOTHING: Final = Conditions({}, 0)


def requirement_of(
    if_absent: bool, if_version: Timestamp | None, expect: Mapping[str, Any] | None
) -> Requirement | None:
    """Return what these arguments require, or None, which is the usual case. Raises
    InvalidRequest."""
    if if_absent is False and if_version is None and expect is None:
        return None
    check_flag(if_absent, "if_absent")
    if if_version is not None:
        check_number(if_version, "if_version", MIN_TIMESTAMP, MAX_TIMESTAMP)
    given: object = expect
    if given is not None and not (isinstance(given, Mapping) and given):
        text = f"expect is a dict from columns to values, with a column, not {shown(given)}"
        raise InvalidRequest(text)
    if if_absent and (if_version is not None or expect is not None):
        raise InvalidRequest(
            "A row that is absent has no version and no values. Leave out if_absent, or the others."
        )
    return Requirement(if_absent, if_version or NULL_TIMESTAMP, dict(expect or {}))


def conditions_of(
    schema: TableSchema,
    keys: Iterable[Key],
    required: Requirement,
    known: Mapping[Key, RowCondition],
) -> Conditions:
    """Return the conditions for the rows of these keys. `known` are those of the transaction.
    Raises SchemaViolation, and InvalidRequest if a row has another condition already."""
    mask, values = required_values(schema, required.expected)
    packed = schema.pack_mask(mask)
    size_bytes = write_bytes((Key(b""), mask, values)) + 3 * VALUE_BYTES
    made: dict[Key, RowCondition] = {}
    for key in keys:
        condition = RowCondition(key, required.is_absent, required.version, packed, values)
        if not _is_same(known.get(key, condition), condition):
            raise InvalidRequest(
                "The transaction has another condition for this row. Give one condition per row.",
                key=schema.named_key(key),
            )
        made[key] = condition
    return Conditions(made, sum(map(len, made)) + size_bytes * len(made))


def _is_same(one: RowCondition, other: RowCondition) -> bool:
    """Return whether two conditions for a row require the same. NaN is the same as NaN, and 1 is
    not the same as True."""
    form = attrgetter("is_absent", "version", "column_mask")
    return bool(form(one) == form(other)) and not differing(one.values, other.values)
