"""Interrupts of a real cluster's client, at check points of every blocking call.

Whatever was raised reaches the caller; the next call works, and what was acknowledged is there. The
unit tests of interrupts try a pretended cluster, both event loops, and an embedded database.
"""

import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pyarrow as pa
import pytest

import dodona
from dodona_local.launcher import LocalCluster
from unit.client.interrupting import Alarm, in_time, interrupted, points_of

pytestmark = pytest.mark.integration

T = "//interrupts/rows"
LOOSE = "//interrupts/loose"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
KEYS = [{"id": 1}, {"id": 100}]
"""Each in a tablet of its own, in cells that may be two."""
tried: set[tuple[str, int]] = set()
Call = Callable[[dodona.Client, int], Any]


def both(number: int) -> list[dict[str, int]]:
    return [{**key, "v": number} for key in KEYS]


def arrow(number: int) -> pa.Table:
    return pa.Table.from_pylist(both(number))


def commit(db: dodona.Client, number: int) -> None:
    with db.begin() as tx:
        tx.lookup_rows(T, KEYS)
        tx.insert_rows(T, both(number))


def load(db: dodona.Client, number: int) -> None:
    with db.loads.begin([T]) as it:
        it.write(T, arrow(number))


def hold(db: dodona.Client, _: int) -> None:
    with db.hold_snapshot([T]) as snapshot:
        list(snapshot.read_batches(T))


def directory(db: dodona.Client, _: int) -> None:
    with db.begin_master() as tx:
        tx.create_directory(f"//interrupts/{uuid.uuid4().hex}", recursive=True)


def table(db: dodona.Client, _: int) -> None:
    db.create_table(f"//interrupts/{uuid.uuid4().hex}", SCHEMA, mount=True)


WRITES: dict[str, Call] = {
    "insert": lambda db, number: db.insert_rows(T, both(number)),
    "commit": commit,
    "rerun": lambda db, number: db.run_in_transaction(lambda tx: tx.insert_rows(T, both(number))),
    "load": load,
}
OTHERS: dict[str, Call] = {
    "lookup": lambda db, _: db.lookup_rows(T, KEYS),
    "versions": lambda db, _: db.lookup_versions(T, KEYS),
    "select": lambda db, _: list(db.select(T)),
    "read_arrow": lambda db, _: db.read_arrow(T),
    "query": lambda db, _: db.query(f"select sum(v) from [{T}]"),
    "loose": lambda db, number: db.insert_rows(LOOSE, both(number)),
    "write_arrow": lambda db, number: db.write_arrow(LOOSE, arrow(number)),
    "hold": hold,
    "directory": directory,
    "table": table,
    "remount": lambda db, _: db.remount_table(T),
}


@pytest.fixture(scope="module")
def light(cluster: LocalCluster) -> Iterator[dodona.Client]:
    with dodona.connect(cluster.master_url) as db:
        atomicities: list[Literal["full", "none"]] = ["full", "none"]
        for path, atomicity in zip((T, LOOSE), atomicities, strict=True):
            db.create_table(path, SCHEMA, atomicity, pivot_keys=[[], [50]], mount=True)
        yield db


def values(db: dodona.Client) -> int:
    """Both rows have the same: what was written together came together."""
    first, second = db.lookup_rows(T, KEYS)
    assert first["v"] == second["v"]
    return int(first["v"])


@pytest.mark.parametrize("name", [*WRITES, *OTHERS])
def test_a_call_may_be_interrupted_anywhere(light: dodona.Client, name: str) -> None:
    call = {**WRITES, **OTHERS}[name]
    numbers = itertools.count()
    last = [next(numbers)]
    light.insert_rows(T, both(last[0]))

    def calling() -> None:
        last[0] = next(numbers)
        call(light, last[0])

    for number, point in enumerate(points_of(calling, tried)):
        before = values(light)
        kind = Alarm if number % 2 else KeyboardInterrupt
        was_interrupted = interrupted(calling, point, kind("now"))
        after = in_time(lambda: values(light))
        if name in OTHERS:
            allowed = {before}
        else:
            allowed = {before, last[0]} if was_interrupted else {last[0]}
        assert after in allowed, (point, kind)
