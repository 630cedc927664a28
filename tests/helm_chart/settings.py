"""The settings of the servers, as the chart's schema of values has them.

Owns: which settings are the chart's own business, and what becomes of the others in
`values.schema.json`: each has its type, bounds, default and description from the server itself, so
that whatever a server would refuse is refused before anything is installed.
"""

from typing import Any, Final

from dodona_gateway.shell.settings import GatewaySettings
from dodona_oracle.shell.settings import MasterSettings, ProxySettings
from dodona_server.settings import ProcessSettings
from dodona_tablets.shell.replication_settings import ReplicationSettings
from dodona_tablets.shell.settings import NodeSettings

KINDS: Final[dict[str, type[ProcessSettings]]] = {
    "master": MasterSettings,
    "proxy": ProxySettings,
    "node": NodeSettings,
    "gateway": GatewaySettings,
}
WITHOUT_PLACE: Final = ReplicationSettings.model_fields.keys() - ProcessSettings.model_fields.keys()
"""The chart starts no log replicas and no etcd yet."""
OF_THE_CHART: Final = frozenset(
    {
        *WITHOUT_PLACE,
        "audit_log",
        "audit_mib_max",
        "cell",
        "cluster_key_file",
        "data_dir",
        "first_token_file",
        "host",
        "insecure",
        "master_url",
        "metrics_key_file",
        "number",
        "port",
        "public_url",
        "tls_certificate",
        "tls_key",
        "trace_ratio",
        "trace_url",
    }
)
"""They follow from other values, or, as `insecure`, have no place in a cluster."""
_KEPT: Final = ("type", "enum", "minimum", "maximum", "default")


def settings_schema(role: str) -> dict[str, Any]:
    """Of `<role>.settings`, closed. Raises KeyError if a setting is of no type that a value has."""
    described = KINDS[role].model_json_schema()["properties"]
    names = sorted(name for name in described if name not in OF_THE_CHART)
    return {
        "type": "object",
        "description": "Settings of the process, as its --help has them.",
        "additionalProperties": False,
        "properties": {name: _property(described[name]) for name in names},
    }


def _property(described: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in described:  # a value, or none, which is to leave it out
        value = next(it for it in described["anyOf"] if it["type"] != "null")
        described = {**described, **value}
    kept = {name: described[name] for name in _KEPT if described.get(name) is not None}
    return {"type": kept.pop("type"), "description": described["description"], **kept}


def with_settings(schema: dict[str, Any]) -> dict[str, Any]:
    """The chart's schema, with the settings of all roles as they are now."""
    settings = {f"{role}Settings": settings_schema(role) for role in KINDS}
    return {**schema, "definitions": {**schema["definitions"], **settings}}
