"""What the chart renders is what Kubernetes takes, with every set of values; and nothing in it is
open that need not be."""

import base64
import functools
import math
import re
from collections import Counter
from typing import Any, Final

import pytest

NEEDED = "Helm and Kubernetes's schemas come with the extra `chart`, for Linux on x86-64 only"
pytest.importorskip("helm_python", reason=NEEDED)
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=NEEDED)

from helm_chart import CHART, ROLES  # noqa: E402
from helm_chart.combinations import COMBINATIONS  # noqa: E402
from helm_chart.rendering import (  # noqa: E402
    NAME,
    NAMESPACE,
    Object,
    Rendered,
    container_of,
    pod_owners,
    pod_template,
    render,
)
from helm_chart.settings import KINDS  # noqa: E402

VERSIONS: Final = ("1.28", "1.32", "1.37")
"""Of Kubernetes: the oldest that the chart takes, one in between, the newest with a schema."""
CUSTOM: Final = ("ServiceMonitor", "PrometheusRule")
NAME_LENGTH_MAX: Final = {"StatefulSet": 52, "CronJob": 52}
"""What Kubernetes adds to these makes labels of 63."""

rendered = functools.cache(lambda name: render(COMBINATIONS[name]))


@pytest.fixture(params=COMBINATIONS)
def each(request: pytest.FixtureRequest) -> Rendered:
    found: Rendered = rendered(request.param)
    return found


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> None:
    utils = kubernetes_validate.utils
    if not hasattr(utils.schema_contents, "cache_info"):
        utils.schema_contents = functools.cache(utils.schema_contents)


# ---- Kubernetes takes it


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_all_rendered_objects(each: Rendered, version: str) -> None:
    for it in each.objects:
        if it["kind"] not in CUSTOM:
            kubernetes_validate.validate(it, version, strict=True)


def test_kubernetes_s_schemas_are_looked_at() -> None:
    broken = {**rendered("defaults").find("Service", "-master"), "specs": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_no_two_objects_have_one_name(each: Rendered) -> None:
    names = Counter((it["kind"], it["metadata"]["name"]) for it in each.objects)
    assert [it for it, count in names.items() if count > 1] == []


def test_names_and_labels_are_short_enough(each: Rendered) -> None:
    for it in each.objects:
        assert len(it["metadata"]["name"]) <= NAME_LENGTH_MAX.get(it["kind"], 63)
        assert all(len(value) <= 63 for value in it["metadata"]["labels"].values())


def test_selectors_find_the_pods_that_they_mean(each: Rendered) -> None:
    labels = {it["metadata"]["name"]: template_labels(it) for it in pod_owners(each)}
    for it in each.objects:
        selector = it["spec"].get("selector", {}) if "spec" in it else {}
        if it["kind"] in ("Service", "StatefulSet", "Deployment", "PodDisruptionBudget"):
            selector = selector.get("matchLabels", selector)
            found = [name for name, has in labels.items() if selector.items() <= has.items()]
            assert found == [it["metadata"]["name"]]


def template_labels(owner: Object) -> dict[str, str]:
    labels: dict[str, str] = pod_template(owner)["metadata"]["labels"]
    return labels


def test_volume_claim_templates_have_only_the_selector_labels(each: Rendered) -> None:
    for it in each.of_kind("StatefulSet"):
        for claim in it["spec"]["volumeClaimTemplates"]:
            assert set(claim["metadata"]["labels"]) == set(it["spec"]["selector"]["matchLabels"])


def test_every_volume_is_mounted_and_every_mount_has_a_volume(each: Rendered) -> None:
    for owner in pod_owners(each):
        spec = pod_template(owner)["spec"]
        claims = owner["spec"].get("volumeClaimTemplates", [])
        volumes = [it["name"] for it in spec["volumes"]] + [it["metadata"]["name"] for it in claims]
        (container,) = spec["containers"]
        assert sorted(volumes) == sorted(it["name"] for it in container["volumeMounts"])


def test_every_branch_of_the_templates_is_rendered() -> None:
    kinds = {it["kind"] for name in COMBINATIONS for it in rendered(name).objects}
    written = re.findall(r"^kind: (\w+)$", templates(), re.MULTILINE)
    assert kinds == set(written)
    text = "".join(rendered(name).text for name in COMBINATIONS)
    for flag in re.findall(r"--[a-z-]+(?==)", templates()):
        assert flag in text


def templates() -> str:
    paths = [*CHART.glob("templates/**/*.yaml"), *CHART.glob("templates/*.tpl")]
    return "\n".join(path.read_text() for path in paths)


# ---- the cluster is what it has to be


def test_the_chart_renders_one_master_and_a_volume_for_each_cell(each: Rendered) -> None:
    master, node = each.find("StatefulSet", "-master"), each.find("StatefulSet", "-node")
    assert master["spec"]["replicas"] == 1
    for it in (master, node):
        (claim,) = it["spec"]["volumeClaimTemplates"]
        (mode,) = claim["spec"]["accessModes"]
        assert mode in ("ReadWriteOnce", "ReadWriteOncePod")
    for it in (master, node):
        assert it["spec"]["podManagementPolicy"] == "Parallel"
    service = each.find("Service", "-node")
    assert node["spec"]["serviceName"] == service["metadata"]["name"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == (
        "None",
        True,
    )


def test_volumes_outlive_the_release_by_default() -> None:
    for it in rendered("defaults").of_kind("StatefulSet"):
        assert it["spec"]["persistentVolumeClaimRetentionPolicy"] == {
            "whenDeleted": "Retain",
            "whenScaled": "Retain",
        }


def test_with_an_autoscaler_the_deployment_sets_no_replicas() -> None:
    found = rendered("autoscaling")
    for role, most in (("proxy", 12), ("gateway", 6)):
        assert "replicas" not in found.find("Deployment", f"-{role}")["spec"]
        spec = found.find("HorizontalPodAutoscaler", f"-{role}")["spec"]
        assert (spec["scaleTargetRef"]["name"], spec["maxReplicas"]) == (
            f"{NAME}-dodona-{role}",
            most,
        )


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("defaults", "preferredDuringSchedulingIgnoredDuringExecution"),
        ("where pods run", "requiredDuringSchedulingIgnoredDuringExecution"),
    ],
)
def test_two_cells_keep_apart(name: str, rule: str) -> None:
    found = rendered(name).find("StatefulSet", "-node")
    spec = pod_template(found)["spec"]
    (term,) = spec["affinity"]["podAntiAffinity"][rule]
    term = term.get("podAffinityTerm", term)
    assert term["labelSelector"] == found["spec"]["selector"]
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["labelSelector"] == found["spec"]["selector"]


