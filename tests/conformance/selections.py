"""Which back ends a test needs, for those that can't run on all: marks for `pytestmark`."""

import pytest

ON_SEVERAL_CELLS = pytest.mark.parametrize(
    "backend",
    ["simulator", pytest.param("processes", marks=pytest.mark.integration)],
    indirect=True,
)
"""An embedded database has one cell, so that nothing there is ever prepared and undecided."""

UNDER_VIRTUAL_TIME = pytest.mark.parametrize("backend", ["simulator"], indirect=True)
"""Longer than a test may wait."""
