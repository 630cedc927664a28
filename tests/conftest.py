"""What all tests have in common: what examples of properties may take, and the phases of a run.

Examples may take as long as they take: a deadline would make a slow machine fail tests that say
nothing about time. Owns: which tests need the machine for themselves. `phases` runs them after all
others, which share it with each other.
"""

import signal

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs in the background ignore the keyboard, and whatever is started there
    # inherits that: tests that interrupt themselves or others would wait forever.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

ALONE = ("alone", "spark")
"""Markers. A Spark session is three Java processes with workers of their own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--phase",
        choices=["shared", "alone"],
        help="only the tests that may share the machine, or only those that need it alone",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    phase = config.getoption("--phase")
    if phase is None:
        return
    others = [it for it in items if phase != phase_of(it)]
    items[:] = [it for it in items if phase == phase_of(it)]
    config.hook.pytest_deselected(items=others)


def phase_of(item: pytest.Item) -> str:
    return "alone" if any(item.get_closest_marker(name) for name in ALONE) else "shared"
