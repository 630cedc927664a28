"""Where an exported file goes: only a plain file is replaced, at the end of its links.

Others have replaced devices by files: bazel's issue 31038, snapd's 15616.
"""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from dodona.errors import DiskFull, InvalidRequest
from dodona_local.files import replacing as module
from dodona_local.files.replacing import replacing
from unit.cli.commands import TABLE, Commands

both = pytest.mark.parametrize("is_overwriting", [False, True])


def write(path: Path, is_overwriting: bool = True) -> None:
    with replacing(path, is_overwriting=is_overwriting) as file:
        file.write(b"new")


def unfinished(folder: Path) -> list[str]:
    return [it.name for it in folder.rglob("*") if "unfinished" in it.name]


def device(folder: Path, name: str, minor: int) -> Path:
    """One like /dev/NAME that root may replace in the folder, and who is not root not at all."""
    made = folder / name
    if os.geteuid():
        return Path("/dev") / name
    os.mknod(made, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    try:
        made.open("wb").close()
    except PermissionError:
        pytest.skip("devices can't be made in this folder")
    return made


@both
def test_a_device_is_written_and_not_replaced(tmp_path: Path, is_overwriting: bool) -> None:
    null = device(tmp_path, "null", 3)
    link = tmp_path / "link"
    link.symlink_to(null)
    for path in (null, link):
        write(path, is_overwriting)
        assert path.is_char_device()
    assert link.is_symlink()
    full = device(tmp_path, "full", 7)
    with pytest.raises(DiskFull, match="is full: a part of the rows may be written"):
        write(full, is_overwriting)
    assert full.is_char_device()


@both
def test_a_named_pipe_is_written_and_not_replaced(tmp_path: Path, is_overwriting: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe, is_overwriting)
    reader.join(60)
    assert read == [b"new"]
    assert pipe.is_fifo()


@both
def test_a_socket_and_a_folder_are_refused(tmp_path: Path, is_overwriting: bool) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(InvalidRequest, match="is a socket: write into"):
            write(tmp_path / "socket", is_overwriting)
    for path in (tmp_path, Path("/"), Path("."), tmp_path / ".."):
        with pytest.raises(InvalidRequest, match="is a folder: name a file in it"):
            write(path, is_overwriting)
    assert (tmp_path / "socket").is_socket()
    assert unfinished(tmp_path) == []


@both
def test_a_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_overwriting: bool
) -> None:
    class Disk:
        st_mode = stat.S_IFBLK | 0o660

    monkeypatch.setattr(Path, "stat", lambda _: Disk())
    with pytest.raises(InvalidRequest, match="is a disk"):
        write(tmp_path / "disk", is_overwriting)


def test_an_export_through_a_link_keeps_the_link_and_replaces_its_target(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "target"
    target.write_text("old")
    (tmp_path / "near").symlink_to("far/target")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "near")
    with pytest.raises(InvalidRequest, match="exists already"):
        write(link, False)
    number = target.stat().st_ino
    write(link)
    assert (link.is_symlink(), (tmp_path / "near").is_symlink()) == (True, True)
    assert target.read_text() == "new"
    assert target.stat().st_ino != number, "it was written over, and not replaced as a whole"
    broken = replacing(link, is_overwriting=True)
    broken.__enter__().write(b"half")
    assert len(unfinished(target.parent)) == 1
    assert not broken.__exit__(KeyError, KeyError(), None)
    assert target.read_text() == "new"
    assert unfinished(tmp_path) == []


def test_a_link_to_nothing_leads_to_the_new_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("target")
    write(link, False)
    assert link.is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    lost = tmp_path / "lost"
    lost.symlink_to("none/target")
    with pytest.raises(InvalidRequest, match="No such file or directory"):
        write(lost)
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(InvalidRequest, match="Too many levels of symbolic links"):
        write(loop)


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for mode in (0o600, 0o640, 0o666):
        file.write_text("old")
        file.chmod(mode)
        write(file)
        assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127])
def test_a_long_name_can_be_written(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, False)
    assert (tmp_path / name).read_text() == "new"


def test_the_output_of_the_command_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "output"
    with output.open("wb") as file:
        monkeypatch.setattr(module, "_OUTPUTS", (file.fileno(), 1 << 20))
        with pytest.raises(InvalidRequest, match="`dodona select` with --format"):
            write(output)
    assert output.read_bytes() == b""


@pytest.fixture
def full(bank: Commands) -> Commands:
    rows = '{"id":1,"balance":5}\n{"id":2,"balance":7}'
    bank.said("insert", TABLE, "-", "--input-format", "json", stdin=rows)
    return bank


def test_an_export_into_a_device_does_not_replace_the_device(
    full: Commands, tmp_path: Path
) -> None:
    null = device(tmp_path, "null", 3)
    for words in ([], ["--overwrite"]):
        for form in ("csv", "jsonl", "json", "arrows", "arrow", "parquet"):
            full.said("export", TABLE, null, "--output-format", form, *words)
    assert null.is_char_device()


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrows", "arrow", "parquet"])
def test_an_export_into_a_pipe_is_read_there(full: Commands, tmp_path: Path, form: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    full.said("export", TABLE, pipe, "--output-format", form)
    reader.join(60)
    file = tmp_path / "file"
    full.said("export", TABLE, file, "--output-format", form)
    assert read == [file.read_bytes()]
