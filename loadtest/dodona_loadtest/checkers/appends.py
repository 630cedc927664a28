"""What a transaction on lists asked for and saw, as the list-append checker judges it.

Owns: the plain records. A key holds a list; a transaction appends elements to lists, each of them
unique in its key, and observes whole lists. Elements and keys are any hashable values.
Must not import: any core, histories, or the checker.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Append:
    """One element put at the end of a list. Nobody else appends it to this key."""

    key: Hashable
    element: Hashable


@dataclass(frozen=True, slots=True)
class Observe:
    """A whole list as the transaction saw it; a list that nobody made is empty."""

    key: Hashable
    elements: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class AppendTransaction:
    """One transaction of one session, from asking for its start to the last answer.

    ok: told it is committed; fail: told it is not; info: told nothing sure; open: still running.
    """

    name: str
    session: str
    status: Literal["open", "ok", "fail", "info"]
    begin_us: int
    end_us: int | None
    operations: tuple[Append | Observe, ...]
