"""Convert schemas and attributes between YTsaurus's terms and Dodona's. Pure.

Owns: the names of types in both, the attributes that a new table may have, and how YTsaurus's
clients see the attributes of a node. A part of a schema that Dodona lacks is refused, never
dropped: a tuple, a type that would keep other values.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.near_names import nearest
from dodona_wire.rows.column_kinds import Member
from dodona_wire.rows.logical_types import TYPES, logical_type
from dodona_wire.shown import shown
from dodona_wire.types import TableSettings
from dodona_ytsaurus.terms.parameters import plain
from dodona_ytsaurus.terms.types_v3 import DECIMAL, member_of_v3, v3_of_member
from dodona_ytsaurus.yson import Attributed, Uint64

_COLUMN_FIELDS: Final = (
    "name",
    "type",
    "sort_order",
    "required",
    "lock",
    "aggregate",
    "expression",
)
_SILENT_FIELDS: Final = ("group", "max_inline_hunk_size", "stable_name")
"""Fields that say how a column is stored. No result depends on them."""
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
"""Attributes of a new table that the request passes on in other ways."""
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
"""Attributes that say where and how YTsaurus keeps a table. In Dodona they have no effect."""
ACCESS_ATTRIBUTES: Final = ("acl", "effective_acl", "inherit_acl", "owner")
"""Attributes that say who may do what. Tokens decide this here. If Dodona kept them as a user's own
attributes, they would seem to have an effect."""
MOUNT_CONFIG: Final = "mount_config"
"""The attribute that may contain settings, as in YTsaurus. Settings may also be attributes."""


# ---- schemas


def columns_of(schema: Any) -> list[dict[str, Any]]:
    """Return the columns of a YTsaurus schema, for `create_table`. Raises SchemaViolation."""
    attributes = schema.attributes if isinstance(schema, Attributed) else {}
    for name in ("unique_keys", "strict"):
        if plain(attributes.get(name)) is False:
            raise SchemaViolation(f"The schema of a sorted dynamic table must have {name}=%true.")
    columns = plain(schema)
    if not isinstance(columns, list):
        raise SchemaViolation("A schema must be a list of columns.")
    return [_column(plain(column)) for column in columns]


def _column(column: Any) -> dict[str, Any]:
    if not isinstance(column, Mapping):
        raise SchemaViolation("A column of a schema must be a map.")
    name = column.get("name")
    _refuse_unknown(column, name)
    found = {it: plain(column[it]) for it in _COLUMN_FIELDS if column.get(it) is not None}
    v3 = plain(column.get("type_v3"))
    if v3 is None:
        return found | {"type": _type(found.get("type"), name)}
    kind, is_required = _from_v3(v3, name)
    return found | {"type": kind, "required": is_required}


def _refuse_unknown(column: Mapping[str, Any], name: Any) -> None:
    for field, value in column.items():
        is_known = field in _COLUMN_FIELDS or field in ("type_v3", *_SILENT_FIELDS)
        if value is not None and not is_known:
            near = nearest(str(field).lower(), (*_COLUMN_FIELDS, "type_v3"))
            todo = "Leave it out." if near is None else f"Did you mean {near}?"
            text = f"The field {shown(field)} of a column is not supported. {todo}"
            raise SchemaViolation(text, column=name)


def _type(kind: Any, name: Any) -> str:
    if isinstance(kind, str) and kind in TYPES:
        return kind
    if kind == "bool":
        return "boolean"
    known = ", ".join(TYPES)
    raise SchemaViolation(
        f"A column's type must be one of {known}, not {shown(kind)}.", column=name
    )


def _from_v3(v3: Any, name: Any) -> tuple[str, bool]:
    """Return the type, and whether the column is required: it is unless the type is optional."""
    try:
        member = member_of_v3("", v3)
    except SchemaViolation as error:
        error.attributes["column"] = name
        raise
    return member.kind.name, not member.is_optional


def yt_schema(columns: Iterable[Mapping[str, Any]]) -> Attributed:
    """Return a table's columns as YTsaurus shows a schema."""
    shown = [_yt_column(it) for it in columns]
    return Attributed(shown, {"strict": True, "unique_keys": True})


