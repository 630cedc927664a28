"""Where a tablet may be cut into parts of about as many rows, for readers that share the work.

Owns: the estimate. It is made of what is known without reading: the blocks of chunks, of which the
first key and the number of keys are in the index, and the sorted keys of stores in memory. A few
blocks are opened where one alone has more rows than a part may have. Layers are added up: a row
that is in several of them counts in each, and so do deletions; so parts have fewer rows rather than
more. Changes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.stores import Stores
from dodona_wire.messages.data import SplitKeys, SplitTablet
from dodona_wire.types import KEY_MAX, Key

CUTS_MAX: Final = 4_096
"""Of one answer: of a tablet with more rows than so many parts may have the parts are larger."""
KEY_BYTES_MAX: Final = 4_096
"""Where a longer key would be a cut, the next one is."""
STEPS_PER_PART: Final = 8
"""So exact is the estimate of where a part ends."""
BLOCKS_OPENED_MAX: Final = 16
"""Of one answer: each may have to be read from the disk."""


def split(stores: Stores, request: SplitTablet) -> SplitKeys:
    """The cuts, rising, all of them within the range."""
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
    """Before each sample that would take what is below further above its share than it is under."""
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
