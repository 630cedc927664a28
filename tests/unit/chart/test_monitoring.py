"""Alerts and the board ask for metrics that there are, in PromQL that Prometheus takes, and each
alert says what to do."""

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

NEEDED = "Helm and a parser of PromQL come with the extra `chart`, for Linux on x86-64 only"
pytest.importorskip("helm_python", reason=NEEDED)
promql_parser = pytest.importorskip("promql_parser", reason=NEEDED)

from helm_chart import ROLES, ROOT  # noqa: E402
from helm_chart.combinations import COMBINATIONS  # noqa: E402
from helm_chart.rendering import NAME, NAMESPACE, Object, render  # noqa: E402

METRICS_PAGE: Final = ROOT / "docs" / "reference" / "metrics.md"
ALERTS_PAGE: Final = ROOT / "docs" / "reference" / "alerts.md"
FOREIGN: Final = {
    "up",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "kube_cronjob_created",
    "kube_cronjob_status_last_successful_time",
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
}
"""Of Prometheus itself, of its client library, of kube-state-metrics and of the kubelet."""
TARGET_LABELS: Final = {"namespace", "release", "component", "pod"}
"""What a scrape adds: the operator, or the ServiceMonitor's relabelings."""
OF_VOLUMES: Final = {"persistentvolumeclaim", "cronjob"}
COUNTING: Final = {"rate", "increase"}
_ALERTS: Final = {"alerts": {"enabled": True}}


class Metric(NamedTuple):
    """One row of the page."""

    kind: str
    labels: frozenset[str]
    help: str


def documented() -> dict[str, Metric]:
    rows = re.findall(
        r"^\| `(\w+)` \| (counter|gauge|histogram) \| (.*?) \| (.*?) \|",
        METRICS_PAGE.read_text(),
        re.MULTILINE,
    )
    found: dict[str, Metric] = {}
    for name, kind, labels, text in rows:
        named = frozenset(re.findall(r"`(\w+)`", labels))
        if kind == "histogram":
            found[f"{name}_bucket"] = Metric("counter", named | {"le"}, text)
            found[f"{name}_count"] = found[f"{name}_sum"] = Metric("counter", named, text)
        else:
            found[name] = Metric(kind, named, text)
    return found


KNOWN: Final = documented()


