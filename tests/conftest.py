"""What all tests have in common: what examples of properties may take, levels, phases and groups.

Examples may take as long as they take: a deadline would make a slow machine fail tests that say
nothing about time. Which tests run, and when, is said in `suite`.
"""

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from suite import levels
from suite.groups import EndOfClusters, group_of, place_of
from suite.lines import Lines
from suite.real import RealTests
from suite.turns import Turns

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs in the background ignore the keyboard, and whatever is started there
    # inherits that: tests that interrupt themselves or others would wait forever.
    signal.signal(signal.SIGINT, signal.default_int_handler)

EXAMPLES = 100
"""Hypothesis's own default."""
ADDRESS = " at 0x"
"""In the text of an object that has no text of its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--level",
        choices=levels.LEVELS,
        help="only the tests of a level: what runs while one writes, for every change, or all",
    )
    parser.addoption(
        "--phase",
        choices=["shared", *levels.PHASES],
        help="only the tests that may share the machine, or only those with a marker of this name",
    )


def pytest_configure(config: pytest.Config) -> None:
    levels.choose(config.getoption("--level"))
    settings.register_profile("untimed", max_examples=levels.examples(EXAMPLES), deadline=None)
    settings.load_profile("untimed")
    config.pluginmanager.register(RealTests())
    config.pluginmanager.register(Lines())
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Turns.of(config.workerinput))
    if config.getoption("--phase") is not None:  # its tests are in the order of groups
        config.pluginmanager.register(EndOfClusters(config.rootpath))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """No process need import files without tests for it: all of them take ten seconds."""
    phase: str | None = config.getoption("--phase")
    if phase is None or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text("utf-8")
    level: levels.Level = config.getoption("--level") or "all"
    return None if levels.may_have(text, phase) and levels.may_be_in(text, level) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is collected stays: the garbage collector would look through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):  # xdist itself shows how its workers differ
        check_names(items)
    phase: str | None = config.getoption("--phase")
    level: levels.Level = config.getoption("--level") or "all"
    kept = [
        it
        for it in items
        if levels.is_in(it, level) and (phase is None or phase == levels.phase_of(it))
    ]
    if len(kept) < len(items):
        chosen = set(kept)
        config.hook.pytest_deselected(items=[it for it in items if it not in chosen])
    items[:] = kept
    if phase is not None:
        groups = {it: group_of(it.nodeid, config.rootpath) for it in items}
        counts = Counter(groups.values())
        costly = {groups[it] for it in items if levels.has(it, levels.COSTLY)}
        items.sort(key=lambda it: place_of(groups[it], counts, costly))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without Java, tests of Spark are skipped. The end of a run says so (see `suite.reports`)."""
    if levels.has(item, ("spark",)) and (missing := _missing_java()) is not None:
        pytest.skip(missing)


@cache
def _missing_java() -> str | None:
    from dodona_local.java import missing_java  # the product is under test: not before it is needed

    return missing_java()


@pytest.fixture
def anyio_backend() -> str:
    """Nothing of Dodona runs under trio."""
    return "asyncio"


@pytest.fixture
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of commands: servers must not read settings of this process's environment."""
    for name in [name for name in os.environ if name.startswith("DODONA_")]:
        monkeypatch.delenv(name)


def check_names(items: list[pytest.Item]) -> None:
    """Each worker has to find the same names: no address of an object may be in one."""
    if unstable := [it.nodeid for it in items if ADDRESS in it.nodeid]:
        text = "the name of a test differs from process to process. Give its parameter an id: "
        raise pytest.UsageError(text + unstable[0])


def pytest_collection_finish(session: pytest.Session) -> None:
    """In a long run the garbage collector need not look through the tests themselves, a million
    objects, again and again, not even once."""
    if session.config.getoption("--phase") is not None:
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "LoadScopeScheduling | None":
    """By groups, in the order that they are collected in. (xdist's own `loadgroup` says a group in
    the names of tests, which pytest 9.2 has no place for.)"""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid, config.rootpath)

    return ByGroups(config, log)
