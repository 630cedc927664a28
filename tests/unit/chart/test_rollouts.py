"""What becomes of pods while versions change and machines are drained: strategies, probes, budgets
and autoscalers, number by number."""

from typing import Any, Final

import pytest

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
pytest.importorskip("helm_python", reason=NEEDED)

from helm_chart import ROLES  # noqa: E402
from helm_chart.combinations import COMBINATIONS  # noqa: E402
from helm_chart.rendering import Object, merged, pod_owners, pod_template, render  # noqa: E402

STATELESS: Final = ("proxy", "gateway")
STATEFUL: Final = ("master", "node")


def owner(role: str, values: Any = None) -> Object:
    kind = "StatefulSet" if role in STATEFUL else "Deployment"
    return render(values).find(kind, f"-{role}")


# ---- new versions


@pytest.mark.parametrize("role", STATEFUL)
def test_pods_of_stateful_sets_start_in_parallel(role: str) -> None:
    """In order, Kubernetes waits for the broken one to be ready before it makes the mended one."""
    assert owner(role)["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize("role", STATELESS)
@pytest.mark.parametrize("anti_affinity", ["preferred", "none"])
def test_a_new_pod_is_ready_before_an_old_one_stops(role: str, anti_affinity: str) -> None:
    found = owner(role, {role: {"antiAffinity": anti_affinity}})
    assert found["spec"]["strategy"] == {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


@pytest.mark.parametrize("role", STATELESS)
def test_where_no_two_share_a_machine_an_old_one_makes_room(role: str) -> None:
    """Else the new one waits for a machine, and the old ones for the new one, where there are as
    many as machines: old and new ones keep apart, too."""
    found = owner(role, {role: {"antiAffinity": "required"}})
    assert found["spec"]["strategy"] == {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}


@pytest.mark.parametrize(
    ("role", "values", "strategy"),
    [
        ("master", {}, {"type": "RollingUpdate"}),
        ("master", {"updateStrategy": "OnDelete"}, {"type": "OnDelete"}),
        ("node", {}, {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        (
            "node",
            {"updatePartition": 2},
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
        ),
        ("node", {"updateStrategy": "OnDelete"}, {"type": "OnDelete"}),
    ],
)
def test_cells_and_the_master_use_the_update_strategy_of_the_values(
    role: str, values: Any, strategy: Any
) -> None:
    assert owner(role, {role: values})["spec"]["updateStrategy"] == strategy


@pytest.mark.parametrize("name", COMBINATIONS)
def test_no_pod_starts_again_for_another_version_of_the_chart(name: str) -> None:
    own = {f"app.kubernetes.io/{it}" for it in ("name", "instance", "component", "part-of")}
    own |= {"dodona-client", "team"}
    for it in pod_owners(render(COMBINATIONS[name])):
        assert set(pod_template(it)["metadata"]["labels"]) <= own


# ---- probes, budgets, autoscalers


@pytest.mark.parametrize(
    ("role", "startup_s"), [("master", 600), ("proxy", 120), ("node", 3600), ("gateway", 120)]
)
def test_probes_are_neither_hasty_nor_patient(role: str, startup_s: int) -> None:
    (container,) = pod_template(owner(role))["spec"]["containers"]
    numbers = ("periodSeconds", "timeoutSeconds", "failureThreshold")
    for probe, wanted in (
        ("startupProbe", (2, 2, startup_s // 2)),
        ("readinessProbe", (3, 3, 2)),
        ("livenessProbe", (10, 5, 6)),
    ):
        assert set(container[probe]) == {"httpGet", *numbers}
        assert tuple(container[probe][it] for it in numbers) == wanted


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("count", [None, 0, 3])
def test_a_budget_is_the_one_that_is_given(role: str, count: int | None) -> None:
    given = {} if count is None else {"disruptionBudget": {"maxUnavailable": count}}
    spec = render({role: given}).find("PodDisruptionBudget", f"-{role}")["spec"]
    assert spec == {
        "maxUnavailable": 1 if count is None else count,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": owner(role)["spec"]["selector"],
    }


@pytest.mark.parametrize("role", STATELESS)
@pytest.mark.parametrize(
    "given", [{}, {"minReplicas": 3, "maxReplicas": 9, "targetCpuPercent": 55}]
)
def test_an_autoscaler_has_the_bounds_that_are_given(role: str, given: dict[str, int]) -> None:
    found = render({role: {"autoscaling": {"enabled": True, **given}}})
    spec = found.find("HorizontalPodAutoscaler", f"-{role}")["spec"]
    wanted = merged({"minReplicas": 2, "maxReplicas": 6, "targetCpuPercent": 70}, given)
    assert (spec["minReplicas"], spec["maxReplicas"]) == (
        wanted["minReplicas"],
        wanted["maxReplicas"],
    )
    target = {"type": "Utilization", "averageUtilization": wanted["targetCpuPercent"]}
    assert spec["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
