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
from dodona_wire.net.folder import sync_folder
from negative.planted.durability import (
    answer_after_a_failed_flush,
    answer_before_the_log,
    leave_names_to_chance,
    skip_the_checksum,
)

Loss = Literal[
    "commits not synced", "heads not synced", "made under its own name", "folders not synced",
    "told too early", "told after an error", "not synced at a start", "no checksums",
    "values not sealed", "not looked for behind a head", "journal not synced",
    "journal not written again",
]  # fmt: skip
OF_A_MASTER: Final[tuple[Loss, ...]] = (
    "heads not synced",
    "not synced at a start",
    "values not sealed",
)
"""A log needs none: it finds what no head tells of, and counts its groups."""


WORKLOAD_OF: Final[dict[Loss, int]] = {
    **dict.fromkeys(OF_A_MASTER, 1),
    **dict.fromkeys(("told too early", "told after an error"), 2),
    **dict.fromkeys(("journal not synced", "journal not written again"), 5),
}
"""By place in `WORKLOADS`; all others are seen at a log."""


def examine_without(loss: Loss, way: Way, seed: int) -> Tally:
    """The same examination as of the whole one; of the calls that are to fail, each seed a part."""
    with pytest.MonkeyPatch.context() as patch:
        _TAKE[loss](patch)
        return examine(WORKLOADS[WORKLOAD_OF.get(loss, 0)], way, seed, seed % PARTS)


def _replaced(name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(name, value)


def _make_at_once(path: Path, make: Callable[[Path], None], **_: bool) -> None:
    if not path.exists():
        make(path)
    sync_folder(path.parent)


_ENVIRONMENT: Final = "dodona_server.environment"
_JOURNAL: Final = "dodona_replication.shell.replica_journal"
_SEGMENTS: Final = "dodona_tablets.shell.log_segments"
_TAKE: Final[dict[Loss, Callable[[pytest.MonkeyPatch], None]]] = {
    "commits not synced": _replaced("lmdb.open", partial(lmdb.open, sync=False)),
    "heads not synced": _replaced("lmdb.open", partial(lmdb.open, metasync=False)),
    "not looked for behind a head": _replaced(
        f"{_SEGMENTS}.find_groups_behind", lambda *_, **__: []
    ),
    "made under its own name": _replaced(f"{_ENVIRONMENT}.make_whole", _make_at_once),
    "folders not synced": leave_names_to_chance,
    "told too early": answer_before_the_log,
    "told after an error": answer_after_a_failed_flush,
    "not synced at a start": _replaced(f"{_ENVIRONMENT}._make_durable", lambda _: None),
    "no checksums": skip_the_checksum,
    "journal not synced": _replaced(f"{_JOURNAL}.os.fdatasync", lambda _: None),
    "journal not written again": _replaced(f"{_JOURNAL}.Journal._write_again", lambda *_: None),
    "values not sealed": _replaced("dodona_oracle.shell.store._seal_of", lambda *_: bytes(16)),
}
