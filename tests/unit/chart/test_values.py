"""The chart's values: what is refused, what is said of them, and that nothing has drifted."""

import json
import re
from typing import Any

import pytest

from dodona_oracle.shell.settings import MasterSettings
from helm_chart import CHART, README, ROLES, SCHEMA
from helm_chart.settings import KINDS, OF_THE_CHART, with_settings
from helm_chart.table import BEGIN, END, leaves, values_table, with_table
from suite.projects import project_of

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
helm = pytest.importorskip("helm_python", reason=NEEDED)

from helm_chart.combinations import COMBINATIONS  # noqa: E402
from helm_chart.rendering import chart, defaults, render  # noqa: E402


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text())
    return found


# ---- what is written in two places is the same


def test_the_settings_in_the_schema_are_the_servers() -> None:
    assert schema() == with_settings(schema()), "run python -m helm_chart"


def test_no_setting_that_the_chart_makes_itself_is_gone() -> None:
    named = {name for kind in KINDS.values() for name in kind.model_fields}
    assert sorted(OF_THE_CHART - named) == []


def test_the_readme_has_the_table_of_values() -> None:
    text = README.read_text()
    assert text == with_table(text, values_table(schema(), defaults())), "run python -m helm_chart"


def test_every_value_is_in_the_file_and_in_the_schema() -> None:
    described = dict(leaves(schema(), schema()))
    given = set(names_of(defaults(), set(described)))
    left_out = {name for name in described if ".settings." in name or name == "global"}
    assert given - set(described) == set()
    assert set(described) - given - left_out == set()


def names_of(values: dict[str, Any], described: set[str], prefix: str = "") -> list[str]:
    names = []
    for name, value in values.items():
        whole = prefix + name
        if isinstance(value, dict) and whole not in described:
            names += names_of(value, described, f"{whole}.")
        else:
            names.append(whole)
    return names


def test_the_chart_has_the_project_s_version() -> None:
    project = project_of("dodona-server")
    metadata = chart().metadata
    assert metadata["version"] == metadata["appVersion"] == project["version"]
    assert metadata["description"] == project["description"]


def test_readme_and_chart_name_the_oldest_kubernetes_version() -> None:
    assert ">=1.28" in chart().metadata["kubeVersion"]
    assert "1.28" in README.read_text()


# ---- the schema


def test_the_schema_is_closed_and_describes_each_value() -> None:
    for where, described in objects_of(schema(), "values"):
        is_map = described.get("additionalProperties") not in (None, False)
        assert is_map or described["additionalProperties"] is False, where
    for where, described in leaves(schema(), schema()):
        assert len(described["description"]) > 5, where


