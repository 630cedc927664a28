"""Keep the last row of each key, from rows in key order, for tables that take a key only once.

Owns: the comparison of neighbouring keys, column by column, in Arrow. Runs in Spark's workers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Batches = Callable[[Iterable[Any]], Iterator[Any]]


def last_rows(names: Sequence[str]) -> Batches:
    """Return a function of record batches, for `mapInArrow`. Of neighbouring rows with equal values
    in these columns, it keeps the last row."""

    def left(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        held = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if held is not None:
                batch = pyarrow.concat_batches([held, batch])
            last = batch.num_rows - 1
            held = batch.slice(last)
            if last:
                yield batch.slice(0, last).filter(_are_last(batch, names))
        if held is not None:
            yield held

    return left


def _are_last(batch: Any, names: Sequence[str]) -> Any:
    """Return for each row but the last one whether the next row has another key."""
    import pyarrow.compute as pc

    count = batch.num_rows - 1
    differs = None
    for name in names:
        column = batch.column(batch.schema.get_field_index(name))
        other = pc.invert(_are_same(column.slice(0, count), column.slice(1)))
        differs = other if differs is None else pc.or_(differs, other)
    return differs


def _are_same(one: Any, other: Any) -> Any:
    """Return whether the values are equal. Null equals null, and NaN equals NaN."""
    import pyarrow
    import pyarrow.compute as pc

    is_same = pc.or_(
        pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other))
    )
    if pyarrow.types.is_floating(one.type):
        are_nan = pc.and_(pc.is_nan(one), pc.is_nan(other))
        is_same = pc.or_(is_same, pc.fill_null(are_nan, False))
    return is_same
