"""The limit of files and connections that one process may have open, and the error that names it.

Owns: which errors of the system mean that limit, and what is said then. Nothing of the disk or of
the data is wrong: what was asked for did not happen, and may be asked for again.
"""

import errno
import os
import resource
from contextlib import ExitStack
from typing import Final

from dodona_wire.errors import Overloaded

_NUMBERS: Final = (errno.EMFILE, errno.ENFILE)


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether something could not be opened for want of descriptors: by us, or by LMDB."""
    return _number(error) in _NUMBERS


def need_descriptors(count: int) -> None:
    """That so many more can be had now. For what would not survive that they can't: libuv ends the
    process. Raises Overloaded."""
    with ExitStack() as stack:
        try:
            for _ in range(count):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if is_out_of_descriptors(error):
                raise out_of_descriptors(error) from error
            raise


def has_descriptors(count: int) -> bool:
    """Whether so many more can be had now; others of this process may take them meanwhile."""
    try:
        need_descriptors(count)
    except Overloaded:
        return False
    return True


def out_of_descriptors(error: BaseException, path: object = None) -> Overloaded:
    """The error to raise in place of this one; `path` is what could not be opened."""
    what = "nothing more can be opened" if path is None else f"{path} can't be opened"
    about = {} if path is None else {"path": str(path)}
    if _number(error) == errno.ENFILE:
        text = (
            f"{what}: all processes of this machine together have as many files and connections "
            "open as they may (`sysctl fs.file-max`). End some, or raise that limit"
        )
        return Overloaded(text, **about)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = (
        f"{what}: this process has as many files and connections open as it may, which are {limit} "
        "(`ulimit -n`). Close some, or start it with a higher limit: `ulimit -n 65536`, or "
        "LimitNOFILE= in a unit of systemd"
    )
    return Overloaded(text, open_files_max=limit, **about)


def _number(error: BaseException) -> object:
    return error.errno if isinstance(error, OSError) else getattr(error, "code", None)
