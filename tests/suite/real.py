"""Real tests: those with processes, whose time is the machine's.

Owns: which tests say so in their reports, by a property `is_real`: those with a marker of `REAL`,
and all that are seen to start a process, wherever they are.
"""

import sys
from typing import Any, Final

import pytest

from suite.levels import REAL, has

PROPERTY: Final = ("is_real", "yes")
STARTS: Final = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"))
"""What Python tells its audit hooks of."""


class RealTests:
    """A plugin of the process that runs tests. (A hook stays for as long as its process.)"""

    def __init__(self) -> None:
        self._has_started = False
        sys.addaudithook(self._see)

    def _see(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            self._has_started = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._has_started = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        """Before the report is made, which takes the properties with it."""
        is_real = self._has_started or has(item, REAL)
        if is_real and PROPERTY not in item.user_properties:
            item.user_properties.append(PROPERTY)
