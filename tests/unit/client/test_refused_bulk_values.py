"""A value that no column of its type has: each bulk call names its row in the whole data."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dodona
from dodona.errors import SchemaViolation
from dodona.types import Atomicity

COUNT = 3_000
BAD = 2_100


def decimals(values: list[int], kind: Any) -> Any:
    """Decimals as they come from a program that does not check them."""
    raw = b"".join(it.to_bytes(16, "little", signed=True) for it in values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(raw)])


def values_of(name: str) -> Any:
    """Good values, and a bad one in one row."""
    numbers = [*range(COUNT)]
    if name == "json":
        return pa.array(["{" if it == BAD else f"[{it}]" for it in numbers])
    if name == "any":
        return pa.array([b"\xc1" if it == BAD else b"\x01" for it in numbers])
    precision = 5 if name == "decimal(5,2)" else 38
    numbers[BAD] = -(10**precision)
    return decimals([it % 100_000 for it in numbers[:BAD]] + numbers[BAD:], KINDS[name])


KINDS = {"decimal(5,2)": pa.decimal128(5, 2), "decimal(38,10)": pa.decimal128(38, 10)}


def table_of(name: str) -> pa.Table:
    """Rows in falling order, so that the row of a message is not the row of the data."""
    return pa.table({"k": pa.array([*range(COUNT, 0, -1)]), "v": values_of(name)})


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path / "db") as client:
        yield client


def staged(db: dodona.Client, path: str, data: Any) -> None:
    with db.loads.begin([path]) as load:
        load.write(path, data)


CALLS: dict[str, tuple[Atomicity, Callable[[dodona.Client, str, Any], Any]]] = {
    "write_arrow": ("none", lambda db, path, data: db.write_arrow(path, data)),
    "a stream": ("none", lambda db, path, data: db.write_arrow(path, iter(data.to_batches(700)))),
    "write": ("full", lambda db, path, data: db.write(path, data)),
    "write in a transaction": ("full", lambda db, path, data: db.write(path, data.slice(BAD - 5))),
    "insert": ("full", lambda db, path, data: db.write(path, data, mode="insert")),
    "a load": ("full", staged),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["json", "any", *KINDS])
def test_a_bulk_call_names_the_row_of_a_value_that_is_refused(
    db: dodona.Client, name: str, call: str
) -> None:
    atomicity, write = CALLS[call]
    columns = [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": name},
    ]
    db.create_table("//t", columns, atomicity=atomicity, mount=True)
    with pytest.raises(SchemaViolation) as error:
        write(db, "//t", table_of(name))
    row = 5 if call == "write in a transaction" else BAD
    assert (error.value.attributes["column"], error.value.attributes["row_index"]) == ("v", row)
    assert list(db.select("//t")) == []
