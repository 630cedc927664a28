"""Cut a tablet into parts of about as many rows each, for readers that share the work.

Owns: the estimate. It uses data that needs no read of rows: the sorted keys of stores in memory,
and the index of chunks. The index has the first key and the number of keys of each block. A block
is opened if it has more than half of a part's rows, up to a limit. The numbers of all layers are
added. A row that is in several layers counts in each, and so do deletions. So parts have fewer rows
rather than more. Changes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.stores import Stores
from dodona_wire.messages.data import SplitKeys, SplitTablet
from dodona_wire.types import KEY_MAX, Key

CUTS_MAX: Final = 4_096
"""The most cuts in one answer. If a tablet has more rows than so many parts may have, the parts are
larger."""
KEY_BYTES_MAX: Final = 4_096
"""The most bytes of a cut. If a key is longer, the next key is the cut."""
STEPS_PER_PART: Final = 8
"""The precision of the estimate: the number of samples in a part."""
BLOCKS_OPENED_MAX: Final = 16
"""The most blocks of one chunk that an answer opens: each may have to be read from the disk."""


def split(stores: Stores, request: SplitTablet) -> SplitKeys:
    """Return the cuts, which rise and lie within the range."""
    lower, upper = request.lower, min(request.upper, KEY_MAX)
    layers = (stores.active, *stores.layers)
    total = sum([layer.count(lower, upper) for layer in layers])
    part_count = min(-(-total // max(request.row_count_max, 1)), CUTS_MAX + 1)
    if part_count < 2:
        return SplitKeys(())
    step = max(total // part_count // STEPS_PER_PART, 1)
    samples: list[tuple[Key, int]] = []
    for layer in layers:
        if isinstance(layer, DynamicStore):
            samples += layer.sample(lower, upper, step)
        else:
            samples += layer.sample(lower, upper, step, BLOCKS_OPENED_MAX)
    samples.sort()
    return SplitKeys(tuple(_cuts(samples, part_count, lower)))


def _cuts(samples: Sequence[tuple[Key, int]], part_count: int, lower: Key) -> Iterator[Key]:
    """Yield a cut before each sample that would bring the rows below further above the share than
    they are under it now."""
    total = sum([count for _, count in samples])
    below, cut_count = 0, 0
    for key, count in samples:
        share = 2 * total * (cut_count + 1) // part_count
        is_due = cut_count + 1 < part_count and 2 * below + count > share
        if is_due and key > lower and len(key) <= KEY_BYTES_MAX:
            yield key
            lower = key
            cut_count = max(cut_count + 1, below * part_count // total)
        below += count
