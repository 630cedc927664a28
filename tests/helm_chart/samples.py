"""Another value for each that the chart takes, and what has to be switched on for it to matter.

Owns: both. A test renders the chart with and without it: what makes no difference is minded
nowhere. Pure.
"""

from typing import Any, Final

from helm_chart.table import default_of

Values = dict[str, Any]

_ON: Final = {"enabled": True}
EVERYTHING: Final[Values] = {
    "gateway": {
        "firstToken": {"existingSecret": "bank-first-token"},
        "tls": {"existingSecret": "bank-tls"},
        "audit": _ON,
        "service": {"type": "LoadBalancer"},
        "ingress": {"enabled": True, "hosts": ["bank.example.org"]},
    },
    "metrics": {
        "existingSecret": "bank-metrics-key",
        "serviceMonitor": _ON,
        "alerts": _ON,
        "board": _ON,
    },
    "tracing": {"url": "http://collector:4318", "existingSecret": "bank-traces"},
    "backup": {"enabled": True, "existingClaim": "bank-backups"},
}
"""All that does not exclude something else."""
_SCALING: Final = {"autoscaling": {"enabled": True, "minReplicas": 3}}
NEEDS: Final[dict[str, Values]] = {
    f"{role}.autoscaling.{name}": {role: _SCALING}
    for role in ("proxy", "gateway")
    for name in ("minReplicas", "maxReplicas", "targetCpuPercent")
}
"""By a value's name, what else it takes."""
UNMINDED: Final = frozenset({"global"})
"""Of Helm's own."""

_MAP: Final = {"example.org/other": "yes"}
_PEERS: Final = [{"podSelector": {"matchLabels": {"other": "yes"}}}]
_NAMES: Final = (
    "className existingClaim existingSecret fullnameOverride key name nameOverride "
    "priorityClassName registry repository storageClassName tag"
)
_OTHERS: Final[dict[str, Any]] = {
    **dict.fromkeys(_NAMES.split(), "other"),
    **dict.fromkeys(("annotations", "labels", "podAnnotations", "podLabels"), _MAP),
    **dict.fromkeys(("clients", "gatewayCallers", "dns"), _PEERS),
    "networkPolicy.metrics": _PEERS,
    "networkPolicy.tracing": _PEERS,
    "affinity": {"nodeAffinity": {"other": "yes"}},
    "hosts": ["other.example.org"],
    "interval": "7m",
    "limits": {"memory": "7Gi"},
    "log_format": "text",  # the chart's default is not the servers'
    "loadBalancerSourceRanges": ["192.0.2.0/24"],
    "nodeSelector": _MAP,
    "pullSecrets": ["other"],
    "ratio": 0.5,
    "requests": {"cpu": "7"},
    "schedule": "@weekly",
    "scrapeTimeout": "7s",
    "size": "7Gi",
    "sizeLimit": "7Gi",
    "startupSecondsMax": 300,  # one second makes no difference
    "tables": ["//other"],
    "gateway.ingress.tls": [{"secretName": "other"}],
    "tlsConfig": {"serverName": "other"},
    "tolerations": [{"key": "other"}],
    "url": "http://other:4318",
}
"""By a value's name, or by its last word. Flags, numbers and choices are told by their types."""


def other_value(name: str, described: Values, defaults: Values) -> Any:
    """One that the schema takes, and that is not the default. Raises KeyError if none is known."""
    for key in (name, name.rpartition(".")[2]):
        if key in _OTHERS:
            return _OTHERS[key]
    default = default_of(name, described, defaults)
    if "enum" in described:
        return next(it for it in reversed(described["enum"]) if it != default)
    if described["type"] == "boolean":
        return not default
    if described["type"] != "integer":
        raise KeyError(name)
    return default + 1 if default < described.get("maximum", default + 1) else default - 1


def nested(name: str, value: Any) -> Values:
    """`{"a": {"b": value}}` of `a.b`."""
    for part in reversed(name.split(".")):
        value = {part: value}
    found: Values = value
    return found
