"""Folders that earlier commits wrote in today's formats, and what is in them.

Owns: `fill`, which writes a bit of everything by the public API alone, so that it runs with earlier
commits too, and `read`, which reads all of it back. `python -m integration.old_stores FILE` keeps
what this commit writes, for later ones.
"""

import sys
import tarfile
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pyarrow as pa

import dodona

ATOMIC: Final = "//old/atomic"
PLAIN: Final = "//old/plain"
FROZEN: Final = "//old/frozen"
APPLICATION: Final = "an application"
VERSION: Final = 3
COLUMNS: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "text", "type": "utf8", "lock": "text"},
    {"name": "n", "type": "int64", "aggregate": "sum"},
    {"name": "x", "type": "any"},
]


def fill(db: dodona.Client) -> None:
    """Rows in chunks and in memory, deletions, changes, loads, attributes, all kinds of tables."""
    db.create_table(ATOMIC, COLUMNS, pivot_keys=[[], [100]], mount=True, attributes={"team": "x"})
    rows: list[dict[str, Any]] = [
        {"id": at, "text": f"row {at}", "n": at, "x": {"a": [at, None]}} for at in range(20)
    ]
    db.insert_rows(ATOMIC, rows + [{**row, "id": row["id"] + 100} for row in rows])
    with db.begin() as tx:
        tx.delete_rows(ATOMIC, [{"id": 5}])
        tx.insert_rows(ATOMIC, [{"id": 6, "text": None}], update=True)
    db.unmount_table(ATOMIC)  # so that they are in chunks
    db.mount_table(ATOMIC)
    with db.begin() as tx:
        tx.insert_rows(ATOMIC, [{"id": 7, "n": 5}], update=True, aggregate=True)
        tx.delete_rows(ATOMIC, [{"id": 108}])
    db.set(f"{ATOMIC}/@max_data_versions", 7)
    db.create_table(
        PLAIN,
        [
            {"name": "k", "type": "string", "sort_order": "ascending"},
            {"name": "v", "type": "double"},
        ],
        atomicity="none",
        mount=True,
    )
    db.insert_rows(PLAIN, [{"k": b"a\xff", "v": 1.5}, {"k": b"b", "v": None}])
    _load(db)
    db.create_table(FROZEN, COLUMNS, mount=True)
    db.insert_rows(FROZEN, rows[:3])
    db.freeze_table(FROZEN)
    db.create_directory("//old/empty", attributes={"why": "not"})


def _load(db: dodona.Client) -> None:
    packed = [msgspec.msgpack.encode(value) for value in (1, None)]
    columns = {"id": [1000, 1001], "text": ["l", "m"], "n": [1, 2]}
    batch = pa.table({**columns, "x": pa.array(packed, pa.binary())})
    with db.loads.begin([ATOMIC], application=APPLICATION, version=VERSION) as load:
        load.write(ATOMIC, batch)


def read(db: dodona.Client) -> dict[str, Any]:
    """All of it, but for timestamps."""
    return {
        ATOMIC: [dict(row) for row in db.select(ATOMIC)],
        PLAIN: [dict(row) for row in db.select(PLAIN)],
        FROZEN: [dict(row) for row in db.select(FROZEN)],
        "versions": [
            len(row.write_timestamps) for row in db.lookup_versions(ATOMIC, [{"id": 7}, {"id": 1}])
        ],
        "attributes": {
            path: db.get(path)
            for path in (
                f"{ATOMIC}/@team",
                f"{ATOMIC}/@max_data_versions",
                f"{ATOMIC}/@tablet_count",
                f"{PLAIN}/@atomicity",
                f"{FROZEN}/@tablet_state",
                "//old/empty/@why",
            )
        },
        "loads": [(it.state, it.tables) for it in db.loads.list_loads()],
    }


def main(file: str) -> None:
    """Keep a folder."""
    with TemporaryDirectory() as folder:
        with dodona.open(folder) as db:
            fill(db)
        with tarfile.open(file, "w:xz") as archive:
            archive.add(folder, ".")


if __name__ == "__main__":
    main(sys.argv[1])
