"""The pod with which the page on Kubernetes restores backups and looks into volumes is as the
chart's own are, and finds what it looks for."""

import re
from typing import Any, Final

import pytest

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
helm = pytest.importorskip("helm_python", reason=NEEDED)

from documents.blocks import ROOT, blocks_of  # noqa: E402
from helm_chart.rendering import NAME, Object, pod_template, render  # noqa: E402

PAGE: Final = "docs/how-to/run-on-kubernetes.md"
SECTION: Final = "Restore, and look into a volume"
VALUES: Final[dict[str, Any]] = {
    "image": {"registry": "registry.example.org"},
    "node": {"replicas": 4},
    "backup": {"enabled": True, "existingClaim": "bank-backups"},
}


def pod() -> Object:
    (text,) = [it.text for it in blocks_of(PAGE) if (it.heading, it.language) == (SECTION, "yaml")]
    found: Object = helm.values_from_yaml(text)
    return found


def test_the_repair_pod_runs_with_the_settings_of_the_tools_pod() -> None:
    ours, chart = pod(), render(VALUES)
    theirs = pod_template(chart.find("Deployment", "-tools"))
    assert ours["metadata"]["labels"].items() <= theirs["metadata"]["labels"].items()
    assert ours["spec"]["securityContext"] == theirs["spec"]["securityContext"]
    (container,), (model,) = ours["spec"]["containers"], theirs["spec"]["containers"]
    assert container["env"] == model["env"]
    assert container["image"] == model["image"]
    assert container["securityContext"].items() <= model["securityContext"].items()


def test_the_repair_pod_mounts_the_claim_of_the_backups() -> None:
    chart = render(VALUES)
    spec = pod()["spec"]
    (volume,) = spec["volumes"]
    backup = chart.find("CronJob", "-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    claims = [it["persistentVolumeClaim"] for it in backup["volumes"] if it["name"] == "backup"]
    assert claims == [volume["persistentVolumeClaim"]]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {"name": volume["name"], "mountPath": "/volume"}


@pytest.mark.parametrize(("role", "index"), [("node", 3), ("master", 0)])
def test_a_server_s_folder_is_where_the_page_looks(role: str, index: int) -> None:
    owner = render(VALUES).find("StatefulSet", f"-{role}")
    (claim,) = owner["spec"]["volumeClaimTemplates"]
    (container,) = pod_template(owner)["spec"]["containers"]
    (folder,) = [it.partition("=")[2] for it in container["args"] if it.startswith("--data-dir=")]
    (mount,) = [it for it in container["volumeMounts"] if it["name"] == claim["metadata"]["name"]]
    text = section()
    assert f"`{claim['metadata']['name']}-{NAME}-dodona-{role}-{index}`" in text
    assert index < owner["spec"]["replicas"]
    assert folder.replace(mount["mountPath"], "/volume") in text


def section() -> str:
    text = (ROOT / PAGE).read_text()
    (found,) = re.findall(rf"^## {SECTION}\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    return str(found)