def test_affinity_of_one_s_own_stands_beside_the_chart_s() -> None:
    found = rendered("where pods run").find("Deployment", "-gateway")
    assert set(pod_template(found)["spec"]["affinity"]) == {"nodeAffinity", "podAntiAffinity"}


def test_a_caller_of_gateways_is_kept_to_one() -> None:
    assert rendered("defaults").find("Service", "-gateway")["spec"]["sessionAffinity"] == "ClientIP"
    assert "sessionAffinity" not in rendered("smallest").find("Service", "-gateway")["spec"]


# ---- nothing is open


def test_no_pod_has_more_rights_than_necessary(each: Rendered) -> None:
    for owner in pod_owners(each):
        spec = pod_template(owner)["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False, "they would make settings of Services' ports"
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] >= 1000
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]
        assert not any("hostPath" in it for it in spec["volumes"])
        writable = [it["emptyDir"] for it in spec["volumes"] if "emptyDir" in it]
        assert all("sizeLimit" in it for it in writable), "a log in /tmp would fill the machine"


def test_no_policy_leaves_a_pod_open(each: Rendered) -> None:
    policies = each.of_kind("NetworkPolicy")
    if not policies:
        assert each is rendered("smallest")
        return
    for owner in pod_owners(each):
        labels = template_labels(owner)
        fit = [it for it in policies if fits(it["spec"]["podSelector"], labels)]
        assert len(fit) == 2, "the one that closes, and the one that opens"
        assert all(it["spec"]["policyTypes"] == ["Ingress", "Egress"] for it in fit)
    for policy in policies:
        rules = [*policy["spec"].get("ingress", []), *policy["spec"].get("egress", [])]
        for rule in rules:
            assert rule["ports"]
            assert rule.get("from") or rule.get("to"), "a rule without peers is for everybody"


