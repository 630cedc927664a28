"""Ways in and out: what Services, the Ingress and policies name is there, and at that port."""

from typing import Any, Final

import pytest

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
pytest.importorskip("helm_python", reason=NEEDED)

from helm_chart import ROLES  # noqa: E402
from helm_chart.combinations import COMBINATIONS  # noqa: E402
from helm_chart.rendering import (  # noqa: E402
    Object,
    Rendered,
    defaults,
    merged,
    pod_owners,
    pod_template,
    render,
)
from helm_chart.settings import KINDS  # noqa: E402

PORTS: Final = {"master": 8500, "proxy": 8501, "node": 8502, "gateway": 8502}


@pytest.fixture(params=COMBINATIONS)
def each(request: pytest.FixtureRequest) -> tuple[Rendered, dict[str, Any]]:
    values = COMBINATIONS[request.param]
    return render(values), merged(defaults(), values)


# ---- Services and the Ingress


def test_a_service_has_one_port_which_leads_to_the_port_of_its_pods(
    each: tuple[Rendered, dict[str, Any]],
) -> None:
    found, values = each
    ports = {**PORTS, "gateway": values["gateway"]["service"]["port"]}
    for role in ROLES:
        has_tls = role == "gateway" and values["gateway"]["tls"]["existingSecret"]
        (port,) = found.find("Service", f"-{role}")["spec"]["ports"]
        name = "https" if has_tls else "http"
        assert port == {"name": name, "port": ports[role], "targetPort": "rest"}
        owner = next(it for it in pod_owners(found) if it["metadata"]["name"].endswith(f"-{role}"))
        (container,) = pod_template(owner)["spec"]["containers"]
        assert container["ports"] == [{"name": "rest", "containerPort": PORTS[role]}]


@pytest.mark.parametrize("name", ["plain ingress", "gateway for all"])
def test_an_ingress_leads_to_a_port_that_the_service_has(name: str) -> None:
    found = render(COMBINATIONS[name])
    (ingress,) = found.of_kind("Ingress")
    services = {it["metadata"]["name"]: it["spec"]["ports"] for it in found.of_kind("Service")}
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    backend = path["backend"]["service"]
    assert (rule["host"], path["path"], path["pathType"]) == ("bank.example.org", "/", "Prefix")
    (port,) = services[backend["name"]]
    assert backend == {"name": "bank-dodona-gateway", "port": {"name": port["name"]}}


def test_the_gateway_service_sets_source_ranges_and_traffic_policy() -> None:
    spec = render(COMBINATIONS["gateway for all"]).find("Service", "-gateway")["spec"]
    assert spec["type"] == "LoadBalancer"
    assert spec["externalTrafficPolicy"] == "Local"
    assert spec["loadBalancerSourceRanges"] == ["192.0.2.0/24", "2001:db8::/32"]
    given = {"type": "NodePort", "externalTrafficPolicy": "Cluster"}
    spec = render({"gateway": {"service": given}}).find("Service", "-gateway")["spec"]
    assert given.items() <= spec.items()


def test_traffic_settings_without_a_value_are_left_to_kubernetes() -> None:
    for kind in ("ClusterIP", "LoadBalancer"):
        found = render({"gateway": {"service": {"type": kind}}}).find("Service", "-gateway")
        assert not {"externalTrafficPolicy", "loadBalancerSourceRanges"} & set(found["spec"])


# ---- policies


def test_every_pod_that_may_connect_may_also_ask_the_dns(
    each: tuple[Rendered, dict[str, Any]],
) -> None:
    found, values = each
    policy = values["networkPolicy"]
    names = [{"protocol": it, "port": policy["dnsPort"]} for it in ("UDP", "TCP")]
    speaking = [it["spec"] for it in found.of_kind("NetworkPolicy") if it["spec"].get("egress")]
    assert len(speaking) == (4 if policy["enabled"] else 0), "all but the master"
    for spec in speaking:
        assert {"to": policy["dns"], "ports": names} in spec["egress"]


def traces(found: Rendered, role: str) -> list[Object]:
    """How a role's policy lets it reach the collector."""
    rules = found.find("NetworkPolicy", f"-{role}")["spec"].get("egress", [])
    peers = defaults()["networkPolicy"]["tracing"]
    return [port for rule in rules if rule["to"] == peers for port in rule["ports"]]


@pytest.mark.parametrize(
    ("url", "given", "port"),
    [
        ("http://collector.observability:4318/v1/traces", 0, 4318),
        ("http://collector", 0, 80),
        ("https://collector/v1/traces", 0, 443),
        ("http://[2001:db8::1]/v1/traces", 0, 80),
        ("http://[2001:db8::1]:4318/v1/traces", 0, 4318),
        ("http://collector.observability/v1/traces", 4318, 4318),
        ("https://collector:443", 4318, 4318),
    ],
)
def test_traces_leave_by_the_port_of_the_collector_s_pods(url: str, given: int, port: int) -> None:
    found = render({"tracing": {"url": url}, "networkPolicy": {"tracingPort": given}})
    for role in ROLES:
        has_traces = "trace_url" in KINDS[role].model_fields
        wanted = [{"protocol": "TCP", "port": port}] if has_traces else []
        assert traces(found, role) == wanted


# ---- what a collector is told


def test_only_nodes_and_gateways_get_the_secret_headers_of_the_collector() -> None:
    found = render(COMBINATIONS["watched"])
    source = {"secretKeyRef": {"name": "bank-traces", "key": "headers"}}
    wanted = {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": source}
    for owner in pod_owners(found):
        (container,) = pod_template(owner)["spec"]["containers"]
        role = pod_template(owner)["metadata"]["labels"]["app.kubernetes.io/component"]
        named = [it for it in container.get("env", []) if it["name"].startswith("OTEL_")]
        assert named == ([wanted] if role in ("node", "gateway") else [])
    assert "OTEL_" not in render({"tracing": {"existingSecret": "bank-traces"}}).text
