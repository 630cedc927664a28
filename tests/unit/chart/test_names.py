"""Names of objects are those that Kubernetes takes, and none of them is read as anything else."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

NEEDED = "Helm and Kubernetes's schemas come with the extra `chart`, for Linux on x86-64 only"
helm = pytest.importorskip("helm_python", reason=NEEDED)
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=NEEDED)

from helm_chart.combinations import COMBINATIONS  # noqa: E402
from helm_chart.rendering import Object, render  # noqa: E402

ODD: Final = "names that YAML takes for something else"
CUSTOM: Final = ("ServiceMonitor", "PrometheusRule")
NAMES: Final = (
    *("claimName", "host", "ingressClassName", "key", "name", "priorityClassName", "replacement"),
    *("secretName", "serviceAccountName", "serviceName"),
)


@pytest.mark.parametrize("release", ["my.bank", "1bank", "bank.prod"])
def test_a_release_that_services_can_t_be_named_after_is_refused(release: str) -> None:
    with pytest.raises(helm.HelmError, match="Services can't be named after"):
        render(name=release)
    assert render({"fullnameOverride": "bank"}, name=release).find("Service", "bank-master")


@pytest.mark.parametrize("name", ["bank.prod", "1bank", "bank-" + 36 * "b" + "."])
def test_a_name_that_services_can_t_have_is_refused(name: str) -> None:
    with pytest.raises(helm.HelmError, match="fullnameOverride"):
        render({"fullnameOverride": name})


def names_of(thing: Any, key: str = "") -> Iterator[Any]:
    """What stands where a name does."""
    if isinstance(thing, dict):
        for name, inner in thing.items():
            yield from names_of(inner, name)
    elif isinstance(thing, list):
        for inner in thing:
            yield from names_of(inner, key)
    elif key in NAMES:
        yield thing


def test_names_that_look_like_numbers_or_booleans_stay_text() -> None:
    found = list(names_of([*render(COMBINATIONS[ODD]).objects]))
    odd = {"0", "0x1f", "1.2", "1.5", "123", "1e3", "1e5", "42", "7", "8", "9", "no", "null"}
    assert odd | {"true"} <= set(found)
    assert [it for it in found if not isinstance(it, str)] == []


@pytest.mark.parametrize("release", ["true", "123", "1e5", "null"])
def test_a_release_may_have_a_name_that_looks_like_another_type(release: str) -> None:
    found = render({**COMBINATIONS[ODD], "fullnameOverride": "null"}, name=release)
    for it in found.objects:
        assert_labels_are_text(it)
        if it["kind"] not in CUSTOM:
            kubernetes_validate.validate(it, "1.37", strict=True)
    (monitor,) = found.of_kind("ServiceMonitor")
    for endpoint in monitor["spec"]["endpoints"]:
        assert endpoint["relabelings"][0] == {"targetLabel": "release", "replacement": release}
    assert monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == release


def assert_labels_are_text(thing: Object) -> None:
    assert isinstance(thing["metadata"]["name"], str)
    assert all(isinstance(it, str) for it in thing["metadata"]["labels"].values())
