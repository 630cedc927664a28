"""Schemas and attributes between YTsaurus's words and Dodona's. Pure.

Owns: the names of types in both, what a table may be created with, and what attributes of a node
look like to YTsaurus's clients. What a schema can't have here is refused, never dropped: a column
that computes itself, a descending key, a type that would keep other values.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dodona_gateway.core.yson import Attributed, Uint64
from dodona_gateway.core.ytsaurus.parameters import plain
from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.shown import shown
from dodona_wire.types import TableSettings

TYPES: Final = ("int64", "uint64", "double", "boolean", "string", "utf8", "any")
TYPES_V3: Final[dict[str, str]] = {
    "int64": "int64",
    "uint64": "uint64",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "utf8": "utf8",
    "yson": "any",
}
_V3_OF: Final = {name: v3 for v3, name in TYPES_V3.items()}
_COLUMN_FIELDS: Final = ("name", "type", "sort_order", "required", "lock", "aggregate")
_SILENT_FIELDS: Final = ("group", "max_inline_hunk_size", "stable_name")
"""How a column is stored: nothing that is read depends on it."""
TABLE_KIND, MAP_NODE_KIND, LOCK_KIND = 401, 303, 200
TABLET_KIND, CELL_KIND = 702, 700
NODE_KINDS: Final = {"table": "table", "directory": "map_node"}
IGNORED_ATTRIBUTES: Final = (
    "dynamic",
    "schema",
    "atomicity",
    "pivot_keys",
    "tablet_count",
)
"""Of a table that is made: said in other words."""
STORAGE_ATTRIBUTES: Final = (
    "account",
    "chunk_reader",
    "chunk_writer",
    "compression_codec",
    "enable_dynamic_store_read",
    "erasure_codec",
    "external",
    "media",
    "optimize_for",
    "primary_medium",
    "replication_factor",
    "tablet_cell_bundle",
    "unique_keys",
)
"""Where and how YTsaurus keeps a table, which is Dodona's own business."""
ACCESS_ATTRIBUTES: Final = ("acl", "effective_acl", "inherit_acl", "owner")
"""Who may do what is said by tokens: kept as a user's own, these would look as if they did."""
MOUNT_CONFIG: Final = "mount_config"
"""Settings may be in there, as in YTsaurus, or attributes themselves."""


# ---- schemas


def columns_of(schema: Any) -> list[dict[str, Any]]:
    """The columns of a YTsaurus schema, for `create_table`. Raises SchemaViolation."""
    attributes = schema.attributes if isinstance(schema, Attributed) else {}
    for name in ("unique_keys", "strict"):
        if plain(attributes.get(name)) is False:
            raise SchemaViolation(f"a sorted dynamic table's schema has {name}=%true")
    columns = plain(schema)
    if not isinstance(columns, list):
        raise SchemaViolation("a schema is a list of columns")
    return [_column(plain(column)) for column in columns]


def _column(column: Any) -> dict[str, Any]:
    if not isinstance(column, Mapping):
        raise SchemaViolation("a column of a schema is a map")
    name = column.get("name")
    _refuse_unknown(column, name)
    found = {it: plain(column[it]) for it in _COLUMN_FIELDS if column.get(it) is not None}
    v3 = plain(column.get("type_v3"))
    if v3 is not None:
        kind, is_required = _from_v3(v3, name)
        found.update(type=kind, required=is_required)
    found["type"] = _type(found.get("type"), name)
    return found


def _refuse_unknown(column: Mapping[str, Any], name: Any) -> None:
    for field, value in column.items():
        is_known = field in _COLUMN_FIELDS or field in ("type_v3", *_SILENT_FIELDS)
        if value is not None and not is_known:
            raise SchemaViolation(f"a column's {field} is not supported", column=name)


def _type(kind: Any, name: Any) -> str:
    if kind in TYPES:
        return str(kind)
    if kind == "bool":
        return "boolean"
    known = ", ".join(TYPES)
    raise SchemaViolation(f"a column's type is one of {known}, not {shown(kind)}", column=name)


def _from_v3(v3: Any, name: Any) -> tuple[str, bool]:
    """→ the type, and whether the column is required: it is unless the type is optional."""
    is_required = True
    if isinstance(v3, Mapping) and v3.get("type_name") == "optional":
        is_required, v3 = False, plain(v3.get("item"))
    kind = TYPES_V3.get(v3) if isinstance(v3, str) else None
    if kind is None:
        known = ", ".join(TYPES_V3)
        text = f"a column's type_v3 is one of {known}, or optional of these, not {shown(v3)}"
        raise SchemaViolation(text[:300], column=name)
    return kind, is_required


def yt_schema(columns: Iterable[Mapping[str, Any]]) -> Attributed:
    """A table's columns as YTsaurus shows a schema."""
    shown = [_yt_column(it) for it in columns]
    return Attributed(shown, {"strict": True, "unique_keys": True})


def _yt_column(column: Mapping[str, Any]) -> dict[str, Any]:
    is_required = bool(column.get("required", False))
    v3: Any = _V3_OF[column["type"]]
    if not is_required:
        v3 = {"type_name": "optional", "item": v3}
    found = {"name": column["name"], "type": column["type"], "required": is_required, "type_v3": v3}
    for field in ("sort_order", "lock", "aggregate"):
        if column.get(field) is not None:
            found[field] = column[field]
    return found


