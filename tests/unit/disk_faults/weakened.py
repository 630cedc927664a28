"""The real stores, each without one thing that it needs.

Owns: how that is taken away, in a process of its own. Some are bugs that `negative` plants as well:
there single tests find them, here power cuts, failing calls and lying disks do.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Literal

import lmdb
import pytest

from disk_faults.campaign import PARTS, Tally, Way, examine
from disk_faults.workloads import WORKLOADS
from dodona._io.folder import sync_folder
from negative.planted.durability import (
    answer_after_a_failed_flush,
    answer_before_the_log,
    leave_names_to_chance,
    skip_the_checksum,
)

Loss = Literal[
    "commits not synced", "heads not synced", "made under its own name", "folders not synced",
    "told too early", "told after an error", "not synced at a start", "no checksums",
    "values not sealed",
]  # fmt: skip
OF_A_MASTER: Final = ("not synced at a start", "values not sealed")
"""A log needs neither: it makes a commit in doubt again, and counts its groups."""


def examine_without(loss: Loss, way: Way, seed: int) -> Tally:
    """The same examination as of the whole one; of the calls that are to fail, each seed a part."""
    number = 2 if loss.startswith("told") else 1 if loss in OF_A_MASTER else 0
    with pytest.MonkeyPatch.context() as patch:
        _take(loss, patch)
        return examine(WORKLOADS[number], way, seed, seed % PARTS)


def _take(loss: Loss, patch: pytest.MonkeyPatch) -> None:
    match loss:
        case "commits not synced":
            patch.setattr(lmdb, "open", partial(lmdb.open, sync=False))
        case "heads not synced":
            patch.setattr(lmdb, "open", partial(lmdb.open, metasync=False))
        case "made under its own name":
            patch.setattr("dodona._io.environment.make_whole", _make_at_once)
        case "folders not synced":
            leave_names_to_chance(patch)
        case "told too early":
            answer_before_the_log(patch)
        case "told after an error":
            answer_after_a_failed_flush(patch)
        case "not synced at a start":
            patch.setattr("dodona._io.environment._make_durable", lambda environment: None)
        case "no checksums":
            skip_the_checksum(patch)
        case "values not sealed":
            patch.setattr("dodona_oracle.shell.store._seal_of", lambda *_: bytes(16))


def _make_at_once(path: Path, make: Callable[[Path], None]) -> None:
    if not path.exists():
        make(path)
    sync_folder(path.parent)
