"""Of rows with one key the last, in batches however cut."""

import math

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_dodona.last_rows import last_rows

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("v", pa.int64())])
KEYS = st.tuples(
    st.sampled_from([None, 1, 2]), st.sampled_from([None, -math.inf, 0.0, 1.5, math.nan])
)


def rank(key: tuple[int | None, float | None]) -> tuple[float, ...]:
    a, b = key
    place = -2.0 if b is None else 9.0 if math.isnan(b) else max(b, -1.0)
    return (-1.0 if a is None else float(a), place)


@given(st.lists(KEYS, max_size=20), st.lists(st.integers(0, 4), max_size=20))
def test_only_the_last_row_of_each_key_remains(
    keys: list[tuple[int | None, float | None]], cuts: list[int]
) -> None:
    ordered = sorted(keys, key=rank)
    rows = [{"a": a, "b": b, "v": place} for place, (a, b) in enumerate(ordered)]
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    batches, at = [], 0
    for size in [*cuts, len(rows)]:
        batches.append(whole.slice(at, size))
        at = min(at + size, len(rows))
    left = [row for batch in last_rows(["a", "b"])(batches) for row in batch.to_pylist()]
    last = {rank(key): place for place, key in enumerate(ordered)}
    assert [row["v"] for row in left] == sorted(last.values())
