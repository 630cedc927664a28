"""What a commit requires of rows: the form in which conditions travel.

Owns: these forms. A condition is about the newest committed version of its row, when the cell takes
the locks of the transaction. It holds until the outcome.
"""

from typing import Any

from dodona_wire.messages.base import Message
from dodona_wire.types import NULL_TIMESTAMP, Key, TabletId, Timestamp, WireMask


class RowCondition(Message, frozen=True, array_like=True, gc=False):
    """What must hold for one row: it is absent, or its newest version has this timestamp, or the
    columns of the mask have these values. With a timestamp and a mask, both must hold."""

    key: Key
    is_absent: bool = False
    version: Timestamp = NULL_TIMESTAMP
    column_mask: WireMask = 0
    values: tuple[Any, ...] = ()


class TabletConditions(Message, frozen=True, array_like=True, gc=False):
    """The conditions of rows of one tablet. The transaction has a part for the tablet, which may be
    empty. A key comes once."""

    tablet: TabletId
    rows: tuple[RowCondition, ...]
