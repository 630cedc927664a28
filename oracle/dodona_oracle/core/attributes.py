"""Attributes of nodes: the user's own, and the system attributes of the catalog. Pure.

Owns: the names and the values of system attributes, the list of those that users may set, and the
rules for values. A value is of a type that JSON has, so it is the same over each protocol. Times
are text. Bytes in pivot keys are shown as characters with the same codes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dodona_oracle.core import mounting
from dodona_oracle.core.definitions import check_isolation
from dodona_oracle.core.paths import check_name
from dodona_oracle.core.records import StoredLock, StoredNode, StoredTable, StoredTablet
from dodona_wire.errors import DataCorrupted, InvalidRequest, LimitExceeded
from dodona_wire.messages.attribute_names import OWN_PREFIX, SETTINGS, meant
from dodona_wire.messages.tree import NodeKind
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Key, TableSettings, Timestamp

ATTRIBUTES_MAX: Final = 256
"""The largest number of a user's own attributes of one node."""
VALUE_BYTES_MAX: Final = 64 << 10
VALUE_DEPTH_MAX: Final = 32


class Facts(NamedTuple):
    """All that is needed to compute the attributes of a node."""

    node: StoredNode
    path: str
    table: StoredTable | None
    child_count: int
    locks: Sequence[StoredLock]
    retained_timestamps: Sequence[Timestamp] = ()
    """Those of the table's tablets."""


# Values


def unpack(packed: bytes, path: str) -> Any:
    """Decode the value of a request. Raises InvalidRequest."""
    try:
        return msgspec.msgpack.decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InvalidRequest(f"The value is not MessagePack: {error}.", path=path) from error


def unpack_map(packed: bytes, path: str) -> dict[str, Any]:
    """Decode a map of attributes of a request. Raises InvalidRequest, LimitExceeded."""
    values = unpack(packed, path)
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InvalidRequest("The attributes must be a map from names to values.", path=path)
    for name in values:
        check_name(name, path)
    return values


def pack(name: str, value: Any, path: str) -> bytes:
    """Encode a value for the store. Raises InvalidRequest, LimitExceeded."""
    _check_value(name, value, path, 0)
    packed = msgspec.msgpack.encode(value)
    if len(packed) > VALUE_BYTES_MAX:
        raise LimitExceeded(
            f"The value of an attribute has at most {VALUE_BYTES_MAX} bytes.",
            path=path,
            name=name,
            size_bytes=len(packed),
        )
    return packed


def _check_value(name: str, value: Any, path: str, depth: int) -> None:
    if depth > VALUE_DEPTH_MAX:
        text = f"The value of an attribute can be nested at most {VALUE_DEPTH_MAX} deep."
        raise LimitExceeded(text, path=path, name=name)
    if isinstance(value, dict):
        is_known = all(isinstance(key, str) for key in value)
        parts = list(value.values())
    elif isinstance(value, list):
        is_known, parts = True, value
    else:
        is_known = value is None or type(value) in (bool, int, float, str)
        is_known = is_known and not (type(value) is float and not math.isfinite(value))
        parts = []
    if not is_known:
        raise InvalidRequest(
            "The value of an attribute must be null, a boolean, a finite number, text, a list, or "
            f"a map from text to such values, not {type(value).__name__}.",
            path=path,
            name=name,
        )
    for part in parts:
        _check_value(name, part, path, depth + 1)


# What users set


class Wanted(NamedTuple):
    """Attributes to set: the user's own (packed), and settings of a table."""

    own: dict[str, bytes]
    settings: dict[str, Any]


def sort_out(values: Mapping[str, Any], kind: NodeKind, path: str) -> Wanted:
    """Divide values by kind. Raises InvalidRequest for a name that cannot be set, LimitExceeded."""
    wanted = Wanted({}, {})
    for name, value in values.items():
        is_setting = kind == "table" and name in SETTINGS
        if not is_setting and name in system_names(kind):
            raise InvalidRequest(
                f"{name!r} is a system attribute. It can't be set.", path=path, name=name
            )
        _check_meaning(name, kind, path)
        packed = pack(name, value, path)  # also settings: errors show values, which must be short
        if is_setting:
            wanted.settings[name] = value
        else:
            wanted.own[name] = packed
    return wanted


def _check_meaning(name: str, kind: NodeKind, path: str) -> None:
    """Refuse a name that would be kept without effect, but that is meant to change tables."""
    own = f"Begin the name with {OWN_PREFIX!r} if the attribute is your own."
    if kind == "directory":
        if name in SETTINGS:
            text = (
                f"{name!r} is a setting of tables, but this is a directory, and tables get no "
                f"settings from their directories. Set it on each table. {own}"
            )
            raise InvalidRequest(text, path=path, name=name)
        return
    setting = meant(name)
    if setting is not None:
        text = f"There is no setting {name!r}. Did you mean {setting!r}? {own}"
        raise InvalidRequest(text, path=path, name=name)


def check_count(attributes: Mapping[str, bytes], path: str) -> None:
    """Raise LimitExceeded if a node would have too many attributes."""
    if len(attributes) > ATTRIBUTES_MAX:
        text = f"A node has at most {ATTRIBUTES_MAX} attributes of your own."
        raise LimitExceeded(text, path=path, attribute_count=len(attributes))


def changed_table(table: StoredTable, settings: Mapping[str, Any]) -> StoredTable:
    """Return the table with changed `SETTINGS`. Raises InvalidRequest, InvalidTabletState."""
    others = {name: value for name, value in settings.items() if name != "atomicity"}
    if "atomicity" in settings:
        table = mounting.set_atomicity(table, settings["atomicity"])
    if others:
        table = mounting.set_settings(table, others)
    check_isolation(table.path, table.atomicity, table.settings)
    return table


