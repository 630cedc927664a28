"""The sets of values that the chart is rendered with in tests: each option, alone and together.

Owns: the sets. Together they have every kind of object and every option of a command that is in the
templates, which a test counts. That each single value is minded is another test's: see `samples`.
"""

from typing import Any, Final

_PEER: Final = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shops"}}}
_METRICS: Final = {
    "existingSecret": "bank-metrics-key",
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "alerts": {"enabled": True},
    "board": {"enabled": True},
}
_NAMED_BY_NUMBER: Final = {"scheduling": {"priorityClassName": "123"}}
_PODS: Final = {
    "podAnnotations": {"example.org/note": "yes"},
    "podLabels": {"team": "payments"},
    "scheduling": {
        "nodeSelector": {"disktype": "nvme"},
        "tolerations": [{"key": "storage", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "databases",
    },
}

COMBINATIONS: Final[dict[str, dict[str, Any]]] = {
    "defaults": {},
    "smallest": {
        "proxy": {"replicas": 1, "antiAffinity": "none", "disruptionBudget": {"enabled": False}},
        "node": {"replicas": 1, "antiAffinity": "none", "disruptionBudget": {"enabled": False}},
        "gateway": {
            "replicas": 1,
            "antiAffinity": "none",
            "disruptionBudget": {"enabled": False},
            "service": {"affinitySeconds": 0},
        },
        "master": {"disruptionBudget": {"enabled": False}},
        "networkPolicy": {"enabled": False},
        "serviceAccount": {"create": False},
        "tools": {"enabled": False},
    },
    "names": {
        "fullnameOverride": "a-name-that-is-as-long-as-it-may-ever-be",
        "clusterKey": {"existingSecret": "vault-made-this", "key": "dodona.key"},
        "serviceAccount": {"name": "storage", "annotations": {"example.org/role": "none"}},
        "image": {
            "registry": "registry.example.org:5000/team",
            "tag": "1.2.3",
            "pullSecrets": ["registry"],
        },
        "node": {"image": {"tag": "1.2.3-canary"}, "updatePartition": 2},
    },
    "names that YAML takes for something else": {
        "fullnameOverride": "true",
        "clusterKey": {"existingSecret": "123", "key": "1e5"},
        "serviceAccount": {"name": "true"},
        "image": {"pullSecrets": ["1.5"]},
        "master": _NAMED_BY_NUMBER,
        "proxy": _NAMED_BY_NUMBER,
        "node": _NAMED_BY_NUMBER,
        "gateway": {
            **_NAMED_BY_NUMBER,
            "firstToken": {"existingSecret": "null", "key": "0"},
            "tls": {"existingSecret": "0x1f"},
            "ingress": {
                "enabled": True,
                "className": "1e3",
                "hosts": ["1.2"],
                "tls": [{"secretName": "9", "hosts": ["1.2"]}],
            },
        },
        "metrics": {**_METRICS, "existingSecret": "1e5", "key": "7"},
        "tracing": {"url": "http://collector:4318", "existingSecret": "no", "key": "8"},
        "tools": _NAMED_BY_NUMBER,
        "backup": {"enabled": True, "existingClaim": "42"},
    },
    "short name": {"nameOverride": "db"},
    "IPv6": {"ipFamily": "IPv6"},
    "gateway for all": {
        "gateway": {
            "firstToken": {"existingSecret": "bank-first-token"},
            "tls": {"existingSecret": "bank-tls"},
            "audit": {"enabled": True},
            "service": {
                "type": "LoadBalancer",
                "port": 443,
                "annotations": {"example.org/internal": "true"},
                "externalTrafficPolicy": "Local",
                "loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8::/32"],
            },
            "ingress": {
                "enabled": True,
                "className": "nginx",
                "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
                "hosts": ["bank.example.org"],
                "tls": [{"secretName": "bank-public", "hosts": ["bank.example.org"]}],
            },
        },
        "metrics": {
            **_METRICS,
            "serviceMonitor": {"enabled": True, "tlsConfig": {"serverName": "bank"}},
        },
    },
    "plain ingress": {"gateway": {"ingress": {"enabled": True, "hosts": ["bank.example.org"]}}},
    "watched": {
        "metrics": _METRICS,
        "tracing": {
            "url": "http://collector.observability:4318/v1/traces",
            "ratio": 0.25,
            "existingSecret": "bank-traces",
            "key": "headers",
        },
        "backup": {"enabled": True, "existingClaim": "bank.backups"},
    },
    "backups": {
        "backup": {
            "enabled": True,
            "existingClaim": "backups",
            "tables": ["//home/bank", "//home/with space"],
        }
    },
    "traces to a well-known port": {
        "tracing": {"url": "https://traces.example.org/v1/traces"},
        "networkPolicy": {"tracing": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]},
    },
    "pods with ports of their own": {
        "tracing": {"url": "http://[2001:db8::1]/v1/traces"},
        "networkPolicy": {"tracingPort": 4318, "dnsPort": 5353},
    },
    "autoscaling": {
        "proxy": {"autoscaling": {"enabled": True, "maxReplicas": 12}},
        "gateway": {"autoscaling": {"enabled": True}},
    },
    "where pods run": {
        "master": _PODS,
        "proxy": {**_PODS, "antiAffinity": "required"},
        "node": {**_PODS, "antiAffinity": "required"},
        "gateway": {
            **_PODS,
            "antiAffinity": "required",
            "scheduling": {"affinity": {"nodeAffinity": {}}},
        },
        "tools": {"scheduling": {"nodeSelector": {"disktype": "hdd"}}},
    },
    "storage": {
        "master": {
            "storage": {
                "size": "1Gi",
                "storageClassName": "fast",
                "accessMode": "ReadWriteOncePod",
                "annotations": {"example.org/snapshots": "daily"},
                "whenDeleted": "Delete",
            },
            "updateStrategy": "OnDelete",
        },
        "node": {
            "storage": {"size": "2Ti", "storageClassName": "fast", "whenScaled": "Delete"},
            "updateStrategy": "OnDelete",
        },
    },
    "settings": {
        "logs": {"format": "text", "level": "debug"},
        "master": {"settings": {"window_ms": 800, "renew_ms": 500}},
        "proxy": {"settings": {"register_ms": 500, "drain_ms": 20_000}},
        "node": {"settings": {"transaction_bytes_max": 123_456_789_012, "log_level": "warning"}},
        "gateway": {"settings": {"query_count_max": 3, "finish_ms_max": 120_000}},
    },
    "who may speak": {
        "networkPolicy": {
            "clients": [_PEER],
            "gatewayCallers": [_PEER, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
            "metrics": [_PEER],
        },
        "metrics": {"existingSecret": "bank-metrics-key"},
        "backup": {"enabled": True, "existingClaim": "backups"},
    },
}
