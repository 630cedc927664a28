"""What belongs to one process: clients, and what they give that is still open.

Owns: what is said to who pickles one, as `multiprocessing`, Spark and others do to send an object
to another process. Connections, locks of folders and threads stay where they are; Python would name
the first of them that it meets. Imports no clock and no I/O.
"""

from typing import ClassVar, Final, NoReturn, Self, SupportsIndex

from dodona_wire.errors import InvalidRequest

MAKE_ONE_THERE: Final = (
    "make a client in each process, by `connect`; an embedded database is open in one at a time"
)
"""Instead of a client."""


class NotPicklable(InvalidRequest, TypeError):
    """As Python says of its own objects that can't be pickled, so that whoever expects that is
    answered."""


class ProcessBound:
    """Base of these. A copy is the same object: there is one connection behind both."""

    _instead: ClassVar[str]
    """What to do in another process."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotPicklable(
            f"{type(self).__name__} belongs to the process that made it, and can't be pickled or "
            f"copied deeply: {self._instead}"
        )

    def __copy__(self) -> Self:
        return self
