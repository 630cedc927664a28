"""What all tests have in common: what examples of properties may take, and the phases of a run.

Examples may take as long as they take: a deadline would make a slow machine fail tests that say
nothing about time. Owns: which tests need the machine for themselves, or all of its cores (`phases`
runs them after all others, which share it with each other), and which ones stay together in one
worker: those of a file, and those that share a cluster, so that it is started once and ends behind
the last of them: servers that nobody uses still cost time, since their heartbeats go on.
"""

import re
import signal
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs in the background ignore the keyboard, and whatever is started there
    # inherits that: tests that interrupt themselves or others would wait forever.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

PHASES = {"pooled": "pooled", "alone": "alone", "spark": "alone"}
"""Markers, and the phase of whoever has them. A Spark session is three Java processes with workers
of their own."""


SHARING_FOLDERS = (
    "tests/integration/documents/",
    "tests/integration/gateway/",
    "tests/integration/ytsaurus/",
)
"""Nearly all tests of each share a cluster."""
CLUSTERS = (
    "cluster",
    "gateways",
    "guarded_cluster",
    "open_cluster",
    "pages_cluster",
    "processes",
)
"""Fixtures of a session that start them."""
SPLIT_FILES = (
    "tests/unit/checkers/test_workload_invariants.py",
    "tests/unit/simulator/test_mischief.py",
)
"""Tests there share nothing and take minutes together, in which a worker would do nothing else."""
TAKES_CLUSTER = re.compile(r"def test_\w+\([^)]*\b(?:cluster|db|url)\b")
"""In a module of `tests/integration`: a test that takes what belongs to the one cluster there."""
TAKES_PROCESSES = re.compile(r"def test_\w+\([^)]*\bprocesses\b")
"""In a module of `tests/conformance`, whose other tests run against each back end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--phase",
        choices=["shared", "alone", "pooled"],
        help="only the tests that may share the machine, only those that need it alone, or only "
        "those that have processes for all cores",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--phase") is not None:  # its tests are in the order of groups
        config.pluginmanager.register(EndOfClusters())


class EndOfClusters:
    """Ends the clusters of a group behind its last test. pytest itself ends what belongs to a
    session at the end of it, or with a package, which these folders are not. (A plugin of its own:
    what happens to fixtures of a session, pytest tells no conftest but the topmost.)"""

    def __init__(self) -> None:
        self._started: list[tuple[pytest.FixtureDef[Any], Any]] = []

    @pytest.hookimpl(tryfirst=True)  # before it is started, and without an answer
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
        if fixturedef.argname in CLUSTERS:
            self._started.append((fixturedef, request))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        if nextitem is not None and group_of(item.nodeid) != group_of(nextitem.nodeid):
            while self._started:
                fixture, request = self._started.pop()
                fixture.finish(request)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    phase = config.getoption("--phase")
    if phase is None:
        return
    others = [it for it in items if phase != phase_of(it)]
    items[:] = [it for it in items if phase == phase_of(it)]
    config.hook.pytest_deselected(items=others)
    counts = Counter(group_of(it.nodeid) for it in items)
    items.sort(key=lambda it: place_of(it.nodeid, counts))


def phase_of(item: pytest.Item) -> str:
    return next((PHASES[it] for it in PHASES if item.get_closest_marker(it)), "shared")


def group_of(nodeid: str) -> str:
    """What stays together in one worker: tests that share a cluster, or those of a file, or but
    one."""
    file = nodeid.partition("::")[0]
    if file in SPLIT_FILES:
        return nodeid
    if file.startswith("tests/conformance/"):
        is_shared = "[processes" in nodeid or TAKES_PROCESSES.search(_text(file))
        return "processes" if is_shared else file
    if not file.startswith("tests/integration/"):
        return file
    own = "cluster" if TAKES_CLUSTER.search(_text(file)) else file
    return next((it for it in SHARING_FOLDERS if file.startswith(it)), own)


@cache
def _text(file: str) -> str:
    return (Path(__file__).parents[1] / file).read_text("utf-8")


def place_of(nodeid: str, counts: Mapping[str, int]) -> tuple[int, int, str]:
    """Clusters begin first, then tests that are a group each, then files: so that no worker is left
    with something long at the end. (Tests of a group keep their order.)"""
    group = group_of(nodeid)
    rank = 2 if group.endswith(".py") else 1 if "::" in group else 0
    return (rank, -counts[group], group)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "LoadScopeScheduling | None":
    """By groups, in the order that they are collected in. (xdist's own `loadgroup` says a group in
    the names of tests, which pytest 9.2 has no place for.)"""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroups(config, log)
