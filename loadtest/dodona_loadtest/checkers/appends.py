"""Records of what a transaction on lists did and saw, for the list-append checker.

Owns: the plain records. A key holds a list. A transaction appends elements to lists, each of them
unique in its key, and observes whole lists. Elements and keys are any hashable values.
Must not import: any core, histories, or the checker.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Append:
    """One element, put at the end of a list. No other append to this key has it."""

    key: Hashable
    element: Hashable


@dataclass(frozen=True, slots=True)
class Observe:
    """A whole list, as the transaction saw it. A list that no transaction made is empty."""

    key: Hashable
    elements: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class AppendTransaction:
    """One transaction of one session, from the request of its start to the last answer.

    ok: the answer says committed; fail: it says not committed; info: no sure answer; open: still
    running.
    """

    name: str
    session: str
    status: Literal["open", "ok", "fail", "info"]
    begin_us: int
    end_us: int | None
    operations: tuple[Append | Observe, ...]
