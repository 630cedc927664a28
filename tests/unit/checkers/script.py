"""Histories made by hand, for the checkers to judge.

Owns: `Script`, which writes down who did what and what is there in the end, instant by instant.
"""

from dodona_loadtest.checkers.sweep import check
from dodona_loadtest.checkers.violation import Promise, Violation
from dodona_loadtest.histories.history import (
    Columns,
    History,
    Lock,
    Read,
    RowKey,
    Scan,
    Status,
    Transaction,
    Version,
    Write,
)

TABLE = "//t"
A, B, C = (RowKey(TABLE, key) for key in (b"a", b"b", b"c"))


def value(number: int) -> Columns:
    return (("v", number),)


class Script:
    """A history in the making. Every call is one instant later than the one before."""

    def __init__(self) -> None:
        self.history = History()
        self.dump: list[Version] = []
        self._now_us = 0

    def now(self) -> int:
        self._now_us += 1
        return self._now_us

    def begin(self, start: int, session: str = "s") -> Transaction:
        t = self.history.begin(session, self.now())
        t.start, t.begun_us = start, self.now()
        return t

    def finish(
        self,
        t: Transaction,
        commit: int | None,
        *writes: Write,
        locks: tuple[Lock, ...] = (),
        status: Status = "ok",
    ) -> Transaction:
        """Commit, and put what was written into the dump (for None: only ask for it)."""
        t.writes, t.locks = list(writes), list(locks)
        t.commit_us = self.now()
        t.status, t.end_us = status, self.now()
        t.commit = commit if status == "ok" else None
        if commit is not None:
            self.dump += [Version(write.row, commit, write.columns) for write in writes]
        return t

    def write(
        self,
        start: int,
        commit: int | None,
        *writes: Write,
        locks: tuple[Lock, ...] = (),
        session: str = "s",
        status: Status = "ok",
    ) -> Transaction:
        t = self.begin(start, session)
        return self.finish(t, commit, *writes, locks=locks, status=status)

    def blind(
        self, names: list[int], commit: int | None, *writes: Write, status: Status = "ok"
    ) -> Transaction:
        """A write without a transaction, all of it in one cell."""
        t = self.history.begin("s", self.now())
        t.is_blind, t.names = True, names
        return self.finish(t, commit, *writes, status=status)

    def read(self, start: int, *reads: Read, scans: tuple[Scan, ...] = ()) -> Transaction:
        t = self.begin(start)
        t.reads, t.scans = list(reads), list(scans)
        t.status, t.end_us = "ok", self.now()
        return t

    def check(self) -> list[Violation]:
        return check(self.history, self.dump)

    def promises(self) -> set[Promise]:
        return {violation.promise for violation in self.check()}
