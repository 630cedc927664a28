"""Divide a scan into parts, which several readers can share. Pure.

Owns: the question to each tablet of the range, and the order of the answers. A part does not cross
the end of a tablet, as the tablets were at the time of the call. Later changes of the tablets do no
harm, since a part is a range of keys.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from dodona._core.protocol.arguments import check_number
from dodona._core.protocol.attempts import may_read_again
from dodona._core.protocol.context import Context, expect
from dodona._core.protocol.fan_out import fan_out
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.reading import range_of
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import SplitKeys, SplitTablet
from dodona_wire.messages.families import Reply
from dodona_wire.types import Key


def split(
    context: Context,
    path: str,
    rows_per_part: int,
    lower: Sequence[Any] | None,
    upper: Sequence[Any] | None,
) -> Protocol[list[tuple[Any, ...]]]:
    """Divide lower ≤ key < upper. Return the first keys of all parts but the first, in rising
    order, as leading key values. Raises the errors of reads."""
    check_number(rows_per_part, "rows_per_part", 1)
    route = yield from context.route(path)
    first, end = range_of(route.schema, lower, upper)
    cuts: dict[Key, None] = {}
    yield from fan_out(context, [(route, _SplitJob(first, end, rows_per_part, cuts))])
    decode = route.schema.decode_prefix
    return [decode(key) for key in sorted(cuts) if key > first]


class _SplitJob:
    """A range of keys that its tablets are still to divide."""

    is_write: ClassVar[bool] = False
    __slots__ = ("_cuts", "_lower", "_rows_per_part", "_upper")

    def __init__(self, lower: Key, upper: Key, rows_per_part: int, cuts: dict[Key, None]) -> None:
        self._lower = lower
        self._upper = upper
        self._rows_per_part = rows_per_part
        self._cuts = cuts

    def divide(self, route: TableRoute) -> list[tuple[Tablet, "_SplitJob"]]:
        parts = route.parts_of(self._lower, self._upper)
        return [
            (tablet, _SplitJob(lower, upper, self._rows_per_part, self._cuts))
            for tablet, lower, upper in parts
        ]

    def request(self, tablet: Tablet) -> SplitTablet:
        return SplitTablet(
            tablet.tablet, tablet.revision, self._lower, self._upper, self._rows_per_part
        )

    def accept(self, reply: Reply) -> None:
        self._cuts.update(dict.fromkeys((self._lower, *expect(reply, SplitKeys).keys)))

    def refuse(self, failure: Failure) -> bool:
        return may_read_again(failure)
