"""The projects of the repository, as their `pyproject.toml` describe them.

Owns: where the project of each distribution lies, and what an install brings. Must not import: any
product.
"""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any, Final

from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = {
    "dodona": ROOT / "client",
    "dodona-server": ROOT,
    "dodona-loadtest": ROOT / "loadtest",
}
"""By distribution. Each one requires the one before it."""


def project_of(distribution: str) -> dict[str, Any]:
    """The table `project`."""
    project: dict[str, Any] = settings_of(distribution)["project"]
    return project


def settings_of(distribution: str) -> dict[str, Any]:
    """The whole file."""
    return tomllib.loads((FOLDERS[distribution] / "pyproject.toml").read_text("utf-8"))


def packages_of(distribution: str) -> list[Path]:
    """The folders of the packages that its wheel has."""
    folder = FOLDERS[distribution]
    return [folder / it for it in WheelBuilder(str(folder)).config.packages]


def requirements_of(distribution: str, *extras: str) -> list[str]:
    """What an install asks for, of other projects and of ours."""
    project = project_of(distribution)
    optional = project["optional-dependencies"] if extras else {}
    return [*project["dependencies"], *(it for extra in extras for it in optional[extra])]


def brought_by(distribution: str, *extras: str) -> set[str]:
    """The names of all others that an install of one of ours brings. What these ask for is read
    from their metadata, as installed here."""
    found = set[tuple[str, frozenset[str]]]()
    waiting = _for_here(requirements_of(distribution, *extras))
    while waiting:
        wanted = waiting.pop()
        name = normal(wanted.name)
        if name in FOLDERS:
            waiting += _for_here(requirements_of(name)) if name != distribution else []
        elif (asked := (name, frozenset(wanted.extras))) not in found:
            found.add(asked)
            waiting += _for_here(requires(name) or [], *wanted.extras)
    return {name for name, _ in found}


def _for_here(requirements: list[str], *extras: str) -> list[Requirement]:
    """Those whose conditions hold on this machine, with these extras."""
    found = [Requirement(it) for it in requirements]
    return [
        it
        for it in found
        if it.marker is None or any(it.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def normal(name: str) -> str:
    """The form of a distribution's name that can be compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
