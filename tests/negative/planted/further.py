"""Bugs that are not in the catalogue, one for each layer."""

import pytest

from dodona.types import Timestamp
from dodona_wire.cores.batcher import Batcher
from dodona_wire.cores.effects import Route
from negative.bug import PlantedBug


def check_no_conflicts(patch: pytest.MonkeyPatch) -> None:
    for check in ("check_versions", "check_locks"):
        patch.setattr(f"dodona_tablets.core.commit.taking.{check}", lambda *_: None)


class Hoarding(Batcher[Route]):
    """Asks for one timestamp more than it needs, and serves the next batch's first caller by it."""

    kept: Timestamp | None = None

    def next_batch_count(self) -> int | None:
        count = super().next_batch_count()
        return None if count is None else count + 1

    def split(self, first: Timestamp) -> list[tuple[Route, Timestamp, int]]:
        shares = super().split(Timestamp(first + 1))
        kept, self.kept = self.kept, first
        waiter, _, count = shares[0]
        if kept is not None and count == 1:
            shares[0] = (waiter, kept, count)
        return shares


def hoard_timestamps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_oracle.core.proxy.Batcher", Hoarding)


BUGS = (
    PlantedBug(None, "no cell checks for conflicts", check_no_conflicts, ("NOCONFLICT", "CRASH")),
    PlantedBug(
        None, "a proxy keeps timestamps for later callers", hoard_timestamps, ("MONOTONIC", "CRASH")
    ),
)
