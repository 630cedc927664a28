"""Rows as a frame of pandas: dtypes by the schema, and every value as it was stored.

pandas guesses otherwise: see its issues 57313 and 14020, and Spark's 18945.
"""

import builtins
import math
from typing import Any

import pandas
import pytest

from dodona import Rows
from dodona.errors import InvalidRequest
from dodona.schema import Column, ColumnType

DTYPES: dict[ColumnType, str] = {
    "int64": "Int64",
    "uint64": "UInt64",
    "double": "Float64",
    "boolean": "boolean",
    "utf8": "string",
    "string": "object",
    "any": "object",
}
EDGES: dict[ColumnType, list[Any]] = {
    "int64": [2**53 + 1, -(2**63), 2**63 - 1, 0],
    "uint64": [2**53 + 1, 2**64 - 1, 0],
    "double": [0.1, math.inf, -0.0],
    "boolean": [True, False],
    "utf8": ["", "nan", "a\0b", "ü"],
    "string": [b"", b"\xff\0"],
    "any": [{"a": [1, None]}, [1, 2], 2**64 - 1, b"\xff", True, "text", 0.5],
}
TYPES = list(DTYPES)


def frame_of(kind: ColumnType, values: list[Any]) -> Any:
    rows = [(number, value) for number, value in enumerate(values)]
    return Rows((Column("k", "int64", "ascending"), Column("v", kind)), rows).to_pandas()


def missing(kind: ColumnType) -> Any:
    return None if DTYPES[kind] == "object" else pandas.NA


@pytest.mark.parametrize("kind", TYPES)
def test_a_pandas_frame_keeps_values_and_types_beside_a_null(kind: ColumnType) -> None:
    values = EDGES[kind]
    frame = frame_of(kind, [*values, None])
    *found, last = frame["v"].to_list()
    assert frame["v"].dtype == DTYPES[kind]
    assert found == values
    assert [type(it) for it in found] == [type(it) for it in values]
    assert last is missing(kind)


@pytest.mark.parametrize("kind", TYPES)
def test_the_dtype_of_a_pandas_column_does_not_depend_on_its_values(kind: ColumnType) -> None:
    for values in ([], [None], [None, None], EDGES[kind][:1], EDGES[kind]):
        frame = frame_of(kind, values)
        assert frame["v"].dtype == DTYPES[kind]
        assert frame["v"].to_list() == [missing(kind) if it is None else it for it in values]
        assert frame["k"].to_list() == list(range(len(values)))


def test_nan_is_not_null() -> None:
    values = frame_of("double", [math.nan, None])["v"]
    assert math.isnan(values[0])
    assert values[1] is pandas.NA


def test_a_row_of_many_types_keeps_each() -> None:
    columns = [Column(f"c_{kind}", kind) for kind in TYPES]
    frame = Rows(columns, [tuple(EDGES[it][0] for it in TYPES), (None,) * len(TYPES)]).to_pandas()
    assert frame.dtypes.astype("str").to_list() == list(DTYPES.values())
    assert frame["c_int64"][0] == 2**53 + 1
    assert frame["c_uint64"][0] == 2**53 + 1


def test_a_part_of_the_rows_is_counted_from_zero() -> None:
    rows = Rows([Column("k", "int64")], [(1,), (2,), (3,)])
    assert rows[1:].to_pandas().index.to_list() == [0, 1]


def test_without_pandas_the_error_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without_pandas(name: str, *args: Any, **others: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **others)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(InvalidRequest, match=r"pip install 'dodona\[pandas\]'"):
        frame_of("int64", [1])
