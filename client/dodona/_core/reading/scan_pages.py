"""Keep the pages of one scan, and make of each page what the reader wants.

Owns: when a page is converted. Most pages are converted while the servers make the next ones.
Invariant: the result is the same whether a driver gives time for that or not, and so is an error.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from dodona_wire.messages.data import ArrowPage, ScanPage
from dodona_wire.types import Key

Page = TypeVar("Page", bound=ScanPage | ArrowPage)
Made = TypeVar("Made")


class ScanPages(Generic[Page, Made]):
    """The pages of one scan, and what is made of each. The first pages are made into something
    while the servers work on the next ones."""

    __slots__ = ("_made", "_make", "_waiting", "kind")

    def __init__(self, kind: type[Page], make: Callable[[Page], Made]) -> None:
        self.kind: type[Page] = kind
        self._make: Callable[[Page], Made] = make
        self._waiting: dict[Key, Page] = {}
        """By the key at which the page begins."""
        self._made: dict[Key, Made] = {}

    def add(self, lower: Key, page: Page) -> None:
        self._waiting[lower] = page

    def make_some(self) -> None:
        """Make something of the pages that have arrived. No error is caught here: it may be the
        caller's own, such as that of an alarm."""
        for lower, page in [*self._waiting.items()]:
            self._made[lower] = self._make(page)
            del self._waiting[lower]

    def all_made(self) -> list[Made]:
        """Return what was made of all pages, in key order."""
        self.make_some()
        return [self._made[lower] for lower in sorted(self._made)]
