"""What a client does while releases change around it; the client may be of an older one itself.

Owns: `work`, one round of everything by both clients (blocking and asyncio), and a process that
does rounds: `python -m integration.release_work URL PATH` says where its client is, then reads a
number a line, works, and answers each with a line. Uses the public API alone, of what the oldest
release of the tests has.
"""

import asyncio
import json
import sys
from typing import Any, Final

import pyarrow as pa

import dodona
import dodona.aio

COLUMNS: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "n", "type": "int64"},
    {"name": "sum", "type": "int64", "aggregate": "sum"},
    {"name": "x", "type": "any"},
]
FIRST_KEYS: Final = (0, 1_000)
"""Of each cell."""


def create(db: dodona.Client, path: str) -> None:
    db.create_table(path, COLUMNS, pivot_keys=[[], [1_000]], mount=True)
    db.create_table(f"{path}-plain", COLUMNS, "none", pivot_keys=[[], [1_000]], mount=True)


def work(db: dodona.Client, url: str, path: str, number: int) -> dict[str, Any]:
    """Round `number`, counted from 1: adds to what the rounds before left, in both cells, in every
    way, and looks at it. → what was seen."""
    since = db.generate_timestamp()

    def count(transaction: dodona.Transaction) -> None:
        for first in FIRST_KEYS:
            found = transaction.lookup_rows(path, [{"id": first}], ["n"])
            n = found[0]["n"] if found else 0
            transaction.insert_rows(path, [{"id": first, "n": n + 1}], update=True)

    db.run_in_transaction(count)
    rows = [{"id": first + number, "n": number, "x": {"round": [number]}} for first in FIRST_KEYS]
    db.insert_rows(path, rows)
    with db.begin() as transaction:
        sums = [{"id": first, "sum": 1} for first in FIRST_KEYS]
        transaction.insert_rows(path, sums, update=True, aggregate=True)
    db.insert_rows(f"{path}-plain", [{"id": first + number, "n": number} for first in FIRST_KEYS])
    with db.loads.begin([path]) as load:
        ids = [first + 500 + number for first in FIRST_KEYS]
        load.write(path, pa.table({"id": ids, "n": [number, number]}))
    with db.begin() as transaction:
        transaction.insert_rows(path, [{"id": 999, "n": 1}])
        transaction.abort()
    asyncio.run(work_async(url, path, number))
    return seen(db, path, since)


async def work_async(url: str, path: str, number: int) -> None:
    async with await dodona.aio.connect(url) as db:
        rows = [{"id": first + 700 + number, "n": number} for first in FIRST_KEYS]
        await db.insert_rows(path, rows)
        found = await db.lookup_rows(path, [{"id": it["id"]} for it in rows], ["n"])
        assert [it["n"] for it in found] == [number, number]


def seen(db: dodona.Client, path: str, since: int) -> dict[str, Any]:
    """All of both tables, by lookups and by SQL, the histories of the counters, and what changed
    since the round began."""
    query = f"select count(*) as rows, cast(sum(n) as bigint) as n from [{path}]"
    versions = db.lookup_versions(path, [{"id": first} for first in FIRST_KEYS])
    return {
        "rows": [[it["id"], it["n"], it["sum"], it["x"]] for it in db.select(path)],
        "plain": [[it["id"], it["n"]] for it in db.select(f"{path}-plain")],
        "writes": [len(it.write_timestamps) for it in versions],
        "queried": db.query(query).to_pylist(),
        "changed": sorted(
            it for batch in db.read_changes(path, since) for it in batch["id"].to_pylist()
        ),
        "timestamps": db.generate_timestamp() < db.generate_timestamp(),
    }


def expected(number: int) -> dict[str, Any]:
    """What there is after so many rounds."""
    rows: list[list[Any]] = []
    for first in FIRST_KEYS:
        rows.append([first, number, number, None])
        rows += [[first + it, it, None, {"round": [it]}] for it in range(1, number + 1)]
        for others in (500, 700):
            rows += [[first + others + it, it, None, None] for it in range(1, number + 1)]
    plain = [[first + it, it] for first in FIRST_KEYS for it in range(1, number + 1)]
    writes = [2 * number, 2 * number]
    changed = [
        first + it for first in FIRST_KEYS for it in (0, 0, number, 500 + number, 700 + number)
    ]
    return {
        "rows": rows,
        "plain": plain,
        "writes": writes,
        "queried": [{"rows": len(rows), "n": sum(it[1] for it in rows)}],
        "changed": changed,
        "timestamps": True,
    }


def main(url: str, path: str) -> None:
    print(dodona.__file__, flush=True)
    with dodona.connect(url) as db:
        create(db, path)
        for line in sys.stdin:
            print(json.dumps(work(db, url, path, int(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
