"""The compose file as Compose reads it: variables put in, parts merged, mounts taken apart.

Owns: as much of Compose as that file uses. Knows nothing of how the file is made.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import helm_python

from helm_chart.kubelet import image_role

_VARIABLE: Final = re.compile(r"\$(?:(\$)|\{(\w+)(?::-([^}]*))?\})")


class Service(NamedTuple):
    """One service."""

    name: str
    raw: dict[str, Any]
    """As it is written, with what is merged."""
    variables: Mapping[str, str]

    @property
    def role(self) -> str:
        """That of its image."""
        return image_role(self.raw["image"])

    @property
    def command(self) -> list[str]:
        return self._texts("command")

    @property
    def entrypoint(self) -> list[str]:
        """Its own; none if the image's is taken."""
        return self._texts("entrypoint")

    @property
    def health(self) -> list[str]:
        """The words of its check."""
        return [text_of(it, self.variables) for it in self.raw["healthcheck"]["test"]]

    @property
    def environment(self) -> dict[str, str]:
        found = self.raw.get("environment", {})
        return {name: text_of(value, self.variables) for name, value in found.items()}

    @property
    def mounts(self) -> dict[str, str]:
        """Volumes by the folder where they are."""
        parts = [it.split(":") for it in self.raw["volumes"]]
        return {place: source for source, place, *_ in parts}

    @property
    def written(self) -> set[str]:
        """The folders of those that are not only read."""
        parts = [it.split(":") for it in self.raw["volumes"]]
        return {place for _, place, *options in parts if "ro" not in options}

    def _texts(self, name: str) -> list[str]:
        return [text_of(it, self.variables) for it in self.raw.get(name, [])]


class ComposeFile(NamedTuple):
    """All of it."""

    services: dict[str, Service]
    volumes: list[str]


def read_compose(path: Path, variables: Mapping[str, str] | None = None) -> ComposeFile:
    """Read a file, with these variables of the environment. Raises OSError, HelmError."""
    found = helm_python.values_from_yaml(path.read_text())
    services = {
        name: Service(name, raw, variables or {}) for name, raw in found["services"].items()
    }
    return ComposeFile(services, list(found["volumes"]))


def text_of(text: str, variables: Mapping[str, str]) -> str:
    """With the values of variables, and `$` for `$$`. Raises ValueError for one without a value."""

    def value(found: re.Match[str]) -> str:
        escaped, name, default = found.groups()
        if escaped:
            return "$"
        if name not in variables and default is None:
            raise ValueError(f"{name} has no value")
        return variables.get(name, default or "")

    return _VARIABLE.sub(value, text)