def _yt_column(column: Mapping[str, Any]) -> dict[str, Any]:
    is_required = bool(column.get("required", False))
    kind = logical_type(column["type"])
    v3 = v3_of_member(Member("", kind, not is_required))
    name = kind.stored if kind.form == DECIMAL or kind.members else kind.name
    found = {"name": column["name"], "type": name, "required": is_required, "type_v3": v3}
    for field in ("sort_order", "lock", "aggregate", "expression"):
        if column.get(field) is not None:
            found[field] = column[field]
    return found


# ---- what a table is made with


def own_attributes(attributes: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the attributes of a new node that Dodona keeps: a table's settings, and the user's
    own. Raises InvalidRequest."""
    skipped = STORAGE_ATTRIBUTES if kind != "table" else IGNORED_ATTRIBUTES + STORAGE_ATTRIBUTES
    own = {name: value for name, value in attributes.items() if name not in skipped}
    for name in own:
        check_settable(name)
    if kind == "table" and MOUNT_CONFIG in own:
        own = _settings_of(plain(own.pop(MOUNT_CONFIG))) | own
    return {name: stored(value) for name, value in own.items()}


def check_settable(name: str) -> None:
    """Raise InvalidRequest for an attribute that would have no effect."""
    if name in ACCESS_ATTRIBUTES:
        text = f"The attribute {name!r} can't be set. The grants of tokens control access."
        raise InvalidRequest(text, name=name)


def _settings_of(config: Any) -> dict[str, Any]:
    """Return the settings in a `mount_config`. Raises InvalidRequest."""
    if not isinstance(config, Mapping):
        raise InvalidRequest(f"{MOUNT_CONFIG} must be a map from names to values.")
    for name in config:
        check_setting(name)
    return dict(config)


def check_setting(name: str) -> None:
    """Raise InvalidRequest for a name that is no setting of a table."""
    known = TableSettings.__struct_fields__
    if name not in known:
        text = f"{MOUNT_CONFIG} has no {name[:100]!r}. It has {', '.join(known)}."
        raise InvalidRequest(text, name=name[:100])


def pivot_keys_of(value: Any) -> list[list[Any]]:
    """Return pivot keys, as they came. Raises InvalidRequest."""
    keys = plain(value)
    if not isinstance(keys, list) or not all(isinstance(plain(it), list) for it in keys):
        raise InvalidRequest("pivot_keys must be a list of keys, each a list of values.")
    return [[plain_key(it) for it in plain(key)] for key in keys]


def plain_key(value: Any) -> Any:
    """Return the value of a key column, without its YSON type."""
    return int(value) if isinstance(value, Uint64) else value


def stored(value: Any) -> Any:
    """Return an attribute's value as the catalog keeps it. Raises InvalidRequest if it can't keep
    it."""
    if isinstance(value, Attributed):
        raise InvalidRequest(
            "Dodona does not keep attributes inside the value of an attribute. Leave them out."
        )
    if isinstance(value, bytes):
        raise InvalidRequest("The value of the attribute is not valid UTF-8. Pass text.")
    if isinstance(value, Uint64):
        return int(value)
    if isinstance(value, list):
        return [stored(it) for it in value]
    if isinstance(value, dict):
        return {name: stored(it) for name, it in value.items()}
    return value


# ---- what attributes look like


def object_id(number: int, kind: int) -> str:
    """Return the id of a node, tablet or cell in YTsaurus's form."""
    return f"0-{number:x}-{kind:x}-0"


def yt_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return all attributes of a node in YTsaurus's terms, from those of the catalog."""
    kind = str(attributes.get("type"))
    shown_by_name = _SHOWN_OF_TABLE if kind == "table" else _SHOWN
    shown = {
        name: shown_by_name[name](value, kind) if name in shown_by_name else value
        for name, value in attributes.items()
    }
    shown.setdefault("key", str(attributes.get("path", "")).rpartition("/")[2])
    if kind == "table":
        shown.setdefault("expected_tablet_state", _expected_state(str(shown["tablet_state"])))
        shown.setdefault("sorted_by", _sorted_by(attributes))
        shown.setdefault("schema_mode", "strong")
    return shown


def _sorted_by(attributes: Mapping[str, Any]) -> list[Any]:
    """Return the key columns as YTsaurus lists them: names, and maps for descending columns."""
    orders = {it["name"]: it.get("sort_order") for it in attributes.get("schema", ())}
    return [
        {"name": it, "sort_order": "descending"} if orders.get(it) == "descending" else it
        for it in attributes["key_columns"]
    ]


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
"""By name, the function that shows a value of the catalog. A directory's attribute of such a name
is its user's."""
