"""Real failovers, one after the other: a short form of `python -m dodona_loadtest.kills`."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dodona_loadtest import kills
from dodona_loadtest.chaos.failovers import KINDS
from suite.etcd import NEEDS_ETCD

pytestmark = [pytest.mark.integration, pytest.mark.alone, NEEDS_ETCD]


@pytest.mark.rest("campaigns of kills show it in every run, without a measure of the pauses")
def test_no_failover_loses_an_acknowledged_commit_or_shows_a_stale_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = tmp_path / "section.md"
    count = 2 * len(KINDS)
    words = ["--failovers", str(count), "--seed", "73", "--pace-ms", "300"]
    with TemporaryDirectory() as folder:  # paths of sockets are short
        status = kills.main([*words, "--markdown", str(section), "--folder", folder])
    said, why = capsys.readouterr()
    assert status == 0, said + why
    assert "\n0 violations" in said
    lines = section.read_text("utf-8").splitlines()
    found = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    for kind in KINDS:
        assert found[kind].split(" | ")[1] == "2", found[kind]
    assert found["all"].endswith("| 0 | 0 |"), found["all"]
