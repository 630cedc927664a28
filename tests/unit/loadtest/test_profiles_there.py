"""Whatever RESULTS.md has figures of has a page that says where the time went."""

from pathlib import Path

import pytest

from dodona_loadtest import bench
from dodona_loadtest.harness.row import Row
from dodona_loadtest.profile import FOLDER
from dodona_loadtest.studies import idle

RESULTS = Path(__file__).parents[3] / "loadtest" / "RESULTS.md"
TITLES = [line[3:] for line in RESULTS.read_text("utf-8").splitlines() if line.startswith("## ")]

AT_REST = "Busy for less than"
"""Servers that nobody uses have no flame graphs: there is next to nothing to see."""


def page_of(title: str) -> Path:
    """Of a row with its largest number of callers."""
    (item,) = [item for _, item in bench.ITEMS.values() if item.title == title]
    stem = f"{item.name}-{max(item.callers)}" if isinstance(item, Row) else item.name
    return FOLDER / f"{stem}.md"


@pytest.mark.parametrize("title", TITLES)
def test_each_part_of_the_results_has_a_profile(title: str) -> None:
    text = page_of(title).read_text("utf-8")
    assert title in text
    assert "[Flame graph](" in text or (title == idle.STUDY.title and AT_REST in text)
