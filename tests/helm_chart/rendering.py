"""The chart as Helm renders it: manifests, as Kubernetes would get them.

Owns: how a chart becomes objects. Helm itself does it, in this process, and reads the YAML, so that
nothing here has an opinion of its own about either. Needs helm-python-sdk (the extra `chart`).
"""

import functools
import re
from typing import Any, Final, NamedTuple

import helm_python

from helm_chart import CHART

NAME: Final = "bank"
NAMESPACE: Final = "money"

Values = dict[str, Any]
Object = dict[str, Any]


class Rendered(NamedTuple):
    """What comes of one set of values."""

    objects: tuple[Object, ...]
    notes: str
    text: str
    """All of it, as Helm wrote it."""

    def find(self, kind: str, name: str) -> Object:
        """The one object of that kind whose name ends so. Raises ValueError if it is not one."""
        (found,) = (
            it
            for it in self.objects
            if it["kind"] == kind and it["metadata"]["name"].endswith(name)
        )
        return found

    def of_kind(self, kind: str) -> list[Object]:
        return [it for it in self.objects if it["kind"] == kind]


@functools.cache
def chart() -> helm_python.Chart:
    """Raises HelmError if it is no chart."""
    return helm_python.Chart.load(CHART)


def defaults() -> Values:
    """Those of values.yaml."""
    return chart().values


def merged(values: Values, others: Values) -> Values:
    """As Helm merges them: maps part by part, all else as a whole."""
    result = dict(values)
    for name, value in others.items():
        is_deep = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(result[name], value) if is_deep else value
    return result


def render(values: Values | None = None, name: str = NAME) -> Rendered:
    """A release of that name. Raises HelmError for values that the chart refuses."""
    files = chart().render(values or {}, name=name, namespace=NAMESPACE)
    notes = next(text for name, text in files.items() if name.endswith("NOTES.txt"))
    manifests = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    documents = [it for text in manifests for it in re.split(r"^---$", text, flags=re.MULTILINE)]
    objects = [helm_python.values_from_yaml(it) for it in documents if _has_content(it)]
    return Rendered(tuple(objects), notes, "\n".join([notes, *manifests]))


def _has_content(document: str) -> bool:
    return any(line.strip() and not line.startswith("#") for line in document.splitlines())


def pod_template(owner: Object) -> Object:
    """Of whatever makes pods, or of a pod itself."""
    spec = owner["spec"]
    if owner["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    template: Object = owner if owner["kind"] == "Pod" else spec["template"]
    return template


def container_of(owner: Object) -> Object:
    """The one container of the pods. Raises ValueError if there are more."""
    (container,) = pod_template(owner)["spec"]["containers"]
    found: Object = container
    return found


def pod_owners(rendered: Rendered) -> list[Object]:
    """All that make pods, and pods."""
    kinds = ("StatefulSet", "Deployment", "CronJob", "Pod")
    return [it for it in rendered.objects if it["kind"] in kinds]