def objects_of(described: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    if isinstance(described, dict):
        if described.get("type") == "object" and "properties" in described:
            found.append((where, described))
        for name, inner in described.items():
            found += objects_of(inner, f"{where}.{name}")
    return found


@pytest.mark.parametrize("name", COMBINATIONS)
def test_helm_has_nothing_to_complain_of(name: str) -> None:
    report = helm.lint(CHART, COMBINATIONS[name], strict=True)
    complaints = [it for it in report["messages"] if it["error"] != "icon is recommended"]
    assert (report["errors"], complaints) == ([], [])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a name that is none": ({"nodes": {}}, "'nodes' not allowed"),
    "two masters": ({"master": {"replicas": 2}}, "'replicas' not allowed"),
    "no cell": ({"node": {"replicas": 0}}, "/node/replicas.*minimum"),
    "a number in words": ({"node": {"replicas": "3"}}, "/node/replicas.*want integer"),
    "root": ({"user": {"runAsUser": 0}}, "/user/runAsUser.*minimum"),
    "no key": ({"clusterKey": {"existingSecret": ""}}, "/clusterKey/existingSecret.*pattern"),
    "a key among the values": ({"clusterKey": {"value": "0123"}}, "'value' not allowed"),
    "a setting that is none": ({"node": {"settings": {"memory": 1}}}, "'memory' not allowed"),
    "a setting that is the chart's": (
        {"gateway": {"settings": {"insecure": True}}},
        "'insecure' not allowed",
    ),
    "a setting out of bounds": (
        {"master": {"settings": {"window_ms": 901}}},
        "/master/settings/window_ms.*maximum",
    ),
    "timestamps with less left than they are renewed with": (
        {"master": {"settings": {"window_ms": 150}}},
        "renew_ms must be less than window_ms",
    ),
    "timestamps that are renewed too early": (
        {"master": {"settings": {"renew_ms": 400}}},
        "renew_ms must be less than window_ms",
    ),
    "a size without a unit": ({"node": {"storage": {"size": "100"}}}, "/node/storage/size"),
    "an unknown access mode": (
        {"node": {"storage": {"accessMode": "ReadWriteMany"}}},
        "/node/storage/accessMode.*ReadWriteOncePod",
    ),
    "a label that is the chart's": (
        {"node": {"podLabels": {"app.kubernetes.io/component": "master"}}},
        "app.kubernetes.io/component",
    ),
    "no names": ({"networkPolicy": {"dns": []}}, "/networkPolicy/dns.*minItems"),
    "a collector without a scheme": ({"tracing": {"url": "collector:4318"}}, "/tracing/url"),
    "a collector's password": (
        {"tracing": {"url": "https://user:secret@c.example.org/v1/traces"}},
        "/tracing/url.*pattern",
    ),
    "a collector's token": ({"tracing": {"url": "https://token@c.example.org"}}, "/tracing/url"),
    "a scrape that is longer than what is between two": (
        {"metrics": {"serviceMonitor": {"interval": "5s"}}},
        "metrics.serviceMonitor.*scrapeTimeout",
    ),
    "an audit that two files don't fit into": (
        {"gateway": {"audit": {"enabled": True, "sizeLimit": "3Mi"}}},
        "gateway.audit.*sizeLimit",
    ),
    "addresses that nobody brings": (
        {"gateway": {"service": {"externalTrafficPolicy": "Local"}}},
        "externalTrafficPolicy goes with",
    ),
    "a balancer's ranges without a balancer": (
        {"gateway": {"service": {"type": "NodePort", "loadBalancerSourceRanges": ["::/0"]}}},
        "loadBalancerSourceRanges go with",
    ),
    "a relative path": ({"backup": {"tables": ["bank"]}}, "/backup/tables/0"),
    "bounds the wrong way round": (
        {"proxy": {"autoscaling": {"enabled": True, "minReplicas": 9}}},
        "proxy.autoscaling: minReplicas is more than maxReplicas",
    ),
    "metrics without a key": (
        {"metrics": {"serviceMonitor": {"enabled": True}}},
        "make a Secret with one and name it in metrics.existingSecret",
    ),
    "backups to nowhere": ({"backup": {"enabled": True}}, "backup.existingClaim"),
    "an ingress without hosts": (
        {"gateway": {"ingress": {"enabled": True}}},
        "gateway.ingress.hosts",
    ),
    "a collector that nobody reaches": (
        {"tracing": {"url": "http://c:4318"}, "networkPolicy": {"tracing": []}},
        "networkPolicy.tracing",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_inconsistent_values_are_refused_with_a_reason(name: str) -> None:
    values, words = BAD[name]
    with pytest.raises(helm.HelmError) as caught:
        render(values)
    assert re.search(words, str(caught.value))


@pytest.mark.parametrize("role", ROLES)
def test_a_large_number_stays_one(role: str) -> None:
    """Helm reads numbers as doubles, and would write 1e+09."""
    values = {role: {"settings": {"connection_count_max": 1_000_000_007}}}
    assert 'value: "1000000007"' in render(values).text


# ---- what is said again in the templates


def test_the_master_s_defaults_are_those_that_are_checked() -> None:
    """A window that is as long as the default of what renews it is refused, one that is longer is
    not; and the other way round."""
    fields = MasterSettings.model_fields
    renew_ms, window_ms = fields["renew_ms"].default, fields["window_ms"].default
    for settings in ({"window_ms": renew_ms}, {"renew_ms": window_ms}):
        with pytest.raises(helm.HelmError):
            render({"master": {"settings": settings}})
    for settings in ({"window_ms": renew_ms + 1}, {"renew_ms": window_ms - 1}):
        assert render({"master": {"settings": settings}}).objects


@pytest.mark.parametrize(
    "schedule",
    ["@daily", "@weekly", "@every 36h", "0 3 * * 0", "17 3 * * *", "*/5 0-3,22 1 JAN-MAR MON"],
)
def test_a_schedule_is_taken(schedule: str) -> None:
    found = render({"backup": {"enabled": True, "existingClaim": "b", "schedule": schedule}})
    assert found.find("CronJob", "-backup")["spec"]["schedule"] == schedule


@pytest.mark.parametrize(
    "schedule", ["", "daily", "@noon", "0 3 * *", "0 3 * * * *", "TZ=UTC @daily"]
)
def test_an_invalid_backup_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(helm.HelmError, match="/backup/schedule"):
        render({"backup": {"schedule": schedule}})


@pytest.mark.parametrize(("interval", "timeout"), [("10s", "10s"), ("1m", "60s"), ("90s", "1m")])
def test_a_scrape_may_take_all_of_the_time_that_there_is(interval: str, timeout: str) -> None:
    monitor = {"interval": interval, "scrapeTimeout": timeout}
    assert render({"metrics": {"serviceMonitor": monitor}}).objects


# ---- the table


def test_a_readme_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        with_table(f"{BEGIN} and no end", "")
    assert with_table(f"a {BEGIN} old {END} b", "new") == f"a {BEGIN}\n\nnew\n\n{END} b"