def fits(selector: Object, labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def talks(found: Rendered, source: str, target: str) -> bool:
    """Whether both ends let a pod of one role speak to one of another at its port."""
    pods = {role_of(it): template_labels(it) for it in pod_owners(found)}
    ports = {it["metadata"]["name"]: it["spec"]["ports"][0] for it in found.of_kind("Service")}
    owner = next(it for it in pod_owners(found) if role_of(it) == target)
    container = container_of(owner)
    assert ports[owner["metadata"]["name"]]["targetPort"] == container["ports"][0]["name"]
    port = container["ports"][0]["containerPort"]
    ends = (("egress", "to", source, target), ("ingress", "from", target, source))
    return all(
        any(
            {"protocol": "TCP", "port": port} in rule["ports"]
            and any(fits(it["podSelector"], pods[other]) for it in local_peers(rule[word]))
            for policy in found.of_kind("NetworkPolicy")
            if fits(policy["spec"]["podSelector"], pods[mine])
            for rule in policy["spec"].get(direction, [])
        )
        for direction, word, mine, other in ends
    )


def local_peers(peers: list[Object]) -> list[Object]:
    return [it for it in peers if set(it) == {"podSelector"}]


def role_of(owner: Object) -> str:
    return template_labels(owner)["app.kubernetes.io/component"]


SPEAKS: Final[dict[str, set[str]]] = {
    "master": set(),
    "proxy": {"master"},
    "node": {"master", "node"},
    "gateway": {"master", "proxy", "node"},
    **{it: set(ROLES) for it in ("tools", "check", "backup")},
}
"""As in ARCHITECTURE.md."""


@pytest.mark.parametrize("source", SPEAKS)
def test_each_role_can_connect_only_to_the_roles_that_it_needs(source: str) -> None:
    found = rendered("who may speak")
    assert {it for it in ROLES if talks(found, source, it)} == SPEAKS[source]


def test_named_namespaces_and_labelled_pods_may_connect_to_every_role() -> None:
    found = rendered("who may speak")
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shops"}}}
    for role in ROLES:
        policy = found.find("NetworkPolicy", f"-{role}")
        (rule,) = policy["spec"]["ingress"]
        assert peer in rule["from"]
        label = {"podSelector": {"matchLabels": {"dodona-client": f"{NAME}-dodona"}}}
        assert label in rule["from"]
    assert f"dodona-client: {NAME}-dodona" in found.notes


def test_scrapers_get_in_only_if_there_is_a_key_for_them() -> None:
    monitoring = {"kubernetes.io/metadata.name": "monitoring"}
    for name, is_in in (("defaults", False), ("watched", True)):
        (rule,) = rendered(name).find("NetworkPolicy", "-node")["spec"]["ingress"]
        assert ({"namespaceSelector": {"matchLabels": monitoring}} in rule["from"]) is is_in


@pytest.mark.parametrize(
    ("name", "port"), [("watched", 4318), ("traces to a well-known port", 443)]
)
def test_traces_leave_by_the_collector_s_port(name: str, port: int) -> None:
    for role in ROLES:
        rules = rendered(name).find("NetworkPolicy", f"-{role}")["spec"].get("egress", [])
        ports = [it for rule in rules for it in rule["ports"]]
        has_traces = "trace_url" in KINDS[role].model_fields
        assert ({"protocol": "TCP", "port": port} in ports) is has_traces
    assert "egress" not in rendered(name).find("NetworkPolicy", "-master")["spec"]


# ---- no secret is anywhere


SECRETS: Final = (
    re.compile(r"-----BEGIN [A-Z ]*(PRIVATE KEY|CERTIFICATE)"),
    re.compile(r"dodona_[0-9a-f]{16}_[A-Za-z0-9_-]{43}"),
    re.compile(r"eyJ[A-Za-z0-9_-]{10,}\."),
    re.compile(r"\b(AKIA|ghp_|xox[bp]-|glpat-)[A-Za-z0-9-]{10,}"),
    re.compile(r"https?://[^/\s:@]*:[^/\s@]+@"),
    re.compile(r"(?i)\b(password|passwd|api[-_]?key)\b\s*[:=]\s*\S"),
)
WORD: Final = re.compile(r"[A-Za-z0-9+/_=-]{24,}")
ENTROPY_BITS_MAX: Final = 4.2
"""For each character. Words and names have less, random base64 has more."""


def test_no_secret_is_made_or_shown(each: Rendered) -> None:
    assert each.of_kind("Secret") == []
    assert complaints_of(each.text) == []
    for owner in pod_owners(each):
        for container in pod_template(owner)["spec"]["containers"]:
            for variable in container.get("env", []):
                if any(it in variable["name"] for it in ("KEY", "HEADERS")):
                    assert set(variable["valueFrom"]) == {"secretKeyRef"}


def test_no_file_of_the_chart_has_a_secret() -> None:
    for path in CHART.rglob("*"):
        if path.is_file():
            assert complaints_of(path.read_text()) == [], path


def complaints_of(text: str) -> list[str]:
    found = [it[0] for pattern in SECRETS for it in pattern.finditer(text)]
    return found + [word for word in WORD.findall(text) if entropy_bits(word) > ENTROPY_BITS_MAX]


def entropy_bits(word: str) -> float:
    counts = Counter(word).values()
    return -sum(it / len(word) * math.log2(it / len(word)) for it in counts)


@pytest.mark.parametrize(
    "text",
    [
        f"dodona_{'0a' * 8}_{'A' * 43}",
        "-----BEGIN PRIVATE KEY-----",
        "http://:0123456789abcdef@master:8500",
        "password: hunter2",
        base64.b64encode(bytes(range(7, 256, 8))).decode(),
    ],
)
def test_a_planted_secret_is_found(text: str) -> None:
    assert complaints_of(f"  value: {text}\n")


@pytest.mark.parametrize("combination", ["gateway for all", "watched"])
def test_notes_say_how_to_make_each_secret_that_is_named(combination: str) -> None:
    notes = rendered(combination).notes
    for owner in pod_owners(rendered(combination)):
        for name in secrets_of(owner):
            assert re.search(
                rf"kubectl create secret (generic|tls) {name} --namespace {NAMESPACE}", notes
            )


def secrets_of(owner: Object) -> set[Any]:
    spec = pod_template(owner)["spec"]
    (container,) = spec["containers"]
    sources = [it.get("valueFrom", {}) for it in container.get("env", [])]
    return {
        *(it["secret"]["secretName"] for it in spec["volumes"] if "secret" in it),
        *(it["secretKeyRef"]["name"] for it in sources if "secretKeyRef" in it),
    }
