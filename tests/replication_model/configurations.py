"""The configurations in which the design is searched, from small to huge.

Owns: which there are. A small one takes seconds, and a large one up to a minute. Only a command
runs a huge one. Must not import: planted bugs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from replication_model.bounds import Bounds
from replication_model.ceiling import CeilingModel
from replication_model.chunks import ChunkModel
from replication_model.explorer import Model
from replication_model.handover import HandoverModel
from replication_model.log_model import LogModel

Size = Literal["small", "large", "huge"]
SIZES: Final[tuple[Size, ...]] = get_args(Size)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A model of the design with its bounds."""

    title: str
    size: Size
    make: Callable[[], Model]


def _log(size: Size, bounds: Bounds) -> Configuration:
    return Configuration(bounds.title, size, lambda: LogModel(bounds))


CONFIGURATIONS: Final[tuple[Configuration, ...]] = (
    _log("small", Bounds("3 replicas, 2 epochs, a lost disk", loss_count=1)),
    _log(
        "small",
        Bounds("2 replicas and a spare, 2 epochs, 2 writes", member_count=2, write_count=2),
    ),
    _log(
        "small",
        Bounds(
            "2 replicas and a spare, compares in two steps", member_count=2, splits_compares=True
        ),
    ),
    _log(
        "small",
        Bounds(
            "3 replicas, 3 epochs, a lost disk, the set is fixed",
            epoch_count=3,
            loss_count=1,
            may_change_set=False,
        ),
    ),
    _log(
        "small",
        Bounds(
            "2 replicas, explicit pings, a lease of 2 ticks",
            replica_count=2,
            member_count=2,
            lease_ticks=2,
            wait_ticks=2,
            has_pings=True,
            may_change_set=False,
        ),
    ),
    _log("small", Bounds("3 replicas, reads without a lease", confirms_reads=True)),
    _log(
        "small",
        Bounds("2 replicas and a spare, planned moves", member_count=2, may_release=True),
    ),
    _log(
        "small",
        Bounds(
            "1 replica and a spare, the log is cut",
            replica_count=2,
            member_count=1,
            member_count_max=2,
            copies_min=1,
            write_count=2,
            may_cut=True,
        ),
    ),
    Configuration("timestamps: 3 masters, ceilings up to 5", "small", lambda: CeilingModel(top=5)),
    Configuration(
        "chunks: 3 epochs, 1 row, 1 upload an epoch", "small", lambda: ChunkModel(3, 1, 1)
    ),
    Configuration(
        "chunks: 2 epochs, 1 row, 2 uploads an epoch", "small", lambda: ChunkModel(2, 1, 2)
    ),
    Configuration("transactions: 3 owners", "small", HandoverModel),
    _log(
        "large",
        Bounds(
            "3 replicas and a spare, 2 epochs, 2 writes, a lost disk",
            replica_count=4,
            write_count=2,
            loss_count=1,
            keeps_spares=False,
        ),
    ),
    _log("large", Bounds("3 replicas and a spare, 2 epochs, old tails kept", replica_count=4)),
    _log("large", Bounds("3 replicas, 3 epochs, old tails kept", epoch_count=3)),
    _log(
        "large",
        Bounds("2 replicas and a spare, 3 epochs, old tails kept", member_count=2, epoch_count=3),
    ),
    _log(
        "large",
        Bounds(
            "3 replicas, explicit pings, a lease of 2 ticks",
            lease_ticks=2,
            wait_ticks=2,
            has_pings=True,
            may_change_set=False,
        ),
    ),
    _log(
        "large",
        Bounds(
            "2 replicas, 3 epochs, explicit pings",
            replica_count=2,
            member_count=2,
            epoch_count=3,
            has_pings=True,
            may_change_set=False,
        ),
    ),
    _log(
        "large",
        Bounds(
            "2 replicas and a spare, planned moves, 3 epochs",
            member_count=2,
            epoch_count=3,
            may_release=True,
            keeps_spares=False,
        ),
    ),
    _log(
        "large",
        Bounds("3 replicas, 4 epochs, the set is fixed", epoch_count=4, may_change_set=False),
    ),
    _log(
        "large",
        Bounds(
            "2 replicas and a spare, the log is cut",
            member_count=2,
            member_count_max=2,
            copies_min=1,
            may_cut=True,
        ),
    ),
    Configuration("timestamps: 3 masters, ceilings up to 6", "large", CeilingModel),
    Configuration(
        "chunks: 3 epochs, 2 rows, 1 upload an epoch", "large", lambda: ChunkModel(3, 2, 1)
    ),
    Configuration("transactions: 4 owners", "large", lambda: HandoverModel(4, 12)),
    _log(
        "huge",
        Bounds(
            "2 replicas and a spare, explicit pings, the set changes",
            member_count=2,
            has_pings=True,
        ),
    ),
    _log(
        "huge",
        Bounds(
            "3 replicas and a spare, 3 epochs",
            replica_count=4,
            epoch_count=3,
            keeps_spares=False,
        ),
    ),
)