def pending_settings(node: StoredNode) -> dict[str, Any]:
    """Return the table settings that a transaction changed, which are among its attributes."""
    return {
        name: msgspec.msgpack.decode(packed)
        for name, packed in node.attributes.items()
        if node.kind == "table" and name in SETTINGS
    }


def own_attributes(node: StoredNode) -> dict[str, bytes]:
    """Return the user's own attributes, packed, without settings."""
    if node.kind != "table":
        return node.attributes
    return {name: packed for name, packed in node.attributes.items() if name not in SETTINGS}


# What the catalog says


def system_names(kind: NodeKind) -> tuple[str, ...]:
    """Return the names of the system attributes of this kind of node."""
    return _names[kind]


def all_names(facts: Facts) -> tuple[str, ...]:
    """Return the names of all attributes of a node, sorted."""
    return tuple(sorted({*system_names(facts.node.kind), *own_attributes(facts.node)}))


def has_attribute(facts: Facts, name: str) -> bool:
    """Return whether the node has this attribute."""
    return name in system_names(facts.node.kind) or name in own_attributes(facts.node)


def value_of(facts: Facts, name: str) -> Any:
    """Return the value of one attribute, which the node has."""
    if name not in system_names(facts.node.kind):
        return msgspec.msgpack.decode(facts.node.attributes[name])
    if name in _node_values:
        return _node_values[name](facts)
    assert facts.table is not None
    if name in _table_values:
        return _table_values[name](facts.table)
    if name in SETTINGS:
        return getattr(facts.table.settings, name)
    return _tablet_values[name](facts.table, facts.retained_timestamps)


def _parent_path(facts: Facts) -> str | None:
    if facts.path == "/":
        return None
    return facts.path.rpartition("/")[0]


def _lock_values(facts: Facts) -> list[dict[str, Any]]:
    return [
        {
            "transaction": lock.transaction,
            "mode": lock.mode,
            "child": lock.child,
            "attribute": lock.attribute,
        }
        for lock in facts.locks
    ]


def _schema(table: StoredTable) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = msgspec.to_builtins(table.columns)
    return columns


def _key_columns(table: StoredTable) -> list[str]:
    return list(TableSchema(table.columns).key_names)


def _pivot_keys(table: StoredTable) -> list[list[Any]]:
    return [_pivot_values(table, tablet.pivot_key) for tablet in table.tablets]


def _pivot_values(table: StoredTable, key: Key) -> list[Any]:
    try:
        return [_shown(it) for it in TableSchema(table.columns).stored.decode_prefix(key)]
    except DataCorrupted as error:
        raise DataCorrupted(
            "A stored pivot key does not fit the schema of its table.", table=table.path, key=key
        ) from error


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _tablets(table: StoredTable, retained: Sequence[Timestamp]) -> list[dict[str, Any]]:
    each = zip(table.tablets, retained, strict=True)
    return [_tablet(table, index, *tablet) for index, tablet in enumerate(each)]


def _tablet(
    table: StoredTable, index: int, tablet: StoredTablet, retained: Timestamp
) -> dict[str, Any]:
    return {
        "index": index,
        "id": tablet.tablet,
        "state": tablet.state,
        "cell": tablet.cell,
        "pivot_key": _pivot_values(table, tablet.pivot_key),
        "revision": tablet.revision,
        "retained_timestamp": retained,
    }


_node_values: Final[dict[str, Callable[[Facts], Any]]] = {
    "type": lambda facts: facts.node.kind,
    "id": lambda facts: facts.node.node,
    "path": lambda facts: facts.path,
    "parent": _parent_path,
    "creation_time": lambda facts: instant_text(facts.node.created_us),
    "modification_time": lambda facts: instant_text(facts.node.modified_us),
    "lock_count": lambda facts: len(facts.locks),
    "locks": _lock_values,
    "count": lambda facts: facts.child_count,
}
_table_values: Final[dict[str, Callable[[StoredTable], Any]]] = {
    "dynamic": lambda table: True,
    "sorted": lambda table: True,
    "unique_keys": lambda table: True,
    "schema": _schema,
    "key_columns": _key_columns,
    "atomicity": lambda table: table.atomicity,
    "tablet_state": mounting.tablet_state,
    "tablet_count": lambda table: len(table.tablets),
    "pivot_keys": _pivot_keys,
}
_tablet_values: Final[dict[str, Callable[[StoredTable, Sequence[Timestamp]], Any]]] = {
    "tablets": _tablets,
    "retained_timestamp": lambda table, retained: max(retained),
}
_common: Final = tuple(name for name in _node_values if name != "count")
_names: Final[dict[NodeKind, tuple[str, ...]]] = {
    "directory": tuple(_node_values),
    "table": (*_common, *_table_values, *_tablet_values, *TableSettings.__struct_fields__),
}


def instant_text(unix_us: int) -> str:
    """Return a wall-clock time as ISO 8601 text in UTC."""
    seconds, fraction_us = divmod(unix_us, 1_000_000)
    days, second_of_day = divmod(seconds, 86_400)
    year, month, day = _date_of(days)
    hour, rest = divmod(second_of_day, 3600)
    minute, second = divmod(rest, 60)
    time = f"{hour:02}:{minute:02}:{second:02}.{fraction_us:06}"
    return f"{year:04}-{month:02}-{day:02}T{time}Z"


def _date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day, which is counted from 1970-01-01. Years are counted from
    March on, so a leap day is the last day of its year. The first year is 0."""
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    leap_days = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leap_days) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return era * 400 + year_of_era + (month <= 2), month, day
