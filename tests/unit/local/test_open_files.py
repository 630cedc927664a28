"""The limit of open files: chunks do not count against it, and where it is met an error names it.

Reports of the same kind elsewhere: jnwatson/py-lmdb #359 and #354.
"""

import errno
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import lmdb
import pytest

import dodona
from dodona.errors import Overloaded
from dodona_tablets.core.rows.chunks.jobs import FlushJob
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.shell.chunk_files import ChunkFiles, verify_chunk
from dodona_tablets.shell.jobs import Jobs
from dodona_wire.net.descriptors import is_out_of_descriptors, need_descriptors, out_of_descriptors
from unit.tablets.chunks.making import SCHEMA, at, items_of, key

TABLES = 20
TABLE: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "balance", "type": "int64"},
]


def open_count() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(scope="module")
def full_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database whose rows are in chunks. For tests to copy."""
    folder = tmp_path_factory.mktemp("full") / "data"
    with dodona.open(folder) as db:
        for number in range(TABLES):
            path = f"//t{number}"
            db.create_table(path, TABLE, mount=True)
            db.insert_rows(path, [{"id": number, "balance": 1}])
            db.unmount_table(path)
            db.mount_table(path)
    return folder


@pytest.fixture
def folder(full_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(full_folder, tmp_path / "data")


def test_chunks_take_no_descriptors(folder: Path, tmp_path: Path) -> None:
    before = open_count()
    with dodona.open(tmp_path / "without any"):
        own_count = open_count() - before
    with dodona.open(folder) as db:
        for number in range(TABLES):
            assert len(db.select(f"//t{number}")) == 1
        assert open_count() - before < own_count + TABLES // 2


def test_open_chunks_use_no_file_descriptors(tmp_path: Path) -> None:
    from dodona_tablets.core.rows.chunks.rows import batches_of_rows

    files = ChunkFiles(tmp_path)
    batches = batches_of_rows(SCHEMA, items_of({key(1): [at(9, 1)]}), slice_rows=30)
    info = files.write(1, SCHEMA, batches)
    assert info is not None
    before = open_count()
    kept = [files.open(info) for _ in range(10)]
    assert verify_chunk(files.path, 1) == info
    assert open_count() == before
    assert len(kept) == 10


# ---- in a process of its own, since the limit is the process's

PRELUDE = """
    import asyncio, os, resource, sys
    import dodona, dodona.aio
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    def leave(count):
        used = len(os.listdir("/proc/self/fd")) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + count, hard))
        return used + count
    def let_go():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    def refused(call):
        try:
            call()
        except dodona.Overloaded as error:
            assert "ulimit -n" in error.message, error
            assert error.attributes["open_files_max"] == limit, error
            return True
        return False
    folder = sys.argv[1]
