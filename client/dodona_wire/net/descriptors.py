"""The limit of open files and connections of a process, and the error that names it.

Owns: which errors of the system mean this limit, and the text of the error. Disk and data are
intact. The operation did not happen, and the caller may ask for it again.
"""

import errno
import os
import resource
from contextlib import ExitStack
from typing import Final

from dodona_wire.errors import Overloaded

_NUMBERS: Final = (errno.EMFILE, errno.ENFILE)


def is_out_of_descriptors(error: BaseException) -> bool:
    """Return whether an open failed for lack of descriptors, in Dodona or in LMDB."""
    return _number(error) in _NUMBERS


def need_descriptors(count: int) -> None:
    """Check that this process can open `count` more files now. For code that would not survive
    without them: libuv ends the process. Raises Overloaded."""
    with ExitStack() as stack:
        try:
            for _ in range(count):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if is_out_of_descriptors(error):
                raise out_of_descriptors(error) from error
            raise


def has_descriptors(count: int) -> bool:
    """Return whether this process can open `count` more files; others may take them."""
    try:
        need_descriptors(count)
    except Overloaded:
        return False
    return True


def out_of_descriptors(error: BaseException, path: object = None) -> Overloaded:
    """Return the error to raise instead of this one. `path` is the file that can't be opened."""
    what = "no more files can be opened" if path is None else f"{path} can't be opened"
    about = {} if path is None else {"path": str(path)}
    if _number(error) == errno.ENFILE:
        text = (
            f"{what}: the processes of this machine have reached the limit of open files and "
            "connections (`sysctl fs.file-max`). End processes, or raise that limit"
        )
        return Overloaded(text, **about)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = (
        f"{what}: this process has reached its limit of open files and connections, {limit} "
        "(`ulimit -n`). Close some, or start the process with a higher limit: `ulimit -n 65536`, "
        "or LimitNOFILE= in a unit of systemd"
    )
    return Overloaded(text, open_files_max=limit, **about)


def _number(error: BaseException) -> object:
    return error.errno if isinstance(error, OSError) else getattr(error, "code", None)
