"""Calls that fail: which one, of what kind, and with which error.

Owns: the saboteurs, and the list of all sites of a program. A site is the n-th call of a kind, so
that it means the same in every run of a program that does the same.
"""

import errno
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from disk_faults.syscalls import Call, Kind
from disk_faults.tracer import KILL, SHORT, Failure

_NOT_DONE: Final = (Failure(errno.EIO), Failure(errno.ENOSPC))
FAILURES: Final[Mapping[Kind, tuple[Failure, ...]]] = {
    "create": _NOT_DONE,
    "make folder": _NOT_DONE,
    "write": (*_NOT_DONE, SHORT),
    "synced write": (*_NOT_DONE, Failure(errno.EIO, is_carried_out=True)),
    "resize": _NOT_DONE,
    "sync": _NOT_DONE,
    "folder sync": _NOT_DONE,
    "rename": _NOT_DONE,
    "remove": (Failure(errno.EIO),),
}
"""What each kind of call is made to answer. A sync that fails has always written some of it."""


@dataclass(frozen=True, slots=True)
class Site:
    """The call that fails: the `number`-th of its kind, from 1."""

    kind: Kind
    number: int
    failure: Failure

    def __str__(self) -> str:
        return f"{self.failure} at {self.kind} {self.number}"


class Counting:
    """Lets all calls be, and counts them."""

    def __init__(self) -> None:
        self.counts: Counter[Kind] = Counter()

    def decide(self, call: Call) -> Failure | None:
        self.counts[call.kind] += 1
        return None


class FailAt(Counting):
    """Fails one call. `name` is the file's that was hit, if any was."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site
        self.name: str | None = None

    def decide(self, call: Call) -> Failure | None:
        super().decide(call)
        if call.kind != self._site.kind or self.counts[call.kind] != self._site.number:
            return None
        if self._site.failure == SHORT and call.count_bytes is None:
            return None  # several pieces in one call
        self.name = call.name
        return self._site.failure


class KillAt:
    """Kills the program in place of its n-th call, from 1."""

    def __init__(self, number: int) -> None:
        self._left = number

    def decide(self, call: Call) -> Failure | None:
        self._left -= 1
        return None if self._left else KILL


def sites_of(counts: Mapping[Kind, int]) -> Iterator[Site]:
    """Every site of a program that made so many calls, with every failure."""
    for kind, failures in FAILURES.items():
        for number in range(1, counts.get(kind, 0) + 1):
            for failure in failures:
                yield Site(kind, number, failure)
