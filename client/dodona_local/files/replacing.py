"""A file that is there as a whole or not at all.

Owns: its name while it is written, and that it goes if the writing ends early. A process that is
killed outright leaves that one behind, under a name that says so; the next one takes another.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dodona._io.disk_space import is_no_space
from dodona._io.folder import sync_folder
from dodona.errors import DiskFull, InvalidRequest


@contextmanager
def replacing(path: Path, *, is_overwriting: bool) -> Iterator[BinaryIO]:
    """The file to write. It gets its name at the end of the block, if no error ends it. Raises
    InvalidRequest if it is there already or can't be written."""
    if not is_overwriting and path.exists():
        raise InvalidRequest(f"{path} is there already: remove it, or say --overwrite")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if is_no_space(error):
            text = f"the disk of {path} is full: nothing was written there. Make room"
            raise DiskFull(text, path=str(path)) from error
        if isinstance(error, OSError) and error.strerror is not None:
            raise InvalidRequest(f"{path} can't be written: {error.strerror}") from error
        raise
