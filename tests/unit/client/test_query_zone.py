"""A query's answer is the snapshot's alone: the time zone of the process changes nothing.

DuckDB takes zone and calendar from the process once and for all, so that each zone needs a process
of its own. See its issues 12368 and 6466.
"""

import os
import subprocess
import sys
from typing import Final

import pytest

PROGRAM: Final = """
import asyncio, sys, tempfile
import dodona, dodona.aio
from dodona._core.reading.condition import Filter, plan
from dodona.schema import Column, TableSchema
from dodona_gateway.shell.console.limiting import limit_rows

TEXT = '''select cast(to_timestamp(k) as date)::varchar as day,
    date_trunc('month', to_timestamp(k))::varchar, epoch('2026-07-01'::timestamptz),
    strftime(to_timestamp(k), '%c'), current_setting('TimeZone'), current_setting('Calendar')
    from [//t]'''
COLUMNS = [Column("k", "int64", "ascending"), Column("v", "int64")]

async def by_asyncio(folder):
    async with await dodona.aio.open(folder) as db:
        print((await db.query(TEXT)).to_pylist())
        async with db.begin() as tx:
            print((await tx.query(TEXT)).to_pylist())

with tempfile.TemporaryDirectory() as folder:
    with dodona.open(folder) as db:
        db.create_table("//t", COLUMNS, mount=True)
        db.insert_rows("//t", [{"k": 0, "v": 1}])
        print(db.query(TEXT).to_pylist())
        print(db.query(limit_rows(TEXT, 5)).to_pylist())
        with db.begin() as tx:
            print(tx.query(TEXT).to_pylist())
        rows = db.select("//t").to_arrow()
    asyncio.run(by_asyncio(folder))
schema = TableSchema.parse(COLUMNS)
condition = "cast(to_timestamp(k) as date) = '1970-01-01'"
print(Filter(schema, condition, plan(schema, condition).columns)(rows).to_pylist())
"""
ZONES: Final = ("America/New_York", "Pacific/Kiritimati")


def printed(zone: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TZ": zone, "LC_ALL": "th_TH@calendar=buddhist"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.integration
@pytest.mark.part("queries in other time zones")
@pytest.mark.parametrize("zone", ZONES)
def test_the_zone_of_the_process_changes_no_answer(zone: str) -> None:
    *answers, filtered = printed(zone)
    assert len(answers) == 5
    for answer in answers:
        assert answer == answers[0]
        assert "'day': '1970-01-01'" in answer
        assert "1782864000.0" in answer
        assert "'UTC'" in answer
        assert "'gregorian'" in answer
    assert filtered == "[{'k': 0, 'v': 1}]"
