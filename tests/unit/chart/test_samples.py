"""Each value that the chart takes makes a difference to what comes of it."""

import functools
import json
from typing import Any, Final

import pytest

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
pytest.importorskip("helm_python", reason=NEEDED)

from helm_chart import SCHEMA  # noqa: E402
from helm_chart.rendering import Object, defaults, merged, render  # noqa: E402
from helm_chart.samples import EVERYTHING, NEEDS, UNMINDED, nested, other_value  # noqa: E402
from helm_chart.table import leaves  # noqa: E402
from suite.levels import sample  # noqa: E402

DESCRIBED: Final[dict[str, Any]] = json.loads(SCHEMA.read_text())
LEAVES: Final = dict(leaves(DESCRIBED, DESCRIBED))


@functools.cache
def objects(needed: str) -> tuple[Object, ...]:
    return render(json.loads(needed)).objects


@pytest.mark.slow("renders the chart for each value")
@pytest.mark.parametrize(
    "name",
    sample((it for it in LEAVES if it not in UNMINDED), one_in=3, why="values of the chart"),
)
def test_a_value_is_minded(name: str) -> None:
    values = merged(EVERYTHING, NEEDS.get(name, {}))
    other = other_value(name, LEAVES[name], merged(defaults(), values))
    found = render(merged(values, nested(name, other))).objects
    assert found != objects(json.dumps(values))


def test_the_samples_name_only_existing_values() -> None:
    assert {*NEEDS, *UNMINDED} <= set(LEAVES)
