"""A small file system that this machine mounts for a test, and whose space the test takes."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

SIZE = "64m"


class Disk(NamedTuple):
    """`fill` takes all space that is left, `free` gives it back."""

    path: Path
    fill: Callable[[], None]
    free: Callable[[], None]


@contextmanager
def mounted(path: Path) -> Iterator[Disk]:
    """Skips the test on a machine that mounts nothing for it."""
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine mounts nothing for us")

    def fill() -> None:
        with suppress(OSError), (path / "fill").open("ab", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        assert os.statvfs(path).f_bfree == 0

    try:
        yield Disk(path, fill, (path / "fill").unlink)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
