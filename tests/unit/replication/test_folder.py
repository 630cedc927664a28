"""The coordinator of one machine: a locked folder, whose lock is the take-over."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dodona_replication.core.coordination import Applied, InDoubt
from dodona_replication.core.document import Document, Revisioned, owner_id
from dodona_replication.core.errors import DocumentMissing, DocumentUnreadable
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.folder import FOLDER_NAME, FolderCoordinator, FolderDocuments
from dodona_wire.errors import DiskFull, FolderInUse, Unavailable
from dodona_wire.net.folder import LOCK_NAME, lock_folder
from suite.programs import program

LOG = "cell-1"
OWNER = owner_id("node", b"11111111")
FIRST = Document.initial(["disk"], 1)
TAKEN = FIRST.take_over(OWNER)

HOLDER = """
import asyncio, sys
from dodona_replication.core.document import Document, owner_id
from dodona_replication.shell.folder import FolderCoordinator

async def hold():
    coordinator = FolderCoordinator.open(sys.argv[1])
    document = Document.initial(["disk"], 1)
    first = await coordinator.compare("cell-1", None, document)
    taken = document.take_over(owner_id("it", bytes(8)))
    await coordinator.compare("cell-1", first.revision, taken)
    print("taken", flush=True)
    sys.stdin.read()

asyncio.run(hold())
"""


def taken_over(folder: Path) -> FolderDocuments:
    """The documents of a folder that stays locked until the process of the test ends."""
    documents = FolderDocuments(lock_folder(folder))
    assert documents.compare(LOG, None, FIRST) == Applied(1)
    assert documents.compare(LOG, 1, TAKEN) == Applied(2)
    return documents


def test_a_process_that_has_the_folder_keeps_others_out(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with program(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "taken\n"
        with pytest.raises(FolderInUse) as caught:
            FolderCoordinator.open(tmp_path)
        assert f"id {holder.pid}" in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    documents = FolderDocuments(lock_folder(tmp_path))
    found = documents.read(LOG)
    assert found is not None
    assert (found.revision, found.document.epoch, found.document.released) == (2, 1, True)
    following = found.document.take_over(OWNER)
    assert documents.compare(LOG, found.revision, following) == Applied(3)
    assert documents.read(LOG) == Revisioned(following, 3), "its own document is not released"


def test_the_same_process_cannot_open_a_folder_twice(tmp_path: Path) -> None:
    async def open_twice() -> None:
        first: Coordinator = FolderCoordinator.open(tmp_path)
        with pytest.raises(FolderInUse):
            FolderCoordinator.open(tmp_path)
        await first.close()
        await FolderCoordinator.open(tmp_path).close()

    asyncio.run(open_twice())


def test_people_can_read_the_file(tmp_path: Path) -> None:
    taken_over(tmp_path)
    assert (tmp_path / FOLDER_NAME / f"{LOG}.json").read_text() == (
        '{"revision":2,"document":{"epoch":1,"owner":"node/3131313131313131",'
        '"members":["disk"],"copies_min":1,"released":false}}'
    )
    assert (tmp_path / LOCK_NAME).read_text().strip() == str(os.getpid())


def test_a_write_that_failed_before_its_name_changed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = taken_over(tmp_path)

    def fail(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dodona_wire.net.folder.sync_file", fail)
        with pytest.raises(DiskFull, match=str(tmp_path)):
            documents.compare(LOG, 2, TAKEN.release())
    assert documents.read(LOG) == Revisioned(TAKEN, 2)
    assert documents.compare(LOG, 2, TAKEN.release()) == Applied(3), "with room it goes on"


@pytest.mark.parametrize(
    ("function", "is_in_doubt"),
    [("sync_file", False), ("sync_folder", True)],
    ids=["file", "folder"],
)
def test_after_a_failing_disk_nothing_more_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, is_in_doubt: bool
) -> None:
    documents = taken_over(tmp_path)

    def fail(_path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(f"dodona_wire.net.folder.{function}", fail)
        if is_in_doubt:
            assert isinstance(documents.compare(LOG, 2, TAKEN.release()), InDoubt)
        else:
            with pytest.raises(Unavailable, match="check the disk"):
                documents.compare(LOG, 2, TAKEN.release())
    with pytest.raises(Unavailable, match="open the folder again"):
        documents.read(LOG)
    with pytest.raises(Unavailable, match="open the folder again"):
        documents.compare(LOG, 2, TAKEN.release())


@pytest.mark.parametrize("text", ["", "{}", '{"revision":0,"document":{}}', "x" * 9_000])
def test_a_damaged_file_is_an_error_that_names_the_log(tmp_path: Path, text: str) -> None:
    documents = taken_over(tmp_path)
    (tmp_path / FOLDER_NAME / f"{LOG}.json").write_text(text)
    with pytest.raises(DocumentUnreadable) as caught:
        documents.read(LOG)
    assert caught.value.attributes["log"] == LOG


def test_a_watch_of_a_file_that_was_removed_ends(tmp_path: Path) -> None:
    async def watch() -> None:
        coordinator = FolderCoordinator.open(tmp_path)
        assert await coordinator.compare(LOG, None, FIRST) == Applied(1)
        (tmp_path / FOLDER_NAME / f"{LOG}.json").unlink()
        with pytest.raises(DocumentMissing):
            await anext(coordinator.watch(LOG, 1))
        await coordinator.close()

    asyncio.run(watch())


def test_a_folder_needs_no_module_of_a_network(tmp_path: Path) -> None:
    code = (
        "import sys, dodona_replication.shell.folder, dodona_replication.shell.etcd_options; "
        "print(sorted({'aetcd', 'grpc', 'google', 'httpx', 'picows'} & sys.modules.keys()))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "[]\n"
