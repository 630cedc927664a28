"""Read a list fragment part by part: rows as they arrive.

Owns: the part of a stream that is still to be read, and when to try again. Parts may be cut
anywhere. The reader holds at most one incomplete item. If a buffer ended too early, the reader
tries again when the buffer has doubled. So the time is linear in the bytes, however small the parts
are. Imports no clock and no I/O.
"""

from typing import Any

from dodona_ytsaurus.yson.limits import (
    DEFAULT_LIMITS,
    Excess,
    Malformed,
    NeedMore,
    YsonLimits,
)
from dodona_ytsaurus.yson.reader import Reader
from dodona_ytsaurus.yson.templates import Learner, RowTemplate
from dodona_ytsaurus.yson.values import Strings


class RowReader:
    """A reader of the items of one list fragment. Rows are dicts, or Attributed if they have
    attributes.

    An error ends it. Items that were read before the error within the same part are lost.
    """

    __slots__ = (
        "_base",
        "_enough",
        "_is_over",
        "_items_left",
        "_keeps_uint64",
        "_learner",
        "_limits",
        "_parts",
        "_size",
        "_strings",
        "_template",
    )

    def __init__(
        self,
        limits: YsonLimits = DEFAULT_LIMITS,
        *,
        strings: Strings = "bytes",
        keeps_uint64: bool = True,
    ) -> None:
        """Without `keeps_uint64` a uint64 becomes a plain int, since a table's schema says more."""
        self._limits = limits
        self._strings: Strings = strings
        self._keeps_uint64 = keeps_uint64
        self._learner = Learner(limits.bytes_max, strings, keeps_uint64)
        self._template: RowTemplate | None = None
        self._items_left = limits.items_max
        self._parts: list[bytes] = []
        self._size = 0
        self._base = 0
        """The place in the stream where the held bytes begin."""
        self._enough = 1
        """The number of held bytes from which reading is worth trying."""
        self._is_over = False

    def feed(self, part: bytes | bytearray | memoryview) -> list[Any]:
        """Return the items that this part completes. (An item in many parts may need a later part.)

        Raises InvalidRequest on anything other than YSON, LimitExceeded, both with the `offset`.
        """
        assert not self._is_over, "the fragment was finished or broken"
        self._parts.append(bytes(part))
        self._size += len(part)
        return self._read(is_last=False) if self._size >= self._enough else []

    def finish(self) -> list[Any]:
        """Return the items that were still held. Raises as `feed` does, also if the last is
        incomplete."""
        assert not self._is_over, "the fragment was finished or broken"
        rows = self._read(is_last=True)
        self._is_over = True
        return rows

    def _read(self, is_last: bool) -> list[Any]:
        data = b"".join(self._parts)
        rows: list[Any] = []
        try:
            at = self._read_items(data, rows, is_last)
        except Malformed as error:
            self._is_over = True
            raise error.public(self._base) from None
        self._items_left -= len(rows)
        self._base += at
        self._parts = [data[at:]]
        self._size = len(data) - at
        return rows

    def _read_items(self, data: bytes, rows: list[Any], is_last: bool) -> int:
        """Read items, and return the place where the first incomplete item begins."""
        reader = Reader(data, self._limits, self._strings, self._keeps_uint64, is_last)
        at = 0
        while True:
            if self._template is not None:
                at = self._template.read(data, at, rows, self._items_left)
            try:
                found = reader.item(at)
            except NeedMore as error:
                if is_last:
                    raise Malformed("it ends too early", len(data)) from None
                self._wait(len(data) - at, error.bytes_min - at, at)
                return at
            if found is None:
                self._enough = 1
                return len(data)
            item, end = found
            self._check_size(end - at, at)
            if len(rows) >= self._items_left:
                raise Excess(f"more than {self._limits.items_max} items", at)
            rows.append(item)
            self._template = self._learner.learn(item, data, at, self._template)
            at = end

    def _wait(self, size: int, needed: int, at: int) -> None:
        """Wait for more bytes of the item that begins there."""
        self._check_size(max(size, needed), at)
        self._enough = max(needed, min(2 * size, self._limits.bytes_max + 1))

    def _check_size(self, size: int, at: int) -> None:
        if size > self._limits.bytes_max:
            raise Excess(f"an item of more than {self._limits.bytes_max} bytes", at)
