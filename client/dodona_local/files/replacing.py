"""A file that is there as a whole or not at all; and what is no such file, as it is.

Owns: its name while it is written, and that it goes if the writing ends early. A process that is
killed outright leaves that one behind, under a name that says so; the next one takes another.

Only a plain file is replaced, at the end of the links that lead to it, which stay. A device that
takes bytes and a named pipe are written into: nothing is lost there, and nothing can be taken back.
All else that may be at a path is refused.
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
"""Characters of a file's name in that of the unfinished one, which must not be too long."""
_OUTPUTS: Final = (1, 2)
_REFUSED: Final = {
    stat.S_IFDIR: "a folder: name a file in it",
    stat.S_IFBLK: "a disk: write into a file",
    stat.S_IFSOCK: "a socket: write into a file, or a named pipe",
}


@contextmanager
def replacing(path: Path, *, is_overwriting: bool) -> Iterator[BinaryIO]:
    """The file to write. It gets its name at the end of the block, if no error ends it. Raises
    InvalidRequest if it is there already or can't be written."""
    text = f"the disk of {path} is full: nothing was written there. Make room"
    try:
        found = _found(path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            text = f"{path} is full: a part of the rows may be there"
            with path.open("wb") as sink:
                yield sink
            return
        if found is not None and not is_overwriting:
            raise InvalidRequest(f"{path} is there already: remove it, or say --overwrite")
        with _made_whole(Path(os.path.realpath(path)), found) as file:
            yield file
    except BaseException as error:
        if is_no_space(error):
            raise DiskFull(text, path=str(path)) from error
        if isinstance(error, OSError) and error.strerror is not None:
            raise InvalidRequest(f"{path} can't be written: {error.strerror}") from error
        raise


def _found(path: Path) -> os.stat_result | None:
    """What is there, behind all links; None for nothing. Raises InvalidRequest if it is of a kind
    that is not written, OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if (kind := stat.S_IFMT(found.st_mode)) in _REFUSED:
        raise InvalidRequest(f"{path} is {_REFUSED[kind]}")
    if not stat.S_ISCHR(found.st_mode) and _is_own_output(found):
        raise InvalidRequest(
            f"{path} is where this command says what it did: to have rows there, use "
            "`dodona select` with --format"
        )
    return found


def _is_own_output(found: os.stat_result) -> bool:
    for descriptor in _OUTPUTS:
        try:
            if os.path.samestat(found, os.fstat(descriptor)):
                return True
        except OSError:  # it is closed
            continue
    return False


@contextmanager
def _made_whole(path: Path, old: os.stat_result | None) -> Iterator[BinaryIO]:
    """The same for a plain file at the end of links. Whoever may read the old one may the new."""
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
