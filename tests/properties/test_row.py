"""A row's versions against the definition of a read, written out naively."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dodona.types import DELETE_MASK, Timestamp
from dodona_tablets.core.row import Row, bits_of

COLUMNS = 4
FULL = (1 << COLUMNS) - 1

masks = st.integers(min_value=0, max_value=FULL)
histories = st.dictionaries(st.integers(1, 60), masks, max_size=12)


def values_of(timestamp: int, mask: int) -> tuple[Any, ...]:
    return tuple((timestamp, bit) for bit in bits_of(mask))


def naive_read(history: dict[int, int], at: int, wanted: int) -> tuple[Any, ...] | None:
    """Per column the newest value at or below `at` since the newest deletion there."""
    gone = max((t for t, mask in history.items() if t <= at and mask == DELETE_MASK), default=0)
    alive = {t: mask for t, mask in history.items() if gone < t <= at}
    if not alive:
        return None
    newest = (
        max((t for t, mask in alive.items() if mask >> bit & 1), default=None)
        for bit in range(COLUMNS)
    )
    cells = [None if t is None else (t, bit) for bit, t in enumerate(newest)]
    return tuple(cells[bit] for bit in range(COLUMNS) if wanted >> bit & 1)


@given(histories, st.integers(0, 61), masks, st.randoms(use_true_random=False))
def test_a_read_sees_the_newest_value_of_each_column(
    history: dict[int, int], at: int, wanted: int, dice: Any
) -> None:
    row = Row()
    order = list(history)
    dice.shuffle(order)  # writers of different lock groups commit in any order
    for timestamp in order:
        mask = history[timestamp]
        row.add((Timestamp(timestamp), mask, values_of(timestamp, mask)))
    assert [version[0] for version in row.versions] == sorted(history)
    assert row.values_at(Timestamp(at), wanted, FULL) == naive_read(history, at, wanted)
