"""A disk that is full: writes are refused and the folder is named, reads go on, and with room made
all goes on. On a small file system where this machine lets us mount one, and simulated everywhere.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dodona
from dodona.errors import DiskFull, Unavailable
from dodona_local import cli
from dodona_server import disk_space
from dodona_tablets.shell import log_segments
from suite.waiting import wait_until
from unit.local.disks import Disk, mounted

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "string"},
]


@contextmanager
def simulated(path: Path) -> Iterator[Disk]:
    """Whatever takes space is refused: new files of a log, appends to it, zeros."""
    path.mkdir()
    is_full = False

    def refuse_if_full(work: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any, **named: Any) -> Any:
            if is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return work(*arguments, **named)

        return do

    def turn(*, to: bool) -> None:
        nonlocal is_full
        is_full = to

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (disk_space, "_write_zeros"),
            (log_segments, "make_environment"),
            (log_segments.LastSegment, "append"),
        ):
            patch.setattr(owner, name, refuse_if_full(getattr(owner, name)))
        yield Disk(path, lambda: turn(to=True), lambda: turn(to=False))


@pytest.fixture(params=[mounted, simulated])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with request.param(tmp_path / "disk") as made:
        yield made


@pytest.fixture
def db(disk: Disk) -> Iterator[dodona.Client]:
    with dodona.open(disk.path / "db") as db:
        db.create_table("//full", schema=SCHEMA, mount=True)
        db.create_table("//none", schema=SCHEMA, atomicity="none", mount=True)
        db.create_table("//probe", schema=SCHEMA, atomicity="none", mount=True)
        for path in ("//full", "//none"):
            db.insert_rows(path, rows(0, 10))
        yield db


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "value": b"x" * 1000} for number in range(first, first + count)]


def ids(db: dodona.Client, path: str) -> list[int]:
    return sorted(it["id"] for it in db.select(path))


def in_transaction(db: dodona.Client) -> None:
    with db.begin() as transaction:
        transaction.insert_rows("//full", rows(20, 10))


WRITES: dict[str, Callable[[dodona.Client], object]] = {
    "blind": lambda db: db.insert_rows("//full", rows(20, 10)),
    "transaction": in_transaction,
    "again and again": lambda db: db.run_in_transaction(
        lambda tx: tx.insert_rows("//full", rows(20, 10)), deadline_ms=1_000
    ),
    "non-atomic": lambda db: db.insert_rows("//none", rows(20, 10)),
    "table": lambda db: db.create_table("//more", schema=SCHEMA),
}


def write_once_there_is_room(db: dodona.Client, write: Callable[[dodona.Client], object]) -> None:
    def attempt() -> bool:
        try:
            write(db)
        except DiskFull:
            return False
        return True

    wait_until(attempt, "there is room", pause_s=0.05)


def fill(disk: Disk, db: dodona.Client) -> None:
    """Until the database has noticed. It looks a few times a second, and keeps some space back for
    what it takes meanwhile. (A disk that is simulated shows by the first write, which is a test's
    own.)"""

    def is_full() -> bool:
        disk.fill()
        return not is_mounted(disk) or not is_written(db)

    wait_until(is_full, "the disk is full")


def is_mounted(disk: Disk) -> bool:
    return disk.fill.__qualname__.startswith("mounted")


def is_written(db: dodona.Client) -> bool:
    try:
        db.insert_rows("//probe", rows(0, 1))
    except DiskFull:
        return False
    return True


@pytest.mark.integration
@pytest.mark.part("a full disk")
@pytest.mark.parametrize("what", WRITES)
def test_a_full_disk_refuses_writes_but_not_reads_and_writes_resume_with_room(
    disk: Disk, db: dodona.Client, what: str
) -> None:
    fill(disk, db)
    for _ in range(2):
        if what != "table" or is_mounted(disk):
            with pytest.raises(DiskFull) as caught:
                WRITES[what](db)
            assert str(disk.path / "db") in str(caught.value)
        for path in ("//full", "//none"):
            assert ids(db, path) == list(range(10))
    disk.free()
    write_once_there_is_room(db, WRITES["blind"])
    write_once_there_is_room(db, WRITES[what])
    assert ids(db, "//full") == [*range(10), *range(20, 30)]


def test_a_database_on_a_full_disk_is_opened_to_be_read(disk: Disk, db: dodona.Client) -> None:
    db.close()
    for _ in range(2):
        disk.fill()
        with dodona.open(disk.path / "db") as again:
            for path in ("//full", "//none"):
                assert ids(again, path) == list(range(10))
            disk.fill()  # whatever it gave back is taken by others
            with pytest.raises(DiskFull):
                again.insert_rows("//full", rows(20, 10))
            assert ids(again, "//full") == list(range(10))
    disk.fill()
    again = dodona.open(disk.path / "db")
    disk.free()
    write_once_there_is_room(again, WRITES["blind"])
    assert ids(again, "//full") == [*range(10), *range(20, 30)]
    again.close()
    with dodona.open(disk.path / "db") as again:
        assert ids(again, "//full") == [*range(10), *range(20, 30)]


@pytest.mark.integration
@pytest.mark.part("a full disk")
def test_a_command_says_it_in_one_sentence(disk: Disk, db: dodona.Client) -> None:
    db.close()
    file = disk.path.parent / "rows.csv"
    file.write_text("id,value\n1,x\n")
    disk.fill()
    folder = str(disk.path / "db")
    for timeout_ms in (2_000, 20_000, 60_000):  # on a slow disk the first try takes longer
        bounded = ["--timeout-ms", str(timeout_ms)]
        insert = CliRunner().invoke(
            cli.application, [*bounded, "insert", "//full", str(file), "--data-dir", folder]
        )
        if "has reached its timeout" not in insert.stderr:
            break
    assert insert.exit_code == 3
    assert insert.stderr.startswith("dodona: the disk of ")
    assert len(insert.stderr.splitlines()) == 1
    assert folder in insert.stderr
    select = CliRunner().invoke(cli.application, ["select", "//full", "--data-dir", folder])
    assert select.exit_code == 0, select.output


@pytest.mark.slow("fills a file system of its own with rows")
@pytest.mark.parametrize("disk", [mounted], indirect=True)
def test_an_unmount_ends_once_there_is_room(disk: Disk, db: dodona.Client) -> None:
    """It flushes the table, which has no place for its chunk meanwhile: more than what a database
    keeps back for its log."""
    for first in range(0, 20_000, 1_000):
        db.insert_rows("//full", [{**it, "value": os.urandom(500)} for it in rows(first, 1_000)])
    fill(disk, db)
    with pytest.raises(Unavailable, match="not unmounted"):
        db.unmount_table("//full", timeout_ms=1_500)
    assert ids(db, "//none") == list(range(10))
    disk.free()
    db.unmount_table("//full")
    db.mount_table("//full")
    assert ids(db, "//full") == list(range(20_000))


@pytest.mark.slow("fills a file system of its own with rows")
@pytest.mark.parametrize("disk", [mounted], indirect=True)
def test_a_backup_to_a_full_disk_leaves_nothing_behind(disk: Disk, db: dodona.Client) -> None:
    place = disk.path / "backup"
    for first in range(0, 20_000, 1_000):  # more than what an opened database gives back
        db.insert_rows("//full", [{**it, "value": os.urandom(1000)} for it in rows(first, 1_000)])
    disk.fill()
    db.close()
    folder = ["--data-dir", str(disk.path / "db")]
    backup = CliRunner().invoke(cli.application, ["backup", str(place), *folder])
    assert (backup.exit_code, place.exists()) == (3, False)
    assert backup.stderr.startswith(f"dodona: the disk of {place} is full: there is no backup.")
    disk.free()
    backup = CliRunner().invoke(cli.application, ["backup", str(place), *folder])
    assert backup.exit_code == 0, backup.output


@pytest.mark.parametrize("folder", ["new", "made/before"])
def test_a_new_database_is_refused(disk: Disk, folder: str) -> None:
    (disk.path / folder).parent.mkdir(parents=True, exist_ok=True)
    disk.fill()
    with pytest.raises(DiskFull, match="is full"):
        dodona.open(disk.path / folder)
    disk.free()
    with dodona.open(disk.path / folder) as db:
        assert db.list_tables() is not None
