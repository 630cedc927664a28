"""The reference of settings, made of the classes that servers read them with.

Owns: what a setting's row says. A meaning is the setting's description, as `--help` prints it.
"""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec
from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from documents.members import field_docs
from documents.tables import bounds, choices, table
from dodona.types import TableSettings
from dodona_gateway.shell.settings import GatewaySettings
from dodona_oracle.shell.settings import MasterSettings, ProxySettings
from dodona_replication.shell.replica_settings import ReplicaSettings
from dodona_server.settings import ProcessSettings, ServerSettings
from dodona_tablets.shell.settings import NodeSettings

PROCESSES: Final[dict[str, type[ProcessSettings]]] = {
    "python -m dodona_oracle master": MasterSettings,
    "python -m dodona_oracle proxy": ProxySettings,
    "python -m dodona_tablets": NodeSettings,
    "python -m dodona_tablets replica": ReplicaSettings,
    "python -m dodona_gateway": GatewaySettings,
}
UNITS: Final = {
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "seconds": "s",
    "bytes": "bytes",
    "kib": "KiB",
    "mib": "MiB",
}
WORDS: Final = {bool: "a flag", int: "a number", float: "a number", str: "text", Path: "a path"}


def settings_text() -> str:
    """A section for each process, and one for tables."""
    return "\n\n".join([*(_process(*it) for it in PROCESSES.items()), _tables()])


def _process(command: str, kind: type[ProcessSettings]) -> str:
    prefix = kind.model_config.get("env_prefix", "")
    rows = [_row(name, it, prefix) for name, it in sorted(kind.model_fields.items(), key=_rank)]
    header = ("option", "environment", "takes", "default", "meaning")
    return f"## `{command}`\n\n{kind.__doc__}\n\n{table(header, rows)}"


def _rank(named: tuple[str, FieldInfo]) -> tuple[bool, bool]:
    """The required ones first, and last those that servers have in common."""
    name, field = named
    return name in ServerSettings.model_fields, not field.is_required()


def _row(name: str, field: FieldInfo, prefix: str) -> tuple[str, ...]:
    default = "required" if field.is_required() else _value(field.default)
    option = f"`--{name.replace('_', '-')}`"
    meaning = str(field.description)
    return option, f"`{prefix}{name.upper()}`", _takes(name, field), default, meaning


def _value(value: Any) -> str:
    if value is None:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _takes(name: str, field: FieldInfo) -> str:
    kind: Any = field.annotation
    limits = [*field.metadata]
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(it for it in get_args(kind) if it is not type(None))
        limits += getattr(kind, "__metadata__", ())
        kind = getattr(kind, "__origin__", kind)
    if get_origin(kind) is Literal:
        return choices(get_args(kind))
    words = [WORDS[kind], *(f"in {UNITS[it]}" for it in _unit(name))]
    least: Any = next((it.ge for it in limits if isinstance(it, Ge)), None)
    most: Any = next((it.le for it in limits if isinstance(it, Le)), None)
    return ", ".join([" ".join(words), *bounds(least, most)])


def _unit(name: str) -> Iterator[str]:
    """The last word that is one; names end in their unit, and then in what bounds them."""
    if "_per_" in name:
        return
    found = [it for it in name.split("_") if it in UNITS]
    yield from found[-1:]


def _tables() -> str:
    docs = field_docs(TableSettings)
    rows = [
        (f"`@{it.name}`", _value(it.default), docs[it.name].replace("\n", " "))
        for it in msgspec.structs.fields(TableSettings)
    ]
    doc = " ".join((TableSettings.__doc__ or "").split())
    return f"## Tables\n\n{doc}\n\n{table(('attribute', 'default', 'meaning'), rows)}"
