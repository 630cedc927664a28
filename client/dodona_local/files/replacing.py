"""Write a file that exists as a whole or not at all.

Owns: the file's name while it is written, and its removal if the write ends early. A killed process
leaves that file, under a name that says so. The next process takes another name.

Only a plain file is replaced, at the end of the links that lead to it, and the links stay. A
character device or a named pipe is written into directly: nothing there is lost, and nothing can be
taken back. Any other kind of node at the path is refused.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from dodona_server.disk_space import is_no_space
from dodona_wire.errors import DiskFull, InvalidRequest
from dodona_wire.net.folder import sync_folder

NAME_SHOWN_MAX: Final = 40
"""How many characters of a file's name are in the name of the unfinished file, at most."""
_OUTPUTS: Final = (1, 2)
_REFUSED: Final = {
    stat.S_IFDIR: "a folder: name a file in it",
    stat.S_IFBLK: "a disk: write into a file",
    stat.S_IFSOCK: "a socket: write into a file, or a named pipe",
}


@contextmanager
def replacing(path: Path, *, is_overwriting: bool) -> Iterator[BinaryIO]:
    """Yield the file to write. It gets its name at the end of the block, if no error ends the
    block. Raises InvalidRequest if the file exists or can't be written."""
    text = f"the disk of {path} is full: nothing was written there. Make room"
    try:
        found = _found(path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            text = f"{path} is full: a part of the rows may be written"
            with path.open("wb") as sink:
                yield sink
            return
        if found is not None and not is_overwriting:
            raise InvalidRequest(f"{path} exists already: remove it, or use --overwrite")
        with _made_whole(Path(os.path.realpath(path)), found) as file:
            yield file
    except BaseException as error:
        if is_no_space(error):
            raise DiskFull(text, path=str(path)) from error
        if isinstance(error, OSError) and error.strerror is not None:
            raise InvalidRequest(f"{path} can't be written: {error.strerror}") from error
        raise


def _found(path: Path) -> os.stat_result | None:
    """Return the status of the path behind all links; None if nothing is there. Raises
    InvalidRequest if its kind can't be written, OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if (kind := stat.S_IFMT(found.st_mode)) in _REFUSED:
        raise InvalidRequest(f"{path} is {_REFUSED[kind]}")
    if not stat.S_ISCHR(found.st_mode) and _is_own_output(found):
        raise InvalidRequest(
            f"{path} is an output of this command, which prints its report there: to print rows, "
            "use `dodona select` with --format"
        )
    return found


def _is_own_output(found: os.stat_result) -> bool:
    for descriptor in _OUTPUTS:
        try:
            if os.path.samestat(found, os.fstat(descriptor)):
                return True
        except OSError:  # the descriptor is closed
            continue
    return False


@contextmanager
def _made_whole(path: Path, old: os.stat_result | None) -> Iterator[BinaryIO]:
    """Yield a new plain file that replaces the old one at the end. It has the permissions of the
    old file."""
    unfinished = path.with_name(f".{path.name[:NAME_SHOWN_MAX]}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("xb") as file:
            if old is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_folder(path.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