# ---- what a table is made with


def own_attributes(attributes: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Those of a new node that Dodona keeps: a table's settings, and the user's own. Raises
    InvalidRequest."""
    skipped = STORAGE_ATTRIBUTES if kind != "table" else IGNORED_ATTRIBUTES + STORAGE_ATTRIBUTES
    own = {name: value for name, value in attributes.items() if name not in skipped}
    for name in own:
        check_settable(name)
    if kind == "table" and MOUNT_CONFIG in own:
        own = _settings_of(plain(own.pop(MOUNT_CONFIG))) | own
    return {name: stored(value) for name, value in own.items()}


def check_settable(name: str) -> None:
    """Raises InvalidRequest for an attribute that would be of no effect."""
    if name in ACCESS_ATTRIBUTES:
        text = f"attribute {name!r} can't be set: tokens say who may do what"
        raise InvalidRequest(text, name=name)


def _settings_of(config: Any) -> dict[str, Any]:
    """What is in a `mount_config`. Raises InvalidRequest."""
    if not isinstance(config, Mapping):
        raise InvalidRequest(f"{MOUNT_CONFIG} is a map from names to values")
    for name in config:
        check_setting(name)
    return dict(config)


def check_setting(name: str) -> None:
    """Raises InvalidRequest for what no table can be set to."""
    known = TableSettings.__struct_fields__
    if name not in known:
        text = f"{MOUNT_CONFIG} has no {name[:100]!r} here, but {', '.join(known)}"
        raise InvalidRequest(text, name=name[:100])


def pivot_keys_of(value: Any) -> list[list[Any]]:
    """Keys that tablets begin at, as they come. Raises InvalidRequest."""
    keys = plain(value)
    if not isinstance(keys, list) or not all(isinstance(plain(it), list) for it in keys):
        raise InvalidRequest("pivot_keys are a list of lists: each of the values of a key")
    return [[plain_key(it) for it in plain(key)] for key in keys]


def plain_key(value: Any) -> Any:
    """A key column's value."""
    return int(value) if isinstance(value, Uint64) else value


def stored(value: Any) -> Any:
    """An attribute's value as the catalog keeps it. Raises InvalidRequest for what it can't."""
    if isinstance(value, Attributed):
        raise InvalidRequest("attributes of a value within an attribute are not kept")
    if isinstance(value, bytes):
        raise InvalidRequest("the value of an attribute is text, not bytes that are none")
    if isinstance(value, Uint64):
        return int(value)
    if isinstance(value, list):
        return [stored(it) for it in value]
    if isinstance(value, dict):
        return {name: stored(it) for name, it in value.items()}
    return value


# ---- what attributes look like


def object_id(number: int, kind: int) -> str:
    """Of a node, tablet or cell, in YTsaurus's form."""
    return f"0-{number:x}-{kind:x}-0"


def yt_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """All attributes of a node, as the catalog has them, in YTsaurus's words."""
    kind = str(attributes.get("type"))
    shown_by_name = _SHOWN_OF_TABLE if kind == "table" else _SHOWN
    shown = {
        name: shown_by_name[name](value, kind) if name in shown_by_name else value
        for name, value in attributes.items()
    }
    shown.setdefault("key", str(attributes.get("path", "")).rpartition("/")[2])
    if kind == "table":
        shown.setdefault("expected_tablet_state", _expected_state(str(shown["tablet_state"])))
        shown.setdefault("sorted_by", shown["key_columns"])
        shown.setdefault("schema_mode", "strong")
    return shown


def _expected_state(state: str) -> str:
    ends = {"mounting": "mounted", "unfreezing": "mounted", "unmounting": "unmounted"}
    ends |= {"freezing": "frozen", "frozen_mounting": "frozen"}
    return ends.get(state, state)


def _tablets(tablets: Any, kind: str) -> list[dict[str, Any]]:
    found = []
    for tablet in tablets:
        shown = {
            "index": tablet["index"],
            "state": tablet["state"],
            "tablet_id": object_id(tablet["id"], TABLET_KIND),
            "pivot_key": tablet["pivot_key"],
            "mount_revision": tablet["revision"],
            "retained_timestamp": Uint64(tablet["retained_timestamp"]),
        }
        if tablet["cell"] is not None:
            shown["cell_id"] = object_id(tablet["cell"], CELL_KIND)
        found.append(shown)
    return found


def _node_id(number: Any, kind: str) -> str:
    return object_id(number, TABLE_KIND if kind == "table" else MAP_NODE_KIND)


_SHOWN: Final[dict[str, Callable[[Any, str], Any]]] = {
    "type": lambda value, kind: NODE_KINDS.get(value, value),
    "id": _node_id,
}
_SHOWN_OF_TABLE: Final[dict[str, Callable[[Any, str], Any]]] = {
    **_SHOWN,
    "schema": lambda value, kind: yt_schema(value),
    "tablets": _tablets,
    "retained_timestamp": lambda value, kind: Uint64(value),
}
"""By name, how a value of the catalog's is shown. What a directory has by that name is its
user's."""
