"""Groups: tests that stay together in one worker, and the end of the clusters that they share.

Owns: what a group is (the tests of a file, or all that share a cluster), the order of groups, and
`EndOfClusters`. Servers that nobody uses still cost time, so a cluster ends behind the last test of
its group.
"""

import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

SHARING_FOLDERS: Final = (
    "tests/integration/documents/",
    "tests/integration/gateway/",
    "tests/integration/ytsaurus/",
)
"""Nearly all tests of each share a cluster."""
CLUSTERS: Final = (
    "cluster",
    "gateways",
    "guarded_cluster",
    "open_cluster",
    "pages_cluster",
    "processes",
)
"""Fixtures of a session that start them."""
SPLIT_FILES: Final = (
    "tests/unit/checkers/test_workload_invariants.py",
    "tests/unit/simulator/test_fault_points.py",
)
"""Tests there share nothing and take minutes together, in which a worker would do nothing else."""
TAKES_CLUSTER: Final = re.compile(r"def test_\w+\([^)]*\b(?:cluster|db|url)\b")
"""In a module of `tests/integration`: a test that takes what belongs to the one cluster there."""
TAKES_PROCESSES: Final = re.compile(r"def test_\w+\([^)]*\bprocesses\b")
"""In a module of `tests/conformance`, whose other tests run against each back end."""


def group_of(nodeid: str, root: Path) -> str:
    """What stays together in one worker: tests that share a cluster, or those of a file, or but
    one. `root` is the folder that test names are relative to."""
    file = nodeid.partition("::")[0]
    if file in SPLIT_FILES:
        return nodeid
    if file.startswith("tests/conformance/"):
        is_shared = "[processes" in nodeid or TAKES_PROCESSES.search(_text(root / file))
        return "processes" if is_shared else file
    if not file.startswith("tests/integration/"):
        return file
    own = "cluster" if TAKES_CLUSTER.search(_text(root / file)) else file
    return next((it for it in SHARING_FOLDERS if file.startswith(it)), own)


@cache
def _text(file: Path) -> str:
    return file.read_text("utf-8")


def place_of(
    group: str, counts: Mapping[str, int], costly: Collection[str]
) -> tuple[int, int, str]:
    """Clusters begin first, then tests that are a group each, then files with costly tests, then
    all others: so that no worker is left with something long at the end. (Tests of a group keep
    their order.)"""
    rank = 2 if group in costly else 3
    if not group.endswith(".py"):
        rank = 1 if "::" in group else 0
    return (rank, -counts[group], group)


class EndOfClusters:
    """Ends the clusters of a group behind its last test. pytest itself ends what belongs to a
    session at the end of it, or with a package, which these folders are not. (A plugin of its own:
    what happens to fixtures of a session, pytest tells no conftest but the topmost.)"""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._started: list[tuple[pytest.FixtureDef[Any], Any]] = []

    @pytest.hookimpl(tryfirst=True)  # before it is started, and without an answer
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
        if fixturedef.argname in CLUSTERS:
            self._started.append((fixturedef, request))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        if nextitem is None or self._group(item) == self._group(nextitem):
            return
        while self._started:
            fixture, request = self._started.pop()
            fixture.finish(request)

    def _group(self, item: pytest.Item) -> str:
        return group_of(item.nodeid, self._root)
