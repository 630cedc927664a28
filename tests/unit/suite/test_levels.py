"""Which tests a level has, and how many examples a property gets there."""

from collections.abc import Iterator

import pytest

from suite import levels
from suite.levels import Level


class Item:
    """A test of this name, with these markers."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid = nodeid
        self._markers = markers

    def iter_markers(self) -> Iterator[pytest.Mark]:
        return iter([getattr(pytest.mark, it).mark for it in self._markers])


UNIT = "tests/unit/client/test_keys.py::test_order"
PROPERTY = "tests/properties/test_locks.py::TestLocks::runTest"
REAL = "tests/integration/test_kills.py::test_kills"


@pytest.mark.parametrize(
    ("item", "first"),
    [
        (Item(UNIT), "check"),
        (Item("tests/test_repository.py::test_rules"), "check"),
        (Item(UNIT, "slow"), "all"),
        (Item(UNIT, "integration"), "all"),
        (Item(UNIT, "integration", "part"), "test"),
        (Item(PROPERTY), "test"),
        (Item(PROPERTY, "slow"), "all"),
        (Item(UNIT, "slow", "part"), "test"),
        (Item(UNIT, "rest"), "all"),
        (Item(UNIT, "integration", "part", "rest"), "all"),
        (Item(REAL, "integration"), "all"),
        (Item(REAL, "integration", "alone", "part"), "test"),
        (Item(REAL, "spark"), "all"),
        (Item("tests/negative/test_planted_bugs.py::test_bug", "pooled"), "all"),
        (Item("tests/negative/test_planted_bugs.py::test_bug", "pooled", "part"), "test"),
    ],
)
def test_a_test_belongs_to_its_first_level_and_all_higher_levels(item: Item, first: Level) -> None:
    found = [it for it in levels.LEVELS if levels.is_in(item, it)]
    assert found == list(levels.LEVELS[levels.LEVELS.index(first) :])


@pytest.mark.parametrize(
    ("level", "expected"),
    [("all", [5, 30, 300]), ("test", [5, 10, 60]), (None, [5, 30, 300])],
)
def test_only_all_tries_all_examples(
    level: Level | None, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "_chosen", "check")
    levels.choose(level)
    assert [levels.examples(it) for it in (5, 30, 300)] == expected
    assert list(levels.some(range(5), one_in=3)) == ([0, 3] if level == "test" else [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("markers", "phase"),
    [
        ((), "shared"),
        (("integration",), "shared"),
        (("integration", "alone"), "alone"),
        (("spark",), "spark"),
        (("pooled",), "pooled"),
    ],
)
def test_a_phase_follows_from_markers(markers: tuple[str, ...], phase: str) -> None:
    assert levels.phase_of(Item(REAL, *markers)) == phase


def test_a_file_without_the_marker_of_a_phase_has_no_tests_of_that_phase() -> None:
    text = "@pytest.mark.spark\ndef test_it(): ..."
    assert levels.may_have(text, "spark")
    assert levels.may_have(text, "shared")
    assert not levels.may_have(text, "pooled")
    assert levels.may_have("pytestmark = [pytest.mark.integration, pytest.mark.pooled]", "pooled")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def test_it(): ...", ["check", "test", "all"]),
        ("@pytest.mark.slow('')\ndef test_it(): ...", ["check", "test", "all"]),
        ("pytestmark = pytest.mark.filterwarnings('')\n", ["check", "test", "all"]),
        ("pytestmark = pytest.mark.integration\n", ["all"]),
        ("pytestmark = [\n    X,\n    pytest.mark.slow('many'),  # it's [so]\n]\n", ["all"]),
        ("pytestmark = pytest.mark.slow('')\n@pytest.mark.part('')\n", ["test", "all"]),
        ("pytestmark = pytest.mark.spark\nsample([1], one_in=2, why='')", ["test", "all"]),
    ],
)
def test_a_file_that_leaves_all_tests_to_all_is_read_for_all_only(
    text: str, expected: list[str]
) -> None:
    assert [it for it in levels.LEVELS if levels.may_be_in(text, it)] == expected
