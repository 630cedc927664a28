"""Programs under gevent: refused at once where threads are greenlets, and fine where they are not.

Reports of the same kind elsewhere: apple/foundationdb #228, benoitc/gunicorn #450.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dodona
from suite.levels import share
from unit.client.cluster import SCHEMA, FakeCluster

pytestmark = [pytest.mark.integration, pytest.mark.part("programs under gevent")]

BEFORE = pytest.mark.parametrize("imports", share(["", "import dodona, dodona.aio"], one_in=2))
"""What a program imports before it changes what threads are."""

PROGRAM = """
    import sys
    {imports}
    from gevent import monkey
    monkey.patch_all({words})
    import asyncio, time
    import dodona, dodona.aio
    url, folder = sys.argv[1:]
"""
REFUSED = """
    ways = [
        lambda: dodona.connect(url),
        lambda: dodona.open(folder),
        lambda: dodona._io.sessions.load_embedded().EmbeddedDriver(folder),
    ]
    for way in ways:
        began = time.monotonic()
        try:
            way()
        except dodona.InvalidRequest as error:
            assert "gevent.monkey.patch_all(thread=False)" in error.message, error
            assert error.attributes["patched_by"] == "gevent", error
        else:
            raise AssertionError("it was not refused")
"""
USED = """
    import gevent
    schema = [{"name": "id", "type": "int64", "sort_order": "ascending"},
              {"name": "balance", "type": "int64"}]
    for way in (lambda: dodona.connect(url), lambda: dodona.open(folder)):
        with way() as db:
            db.create_table("//bank/accounts", schema, mount=True)
            jobs = [gevent.spawn(db.generate_timestamp) for _ in range(5)]
            gevent.joinall(jobs, raise_error=True)
            db.insert_rows("//bank/accounts", [{"id": 1, "balance": 2}])
            assert len(db.lookup_rows("//bank/accounts", [{"id": 1}])) == 1
            assert db.query("select 42 as v").to_pydict() == {"v": [42]}
    with dodona.open(folder) as db:
        db.begin_master().abort()
        db.hold_snapshot(["//bank/accounts"])
        for number in range(3):  # each a flush, by a thread that waited for it
            db.insert_rows("//bank/accounts", [{"id": 2, "balance": number}])
            db.unmount_table("//bank/accounts")
            db.mount_table("//bank/accounts")
    for _ in range(3):
        with dodona.connect(url.replace("127.0.0.1", "localhost")) as db:
            for _ in range(2):
                db.get_table("//bank/accounts")
    try:
        dodona.connect("http://127.0.0.1:1", timeout_ms=200)
    except dodona.Unavailable:
        pass
"""
ASYNC = """
    async def main():
        async with await dodona.aio.connect(url) as db:
            await db.insert_rows("//bank/accounts", [{"id": 1, "balance": 2}])
            assert len(await db.lookup_rows("//bank/accounts", [{"id": 1}])) == 1
            for _ in range(3):
                assert (await db.query("select 42 as v")).to_pydict() == {"v": [42]}
        try:
            await dodona.aio.open(folder)
        except dodona.InvalidRequest as error:
            assert error.attributes["patched_by"] == "gevent", error
        else:
            raise AssertionError("it was not refused")
    asyncio.run(main())
"""
ASYNC_WITH_THREADS = """
    async def main():
        async with await dodona.aio.open(folder) as db:
            key = {"name": "id", "type": "int64", "sort_order": "ascending"}
            await db.create_table("//t", [key, {"name": "v", "type": "int64"}], mount=True)
            for number in range(3):
                await db.insert_rows("//t", [{"id": 1, "v": number}])
                await db.unmount_table("//t")
                await db.mount_table("//t")
                assert (await db.query("select v from [//t]")).to_pydict() == {"v": [number]}
    asyncio.run(main())
"""


def run(program: str, words: str, imports: str, cluster: FakeCluster, folder: Path) -> None:
    text = textwrap.dedent(PROGRAM).format(words=words, imports=imports) + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", text, cluster.url, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@BEFORE
def test_a_client_refuses_to_open_where_threads_are_greenlets(
    imports: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    run(REFUSED, "", imports, cluster, tmp_path / "data")


@BEFORE
def test_where_only_threads_are_real_all_works(
    imports: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    run(USED, "thread=False", imports, cluster, tmp_path / "data")


@BEFORE
def test_asyncio_s_client_of_a_cluster_needs_no_threads(
    imports: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    with dodona.connect(cluster.url) as db:
        db.create_table("//bank/accounts", SCHEMA, mount=True)
    run(ASYNC, "", imports, cluster, tmp_path / "data")


@BEFORE
def test_asyncio_s_embedded_client_works_where_only_threads_are_real(
    imports: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    run(ASYNC_WITH_THREADS, "thread=False", imports, cluster, tmp_path / "data")
