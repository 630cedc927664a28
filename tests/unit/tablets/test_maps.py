"""Files as memory: they live as long as anything that refers to them, and take no descriptor."""

import ctypes
import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dodona.errors import InvalidRequest
from dodona_tablets.shell import maps
from dodona_tablets.shell.maps import map_file

CONTENT = bytes(range(256)) * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def is_mapped(path: Path) -> bool:
    return f"{path}\n" in Path("/proc/self/maps").read_text()


def test_a_map_shows_the_file_and_is_released_with_its_last_reference(file: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    mapped = map_file(file)
    assert len(os.listdir("/proc/self/fd")) == before
    assert is_mapped(file)
    view = mapped[256:512]
    part = pa.py_buffer(mapped).slice(512, 256)
    numbers = np.frombuffer(mapped, np.uint8)[768:1024]
    del mapped
    assert bytes(view) == part.to_pybytes() == numbers.tobytes() == CONTENT[:256]
    del view, part
    assert is_mapped(file)
    del numbers
    assert not is_mapped(file)


def test_a_map_outlives_its_file_and_is_read_only(file: Path) -> None:
    mapped = map_file(file)
    file.unlink()
    assert mapped == CONTENT
    assert mapped.readonly


def test_an_empty_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert bytes(map_file(tmp_path / "file")) == b""


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        map_file(tmp_path / "file")


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOMEM, InvalidRequest), (errno.ENODEV, OSError)]
)
def test_a_file_that_cannot_be_mapped_raises_an_error(
    file: Path, number: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        @staticmethod
        def mmap(*_: object) -> int | None:
            ctypes.set_errno(number)
            return maps._FAILED

    monkeypatch.setattr(maps, "_LIBC", Refusing)
    with pytest.raises(error, match="file"):
        map_file(file)
