"""The study of YTsaurus's client measures clients that do their work, and no others."""

from pathlib import Path
from typing import Any

import pytest

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.pinning import choose_pinning
from dodona_loadtest.harness.rounds import Plan
from dodona_loadtest.harness.study_rounds import run_study
from dodona_loadtest.studies import ytsaurus
from dodona_loadtest.studies.ytsaurus import STUDY


@pytest.mark.alone  # its clients have a time to do it in
@pytest.mark.integration
@pytest.mark.timeout(120)
def test_every_client_writes_and_reads_the_rows(tmp_path: Path) -> None:
    plan = Plan(1, 0.0, 0.01, True, choose_pinning("none"), scale=0.01)
    result = run_study(STUDY, plan, tmp_path, lambda words: None)
    assert result.dropped == {}
    found = {(it.contender, it.measure.name): it.value for it in result.findings}
    assert len(found) == len(STUDY.performers) * len(STUDY.measures)
    assert all(value > 0 for value in found.values())


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows[:-1],
        lambda rows: [],
        lambda rows: [*rows[:-1], {**rows[-1], "u": 0}],
        lambda rows: [*rows[:-1], {"k": rows[-1]["k"]}],
    ],
)
@pytest.mark.parametrize("name", ["look_up", "select"])
def test_a_client_that_loses_rows_is_found_out(damage: Any, name: str) -> None:
    rows = ytsaurus._rows(10)
    sides = ytsaurus._Sides(lambda it: None, lambda: rows, lambda: rows)
    ytsaurus._perform(sides, rows, 0.0, 0)
    setattr(sides, name, lambda: damage(rows))
    with pytest.raises(ContenderFailed):
        ytsaurus._perform(sides, rows, 0.0, 0)
