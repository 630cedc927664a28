"""Objects that belong to one process: clients, and open objects that clients return.

Owns: the error for pickling such an object. `multiprocessing`, Spark and others pickle objects to
send them to another process. But connections, locks of folders and threads can't leave their
process. Without this error, Python would name the first of these that it finds.
Must not import: a clock or I/O.
"""

from typing import ClassVar, Final, NoReturn, Self, SupportsIndex

from dodona_wire.errors import InvalidRequest

MAKE_ONE_THERE: Final = (
    "make a client in each process with `connect`. An embedded database can be open in only one "
    "process at a time"
)
"""What to do instead of pickling a client."""


class NotPicklable(InvalidRequest, TypeError):
    """The error for pickling such an object. It is also a TypeError, as for Python's own objects,
    so that code which expects a TypeError works."""


class ProcessBound:
    """The base class of such objects. A copy is the same object, since both would use one
    connection."""

    _instead: ClassVar[str]
    """What to do instead, in another process."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotPicklable(
            f"{type(self).__name__} belongs to the process that made it, and can't be pickled or "
            f"copied deeply: {self._instead}"
        )

    def __copy__(self) -> Self:
        return self
