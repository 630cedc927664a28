"""The reader of the demonstration: it takes a snapshot even of writes that end at once."""

from typing import Any

import pytest

from dodona_local import demo_check
from dodona_local.demo_check import SnapshotReader


class Reading:
    """As one of the database."""

    def snapshot(self) -> Any:
        return self


def test_a_reader_takes_a_snapshot_after_the_last_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the demonstration could claim something of no snapshots at all."""
    written: list[str] = []
    seen: list[int] = []

    def take_reading(_: object) -> Reading:
        seen.append(len(written))
        return Reading()

    monkeypatch.setattr(demo_check, "take_reading", take_reading)
    shown: list[Any] = []
    reader = SnapshotReader(None, shown.append)  # type: ignore[arg-type]  # nothing is read
    with reader.running():
        written.append("a row")
    assert seen[-1] == 1
    assert reader.snapshots == shown
    assert reader.snapshots
