"""Decide which rows are worth a template, and of which kind.

Owns: the facts about the rows that the general reader read, and how many templates one reader may
make. Imports no clock and no I/O.
"""

import re
from typing import Any, Final, Protocol

from dodona_ytsaurus.yson.binary_template import BinaryTemplate
from dodona_ytsaurus.yson.text_template import TextTemplate
from dodona_ytsaurus.yson.values import Strings

COLUMNS_MAX: Final = 128
NAMES_LENGTH_MAX: Final = 1024
"""The length of all column names together. The time to make a template is proportional to it."""
ALIKE_MIN: Final = 8
"""This many consecutive rows must be alike before a template is made."""
TEMPLATES_MAX: Final = 16
"""One reader makes no more: a stream that changes shape so often isn't worth the time."""
_has_binary_key: Final = re.compile(rb"[ \t\n\v\f\r]*+\{\x01").match


class RowTemplate(Protocol):
    """A template, which reads rows that are alike."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""

    @property
    def with_strings(self) -> frozenset[str]:
        """Return the columns that may hold strings."""

    def read(self, data: bytes, at: int, rows: list[Any], rows_max: int) -> int:
        """Append rows from this place on, until there are `rows_max`, or a row is unusual. Returns
        the place where reading ended."""


class Learner:
    """A watcher of the rows that the general reader read. It makes templates for similar rows."""

    __slots__ = ("_alike", "_bytes_max", "_keeps_uint64", "_made", "_shape", "_strings", "_with")

    def __init__(self, bytes_max: int, strings: Strings, keeps_uint64: bool) -> None:
        self._bytes_max = bytes_max
        self._strings: Strings = strings
        self._keeps_uint64 = keeps_uint64
        self._shape: tuple[type, tuple[str, ...]] = (BinaryTemplate, ())
        self._alike = 0
        self._with: frozenset[str] = frozenset()
        self._made = 0

    def learn(
        self, row: Any, data: bytes, at: int, known: RowTemplate | None
    ) -> RowTemplate | None:
        """Note a row that began at this place, and return the template to use from now on."""
        names = tuple(row) if type(row) is dict else ()
        kind = BinaryTemplate if _has_binary_key(data, at) else TextTemplate
        if (kind, names) != self._shape:
            self._shape, self._alike, self._with = (kind, names), 0, frozenset()
        self._alike += 1
        found = [name for name, value in row.items() if _is_string(value)] if names else []
        self._with = self._with.union(found)
        if self._alike < ALIKE_MIN or self._made >= TEMPLATES_MAX or not _fits(names):
            return known
        self._alike = 0
        if isinstance(known, kind) and known.names == names:
            if self._with <= known.with_strings:
                return known
            self._with = self._with | known.with_strings
        return self._make(kind, names)

    def _make(self, kind: type, names: tuple[str, ...]) -> RowTemplate:
        self._made += 1
        if kind is TextTemplate:
            return TextTemplate(names, self._bytes_max, self._strings, self._keeps_uint64)
        options = (self._bytes_max, self._strings, self._keeps_uint64)
        return BinaryTemplate(names, self._with, *options)


def _is_string(value: Any) -> bool:
    return isinstance(value, bytes | str)


def _fits(names: tuple[str, ...]) -> bool:
    return 0 < len(names) <= COLUMNS_MAX and sum(map(len, names)) <= NAMES_LENGTH_MAX
