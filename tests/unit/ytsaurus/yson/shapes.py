"""Values to write and read, and a way to compare them that sees every difference.

Python finds 1, 1.0, True and a uint64 of 1 equal, and NaN equal to nothing.
"""

import struct
from typing import Any

from hypothesis import strategies as st

from dodona_ytsaurus.yson import Attributed, Uint64

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(1 << 14), 1 << 14)
UNSIGNED = (st.integers(0, (1 << 64) - 1) | st.integers(0, 1 << 14)).map(Uint64)
STRINGS = st.binary(max_size=20) | st.text(max_size=8).map(str.encode)
NAMES = st.text(min_size=1, max_size=8)
KEYS = st.text(max_size=8) | st.sampled_from(["a", "key", "$value", "~", "é"])
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), INTEGERS, UNSIGNED, st.floats(), STRINGS
)


def _holding(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    bare = st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
    attributes = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return bare | st.builds(Attributed, bare | SCALARS, attributes)


VALUES: st.SearchStrategy[Any] = st.recursive(SCALARS, _holding, max_leaves=12)


def exact(value: Any) -> Any:
    """Something that is equal only for values that are the same in type and in every bit."""
    if isinstance(value, Attributed):
        return ("attributed", exact(value.value), exact(value.attributes))
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, float):
        return ("float", "nan" if value != value else struct.pack("<d", value))
    return (type(value).__name__, value)