"""


def run(program: str, folder: Path) -> None:
    code = textwrap.dedent(PRELUDE) + textwrap.dedent(program)
    # What is said of a crash of a library must not be lost.
    words = [sys.executable, "-X", "faulthandler", "-c", code, str(folder)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_database_that_cannot_open_for_lack_of_descriptors_names_the_limit(folder: Path) -> None:
    program = """
        dodona.open(folder).close()  # imports
        count = 0
        for left in range(30):
            limit = leave(left)
            is_refused = refused(lambda: dodona.open(folder).close())
            let_go()
            if not is_refused:
                break
            count += 1
        assert 2 < count < 20, count
        with dodona.open(folder) as db:
            assert len(db.select("//t1")) == 1
    """
    run(program, folder)


def test_a_first_open_without_free_descriptors_is_refused_and_can_be_repeated(folder: Path) -> None:
    """Python must not remember that it found no distribution with an embedded database."""
    program = """
        import dodona.client
        for left in range(3):
            limit = leave(left)
            assert refused(lambda: dodona.open(folder)), left
            let_go()
        dodona.open(folder).close()
    """
    run(program, folder)


def test_an_open_database_continues_without_free_file_descriptors(folder: Path) -> None:
    program = """
        db = dodona.open(folder)
        db.query("select 1")
        db.insert_rows("//t0", [{"id": 100, "balance": 1}])  # libraries import on first use
        db.select("//t0")
        limit = leave(0)
        for number in range(1, 20):
            assert len(db.select(f"//t{number}")) == 1
        query = "select count(*) as n from [//t3]"
        assert refused(lambda: db.query(query))  # DuckDB might end the process
        db.insert_rows("//t1", [{"id": 100, "balance": 1}])
        assert refused(lambda: dodona.open(folder + "-other"))
        assert len(db.select("//t1")) == 2
        try:
            db.unmount_table("//t2", timeout_ms=2_000)  # which makes no chunk, or can't make one
            db.unmount_table("//t1", timeout_ms=2_000)
        except dodona.Unavailable:
            pass
        assert len(db.select("//t3")) == 1
        let_go()
        assert db.query(query).to_pydict() == {"n": [1]}
        db.unmount_table("//t1")
        db.mount_table("//t1")
        assert len(db.select("//t1")) == 2
        db.close()
    """
    run(program, folder)


def test_a_client_of_a_cluster_is_refused(folder: Path) -> None:
    """libuv would end the process where it has no descriptors for a loop."""
    program = """
        try:
            dodona.connect("http://127.0.0.1:1", timeout_ms=1)  # imports
        except dodona.Unavailable:
            pass
        for left in (0, 1, 3, 5):
            limit = leave(left)
            assert refused(lambda: dodona.connect("http://127.0.0.1:1", timeout_ms=1)), left
            let_go()
    """
    run(program, folder)


@pytest.mark.parametrize("limit", [7, 10])
def test_a_command_says_it_in_one_sentence(limit: int, folder: Path) -> None:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    words = [sys.executable, "-m", "dodona_local.cli", "list", "//", "--data-dir", str(folder)]
    done = subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=bound,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("dodona: ")
    assert f"limit of open files and connections, {limit} (`ulimit -n`)" in done.stderr
    assert done.stderr.count("\n") == 1


# ---- parts


def full(*_: object, **__: object) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_chunk_that_can_not_be_written_or_opened_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dodona_tablets.shell import chunk_files

    files = ChunkFiles(tmp_path)
    jobs = Jobs(files, 1 << 30, lambda *_: None, lambda _: None)
    store = DynamicStore(1)
    store.put(key(1), at(9, 1))
    for name, cause in (("private_file", full), ("_mapped", opened_in_vain)):
        with monkeypatch.context() as patch:
            patch.setattr(chunk_files, name, cause)
            failure = jobs._built(FlushJob(1, SCHEMA, store, None), iter)
        assert getattr(failure, "kind", None) == Overloaded.kind
        assert os.listdir(files.path) == []
    jobs.close()


def opened_in_vain(path: Path, *_: object) -> Any:
    from dodona_tablets.shell.chunk_files import _missing_told

    with _missing_told(path):
        full()


def test_which_errors_mean_the_limit() -> None:
    assert is_out_of_descriptors(OSError(errno.EMFILE, "x"))
    assert is_out_of_descriptors(OSError(errno.ENFILE, "x"))
    assert not is_out_of_descriptors(OSError(errno.ENOENT, "x"))
    assert not is_out_of_descriptors(lmdb.Error("x"))
    ours, everybodys = OSError(errno.EMFILE, "x"), OSError(errno.ENFILE, "x")
    assert "//" not in out_of_descriptors(ours).message
    assert out_of_descriptors(ours, "/data").attributes["path"] == "/data"
    assert out_of_descriptors(everybodys, "/data").attributes == {"path": "/data"}
    assert "fs.file-max" in out_of_descriptors(everybodys).message


def test_the_check_for_free_descriptors_keeps_none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_count()
    need_descriptors(10)
    assert open_count() == before
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(Overloaded, match="ulimit -n"):
        need_descriptors(1)
