"""What a kubelet makes of a pod: the command that is run, its environment, its files.

Owns: the image's entry point, `$(NAME)`, and what the downward API tells a pod. Enough to start a
chart's containers, or to read their settings, without Kubernetes. Pure, but for Dockerfiles.
"""

import json
import re
from typing import Any, Final, NamedTuple

from helm_chart import DOCKER

INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"

Object = dict[str, Any]


class Pod(NamedTuple):
    """Who a pod is: what Kubernetes tells it about itself."""

    name: str
    address: str
    ordinal: int | None = None
    """Of a StatefulSet's pod."""


class Command(NamedTuple):
    """What runs in a container."""

    words: tuple[str, ...]
    environment: dict[str, str]

    @property
    def module(self) -> str:
        """What `python -m` runs."""
        return self.words[self.words.index("-m") + 1]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Those of the module."""
        return self.words[self.words.index("-m") + 2 :]


def command_of(container: Object, pod: Pod, secrets: dict[tuple[str, str], str]) -> Command:
    """Of a container. `secrets` are the values of Secrets' keys, for variables that have one."""
    environment: dict[str, str] = {}
    for variable in container.get("env", []):
        environment[variable["name"]] = _value(variable, pod, secrets, environment)
    entry = container.get("command") or entry_point(image_role(container["image"]))
    words = [_expanded(it, environment) for it in [*entry, *container.get("args", [])]]
    return Command(tuple(words), environment)


def image_role(image: str) -> str:
    """`master` of `registry/dodona-master:0.1.0`."""
    return image.rpartition("dodona-")[2].partition(":")[0]


def entry_point(role: str) -> list[str]:
    """The image's. Raises OSError if there is no such image."""
    text = (DOCKER / f"{role}.Dockerfile").read_text()
    (found,) = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


def _value(
    variable: Object, pod: Pod, secrets: dict[tuple[str, str], str], before: dict[str, str]
) -> str:
    if "value" in variable:
        return _expanded(variable["value"], before)
    source = variable["valueFrom"]
    if "secretKeyRef" in source:
        wanted = source["secretKeyRef"]
        return secrets[wanted["name"], wanted["key"]]
    told = {
        "metadata.name": pod.name,
        "status.podIP": pod.address,
        # Of a pod that has no such label, nothing.
        f"metadata.labels['{INDEX_LABEL}']": "" if pod.ordinal is None else str(pod.ordinal),
    }
    return told[source["fieldRef"]["fieldPath"]]


def _expanded(text: str, environment: dict[str, str]) -> str:
    """`$(NAME)` of what is known; all else stays as it is."""
    return re.sub(r"\$\((\w+)\)", lambda it: environment.get(it[1], it[0]), text)