class Use(NamedTuple):
    """One metric in an expression."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    function: str | None
    """The one that counts, if it stands in one."""


def uses_of(text: str) -> list[Use]:
    """Raises ValueError if it is no PromQL."""
    uses: list[Use] = []
    _collect(promql_parser.parse(text), None, uses)
    return uses


def _collect(node: Any, function: str | None, uses: list[Use]) -> None:
    match type(node).__name__:
        case "VectorSelector":
            matchers = [(it.name, str(it.op), it.value) for it in node.matchers.matchers]
            uses.append(Use(node.name, tuple(matchers), function))
        case "MatrixSelector":
            _collect(node.vector_selector, function, uses)
        case "Call":
            for argument in node.args:
                _collect(argument, node.func.name, uses)
        case "BinaryExpr":
            _collect(node.lhs, function, uses)
            _collect(node.rhs, function, uses)
        case "AggregateExpr" | "ParenExpr" | "UnaryExpr":
            _collect(node.expr, function, uses)
        case "NumberLiteral" | "StringLiteral":
            pass
        case other:
            raise AssertionError(f"what is a {other}?")


def complaints_of(text: str) -> list[str]:
    """What is wrong with an expression."""
    found = []
    for use in uses_of(text):
        if use.name in FOREIGN:
            continue
        if use.name not in KNOWN:
            found.append(f"there is no metric {use.name}")
            continue
        metric = KNOWN[use.name]
        if (metric.kind == "counter") != (use.function in COUNTING):
            found.append(f"{use.name} is a {metric.kind}, and stands in {use.function}")
        for label, operator, value in use.matchers:
            if label not in metric.labels | TARGET_LABELS:
                found.append(f"{use.name} has no label {label}")
            is_plain = label in metric.labels and re.fullmatch(r"\w+", value)
            if is_plain and not re.search(rf"\b{value}\b", metric.help):
                found.append(f"{use.name} is never {label} {operator} {value}")
    grouped = re.findall(r"\bby \(([^)]*)\)", text)
    labels = {label for it in grouped for label in re.split(r",\s*", it)}
    has = TARGET_LABELS.union(*(KNOWN[it.name].labels for it in uses_of(text) if it.name in KNOWN))
    return [*found, *(f"by {label}, which nothing has" for label in sorted(labels - has))]


def rendered_rules() -> list[Object]:
    resource = render(COMBINATIONS["watched"]).find("PrometheusRule", "-dodona")
    return [rule for group in resource["spec"]["groups"] for rule in group["rules"]]


RULES: Final = {rule["alert"]: rule for rule in rendered_rules()}


def rendered_board() -> dict[str, Any]:
    data = render(COMBINATIONS["watched"]).find("ConfigMap", "-board")["data"]
    board: dict[str, Any] = json.loads(data["dodona.json"])
    return board


BOARD: Final = rendered_board()
PANELS: Final = [it for it in BOARD["panels"] if it["type"] != "row"]
QUERIES: Final = [
    (panel["title"], target["expr"].replace("$__rate_interval", "5m"))
    for panel in PANELS
    for target in panel["targets"]
]


# ---- alerts


def test_the_page_of_metrics_was_read() -> None:
    assert len(KNOWN) > 80
    assert KNOWN["dodona_node_jobs_total"].labels == {"kind", "outcome"}


@pytest.mark.parametrize("name", RULES)
def test_an_alert_uses_only_known_metrics(name: str) -> None:
    assert complaints_of(RULES[name]["expr"]) == []


@pytest.mark.parametrize("name", RULES)
def test_an_alert_is_of_this_release_alone(name: str) -> None:
    for use in uses_of(RULES[name]["expr"]):
        matchers = {(label, value) for label, _, value in use.matchers}
        assert ("namespace", NAMESPACE) in matchers
        own = {value for label, value in matchers if label in {"release", *OF_VOLUMES}}
        assert any(NAME in value for value in own)


@pytest.mark.parametrize("name", RULES)
def test_an_alert_has_a_severity_a_summary_and_a_runbook(name: str) -> None:
    rule = RULES[name]
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    wait_s = promql_parser.parse_duration(rule["for"]).total_seconds()
    assert 60 <= wait_s <= 3600, "neither on a hiccup nor when it is too late"
    assert 20 < len(rule["annotations"]["summary"]) < 200
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert Path(ROOT / page) == ALERTS_PAGE
    section = runbooks()[anchor]
    assert len(section.split()) > 20
    assert f"*{rule['labels']['severity']}*, after {rule['for']}." in section


@pytest.mark.parametrize("name", RULES)
def test_labels_in_a_summary_are_those_that_the_expression_leaves(name: str) -> None:
    rule = RULES[name]
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    grouped = re.match(r"(?:\w+\([\d.]+, )?sum by \(([^)]*)\)", rule["expr"])
    has = TARGET_LABELS | OF_VOLUMES
    if grouped:
        has = set(re.split(r",\s*", grouped[1]))
    else:
        has = has.union(
            *(KNOWN[it.name].labels for it in uses_of(rule["expr"]) if it.name in KNOWN)
        )
    assert named <= has


def runbooks() -> dict[str, str]:
    """Sections of the page, by anchor."""
    sections = re.split(r"^## ", ALERTS_PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {it.split()[0].lower(): it for it in sections}


def test_the_page_has_no_alert_that_there_is_not() -> None:
    assert set(runbooks()) == {name.lower() for name in RULES}


def test_the_alerts_page_names_the_metrics_of_each_alert() -> None:
    for name, rule in RULES.items():
        text = runbooks()[name.lower()]
        for metric in {use.name for use in uses_of(rule["expr"]) if use.name in KNOWN}:
            assert metric.removesuffix("_bucket") in text, f"{name}: {metric}"


def backup_rules(**values: Any) -> dict[str, str]:
    given = {"enabled": True, "existingClaim": "bank.backups", **values}
    found = render({"metrics": _ALERTS, "backup": given}).find("PrometheusRule", "-dodona")
    (group,) = [it for it in found["spec"]["groups"] if it["name"] == "dodona-backups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


@pytest.mark.parametrize(("given", "hours"), [({}, 48), ({"oldAfterHours": 192}, 192)])
def test_the_backup_alerts_use_the_hours_of_old_after_hours(
    given: dict[str, int], hours: int
) -> None:
    rules = backup_rules(**given)
    assert rules["DodonaBackupOld"].count(f"> {hours} * 3600") == 2
    assert rules["DodonaBackupVolumeFills"].count(f"[{hours}h]") == 2


def test_an_alert_watches_the_volume_of_the_backups() -> None:
    rule = backup_rules()["DodonaBackupVolumeFills"]
    for use in uses_of(rule):
        assert ("persistentvolumeclaim", "MatchOp.Equal", "bank.backups") in use.matchers
        assert use.function == "last_over_time", "a claim that no pod has is told of no more"


# ---- the board


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_panel_uses_only_known_metrics_and_filters_by_namespace(title: str, query: str) -> None:
    assert complaints_of(query) == []
    for use in uses_of(query):
        matchers = {(label, value) for label, _, value in use.matchers}
        assert ("namespace", "$namespace") in matchers


def test_the_board_is_one_that_grafana_shows() -> None:
    ids = [it["id"] for it in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert {"uid", "title", "schemaVersion", "time", "templating"} <= set(BOARD)
    assert [it["name"] for it in BOARD["templating"]["list"]] == [
        "datasource",
        "namespace",
        "release",
        "name",
    ]
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        references = [it["refId"] for it in panel["targets"]]
        assert len(references) == len(set(references))


def test_a_process_that_is_gone_is_counted_among_those_that_are_not_ready_once() -> None:
    """Of a dead one there is nothing but that it could not be asked. A pod that says no and then
    dies has both for a while."""
    (query,) = [query for title, query in QUERIES if title == "Processes that are not ready"]
    names = [use.name for use in uses_of(query)]
    assert names == [*(f"dodona_{role}_ready" for role in ROLES), "up"]
    assert query.count(" == 0") == len(names)
    assert re.fullmatch(r"count\(count by \(pod\) \(.*\)\) or vector\(0\)", query)


@pytest.mark.parametrize("values", [{}, {"fullnameOverride": "vault"}])
def test_the_dashboard_shows_only_the_volumes_of_its_release(values: dict[str, Any]) -> None:
    (variable,) = [it for it in BOARD["templating"]["list"] if it["name"] == "name"]
    pattern = re.compile(variable["regex"].strip("/"))
    found = render(values)
    names = [it["metadata"]["name"] for it in found.of_kind("StatefulSet")]
    (own,) = [match[1] for it in names if (match := pattern.fullmatch(f"{it}-0"))]
    (query,) = [query for title, query in QUERIES if title == "Volumes, what is left"]
    for use in uses_of(query):
        (claims,) = [value for label, _, value in use.matchers if label == "persistentvolumeclaim"]
        shown = claims.replace("$name", own)
        assert all(re.fullmatch(shown, f"data-{it}-11") for it in names)
        assert not re.fullmatch(shown, "data-other-node-0")


def test_panels_lie_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        x, y, width, height = (panel["gridPos"][it] for it in "xywh")
        assert x + width <= 24
        cells = {(x + dx, y + dy) for dx in range(width) for dy in range(height)}
        assert not cells & taken
        taken |= cells


def test_a_legend_names_labels_that_the_query_leaves() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = re.search(r"\bby \(([^)]*)\)", target["expr"])
            has = set(re.split(r",\s*", grouped[1])) if grouped else TARGET_LABELS | OF_VOLUMES
            assert named <= has, panel["title"]


# ---- the operator's own kinds: no schema comes as a package, so their form is written down here


def test_the_service_monitor_has_the_form_that_the_operator_reads() -> None:
    found = render(COMBINATIONS["gateway for all"])
    spec = found.find("ServiceMonitor", "-dodona")["spec"]
    assert set(spec) == {"selector", "endpoints"}
    assert [it["port"] for it in spec["endpoints"]] == ["http", "https"]
    for endpoint in spec["endpoints"]:
        assert set(endpoint) <= {
            "port", "scheme", "path", "interval", "scrapeTimeout", "authorization", "relabelings",
            "tlsConfig",
        }  # fmt: skip
        assert endpoint["scheme"] == endpoint["port"]
        assert endpoint["authorization"] == {
            "type": "Bearer",
            "credentials": {"name": "bank-metrics-key", "key": "key"},
        }
        assert {it["targetLabel"] for it in endpoint["relabelings"]} == {"release", "component"}
    assert spec["endpoints"][1]["tlsConfig"] == {"serverName": "bank"}
    wanted = spec["selector"]["matchLabels"].items()
    scraped = [it for it in found.of_kind("Service") if wanted <= it["metadata"]["labels"].items()]
    names = [port["name"] for it in scraped for port in it["spec"]["ports"]]
    assert sorted(names) == ["http", "http", "http", "https"]


def test_rules_are_as_the_operator_reads_them() -> None:
    spec = render(COMBINATIONS["watched"]).find("PrometheusRule", "-dodona")["spec"]
    assert set(spec) == {"groups"}
    names = [group["name"] for group in spec["groups"]]
    assert names == ["dodona", "dodona-replicas", "dodona-volumes", "dodona-backups"]
    assert all(set(group) == {"name", "rules"} for group in spec["groups"])
    without = render(COMBINATIONS["gateway for all"]).find("PrometheusRule", "-dodona")["spec"]
    assert [group["name"] for group in without["groups"]] == names[:3]
    assert len(RULES) == sum(len(group["rules"]) for group in spec["groups"])


# ---- the tests find what they look for


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("dodona_node_rowz", "there is no metric"),
        ("rate(dodona_node_rows[5m])", "is a gauge"),
        ("dodona_node_commits_total", "is a counter"),
        ('dodona_node_rows{cell="1"}', "has no label cell"),
        ('dodona_master_cells{state="dead"}', "is never state"),
        ("sum by (kind) (dodona_node_rows)", "by kind, which nothing has"),
        ("rate(dodona_node_log_flush_seconds[5m])", "there is no metric"),
    ],
)
def test_a_planted_mistake_is_found(query: str, complaint: str) -> None:
    assert any(complaint in it for it in complaints_of(query))
