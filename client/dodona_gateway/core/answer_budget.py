"""Limit the size of one answer: as it comes from the cells, and as it is sent. Pure.

Owns: both counts. A short list of keys can ask for more than fits into memory. A value may also
become longer when it is escaped: JSON has six characters for a zero byte.
"""

from typing import Any, TypeVar

from dodona._core.protocol.spans import traced_as
from dodona._core.protocol.steps import Protocol
from dodona_wire.errors import LimitExceeded
from dodona_wire.messages.data import LookupReply, VersionedRows
from dodona_wire.messages.families import Reply
from dodona_wire.rows.sizes import write_bytes
from dodona_wire.types import KEY_MIN

Result = TypeVar("Result")


@traced_as("lookup_rows")
def within_budget(protocol: Protocol[Result], bytes_max: int) -> Protocol[Result]:
    """Run the protocol of a lookup step by step. Raises LimitExceeded between two steps."""
    size_bytes = 0
    try:
        step = next(protocol)
        while True:
            replies = yield step
            size_bytes += sum(map(_size_bytes, replies))
            if size_bytes > bytes_max:
                raise too_much(bytes_max)
            step = protocol.send(replies)
    except StopIteration as stop:
        found: Result = stop.value
        return found
    finally:
        protocol.close()


def check_sent(content: bytes, bytes_max: int) -> None:
    """Raise LimitExceeded if rows are too long, in the form in which they are sent."""
    if len(content) > bytes_max:
        raise too_much(bytes_max)


def too_much(bytes_max: int) -> LimitExceeded:
    """Return the error for an answer that is too long."""
    text = f"The answer has more than {bytes_max} bytes. Ask for less at a time, or read in bulk."
    return LimitExceeded(text, bytes_max=bytes_max)


def _size_bytes(reply: Reply) -> int:
    if type(reply) is LookupReply:
        return sum(_values_bytes(row) for row in reply.rows if row is not None)
    if type(reply) is VersionedRows:
        return sum(_values_bytes(version.values) for row in reply.rows for version in row)
    return 0


def _values_bytes(values: tuple[Any, ...]) -> int:
    return write_bytes((KEY_MIN, 0, values))
