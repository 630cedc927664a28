"""What the pages on Kubernetes say to type: each line is read by what would run it, as far as that
goes without a cluster, and names what a release has."""

import functools
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
helm = pytest.importorskip("helm_python", reason=NEEDED)

import typer.main  # noqa: E402

from dodona_gateway.core.access.grants import parse_grants  # noqa: E402
from dodona_gateway.shell.tokens import read_first_token  # noqa: E402
from dodona_local.cli import application  # noqa: E402
from helm_chart import DOCKER, README, ROOT  # noqa: E402
from helm_chart.rendering import NAME, NAMESPACE, Rendered, merged, render  # noqa: E402

HOW_TO: Final = ROOT / "docs" / "how-to" / "run-on-kubernetes.md"
PAGES: Final = (HOW_TO, README)
KINDS: Final = {
    "statefulset": "StatefulSet",
    "deployment": "Deployment",
    "cronjob": "CronJob",
}
HELM: Final = {"install", "upgrade", "test", "uninstall"}
KEY: Final = re.compile(r"[!-~]{16,256}")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def lines(program: str) -> list[str]:
    """All that is typed and begins with that program."""
    typed = [line for page in PAGES for it in blocks(page, "sh") for line in it.splitlines()]
    assert all(it.split()[0] in ("docker", "for", "helm", "kubectl") for it in typed)
    return [it for it in typed if it.split()[0] == program]


@functools.cache
def release() -> Rendered:
    """With all that any line speaks of."""
    values = {
        "node": {"replicas": 8},
        "backup": {"enabled": True, "existingClaim": "bank-backups"},
        "tools": {"enabled": True},
    }
    return render(values)


# ---- helm


@pytest.mark.parametrize("line", lines("helm"))
def test_helm_accepts_the_helm_commands_of_the_pages(line: str) -> None:
    _, verb, name, *rest = shlex.split(line)
    assert (verb in HELM, name) == (True, NAME)
    assert rest[rest.index("--namespace") + 1] == NAMESPACE
    if verb in ("install", "upgrade"):
        assert (ROOT / rest[0]).samefile(README.parent)
        values: dict[str, Any] = {}
        for index, word in enumerate(rest):
            if word == "--set":
                values = merged(values, helm.parse_set_string(rest[index + 1]))
        assert render(values).objects
        assert ("--reset-then-reuse-values" in rest) is (verb == "upgrade"), (
            "else defaults are lost"
        )


def test_the_values_for_production_are_values() -> None:
    (text,) = [it for it in blocks(HOW_TO, "yaml") if it.startswith("image:")]
    found = render(helm.values_from_yaml(text))
    assert {"Ingress", "ServiceMonitor", "PrometheusRule", "CronJob"} <= {
        it["kind"] for it in found.objects
    }
    node = found.find("StatefulSet", "-node")["spec"]
    (container,) = node["template"]["spec"]["containers"]
    values = helm.values_from_yaml(text)["node"]
    needed_mib = values["settings"]["memory_mib_max"] + 3 * 512 + 512
    assert int(container["resources"]["limits"]["memory"].removesuffix("Gi")) * 1024 >= needed_mib
    size = node["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
    assert int(size.removesuffix("Gi")) * 1024 >= 2 * values["settings"]["map_mib_max"]


def test_a_client_of_one_s_own_is_as_the_chart_s_clients_are() -> None:
    (text,) = [it for it in blocks(HOW_TO, "yaml") if it.startswith("metadata:")]
    pod = helm.values_from_yaml(text)
    tools = release().find("Deployment", "-tools")["spec"]["template"]
    assert pod["metadata"]["labels"].items() <= tools["metadata"]["labels"].items()
    (container,), (theirs,) = pod["spec"]["containers"], tools["spec"]["containers"]
    assert container["env"] == theirs["env"]


# ---- kubectl


@pytest.mark.parametrize("line", lines("kubectl"))
def test_kubectl_commands_of_the_pages_name_existing_objects(line: str) -> None:
    words = shlex.split(line.partition(" -- ")[0].replace("$(", "").replace(")", ""))
    if "--namespace" in words:
        assert words[words.index("--namespace") + 1] == NAMESPACE
    for kind, name in re.findall(r"\b(statefulset|deployment|cronjob)[/ ]([\w-]+)", line):
        if not name.startswith("-"):
            found = [it["metadata"]["name"] for it in release().of_kind(KINDS[kind])]
            assert name in found
    pods = {f"{it}-{index}" for it in names("StatefulSet") for index in range(8)}
    claims = {f"data-{pod}" for pod in pods}
    for name in re.findall(rf"\b(?:data-)?{NAME}-dodona-\w+-\d+\b", line):
        assert name in pods | claims


def names(kind: str) -> list[str]:
    return [it["metadata"]["name"] for it in release().of_kind(kind)]


@pytest.mark.parametrize("line", lines("kubectl"))
def test_kubectl_has_the_options(line: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here")
    words = line.partition(" -- ")[0].split()[1:]
    options = [it for it in words if it.startswith("--")]
    ended = subprocess.run(
        [kubectl, *verb_of(words), "--help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    everywhere = {"--namespace"}
    for option in options:
        name = option.partition("=")[0]
        assert name in everywhere or name in ended.stdout, f"{verb_of(words)}: {name}"


def verb_of(words: list[str]) -> list[str]:
    """`create secret generic` of the whole line."""
    long = {"create": 2, "rollout": 2}
    count = long.get(words[0], 1) + (words[:2] == ["create", "secret"])
    return words[:count]


@pytest.mark.parametrize("line", [it for it in lines("kubectl") if "create secret" in it])
def test_the_secrets_that_the_pages_create_are_accepted(line: str, tmp_path: Path) -> None:
    """A shell runs the line, with a kubectl that only says what it was given."""
    script = f"set -o pipefail\nkubectl() {{ printf '%s\\0' \"$@\"; }}\n{line}"
    ended = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    given = [it for it in ended.stdout.split("\0") if it.startswith("--from-literal=")]
    (literal,) = given
    name, _, value = literal.removeprefix("--from-literal=").partition("=")
    if name == "token":
        file = tmp_path / "token"
        file.write_text(value)
        assert read_first_token(file) == value
    else:
        assert name == "key"
        assert KEY.fullmatch(value)
        assert len(value) >= 43, "of 256 random bits"


# ---- dodona


@pytest.mark.parametrize("line", [it for it in lines("kubectl") if " -- " in it])
def test_dodona_takes_it(line: str) -> None:
    program, *words = shlex.split(line.partition(" -- ")[2])
    assert program == "dodona"
    command: Any = typer.main.get_command(application)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    context = command.make_context(program, list(words))
    if "grant" in context.params:
        parse_grants(context.params["grant"])


# ---- docker


@pytest.mark.parametrize("line", lines("for"))
def test_every_image_is_made(line: str) -> None:
    found = re.match(r"for role in ([\w ]+); do docker (build|push) ", line)
    assert found is not None
    assert sorted(found[1].split()) == sorted(it.stem for it in DOCKER.glob("*.Dockerfile"))
    assert "-f helm/docker/$role.Dockerfile" in line or found[2] == "push"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "helm" / "README.md"])
def test_the_chart_s_pages_lead_to_files_that_there_are(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "helm" in target or "how-to/run" in target or "decisions/028" in target:
            assert (page.parent / target).exists()
