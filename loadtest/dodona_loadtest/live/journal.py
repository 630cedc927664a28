"""A history that outlives its writer: it is written down before a request leaves the process.

Owns: the file. A client process may be killed at any time. If one of its requests may have arrived
somewhere, the file has that request. An entry is one write, so only the last entry may be torn.
Then it is about a request that was not sent yet.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import (
    Acquisition,
    History,
    LatestRead,
    Read,
    RowKey,
    StampedRead,
    StampedWrite,
    Transaction,
    Write,
    frozen,
)

Row = TypeVar("Row", Read, Write)
_LENGTH: Final = struct.Struct(">I")


class Entry(msgspec.Struct, omit_defaults=True):
    """Transactions, and the rows of calls without atomicity, as they are now. The other lists have
    what came since the last entry."""

    transactions: list[Transaction] = []
    stamped_writes: list[StampedWrite] = []
    stamped_reads: list[StampedRead] = []
    acquisitions: list[Acquisition] = []
    latest_reads: list[LatestRead] = []
    violations: list[Violation] = []


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Entry)


class JournaledHistory(History):
    """A history that knows which records of each session are not yet final in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.unsaved: dict[str, list[Transaction]] = {}

    def begin(self, session: str, now_us: int) -> Transaction:
        transaction = super().begin(session, now_us)
        self.unsaved.setdefault(session, []).append(transaction)
        return transaction


class Journal:
    """The file of one process. `violations` is the list to which a workload adds."""

    def __init__(self, path: Path, history: JournaledHistory, violations: list[Violation]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._history = history
        self._violations = violations
        self._acquisition_count = 0
        self._latest_read_count = 0
        self._stamped_read_count = 0
        self._stamped_write_count = 0
        self._open_writes: list[StampedWrite] = []
        self._violation_count = 0

    def save(self, session: str) -> None:
        """Write down what the session is about to do, if others could notice it: a commit."""
        history = self._history
        unsaved = history.unsaved.pop(session, [])
        going_on = [t for t in unsaved if t.end_us is None]
        if going_on:
            history.unsaved[session] = going_on
        entry = Entry(
            [t for t in unsaved if t.end_us is not None or t.commit_us is not None],
            self._take_stamped_writes(session),
            history.stamped_reads[self._stamped_read_count :],
            history.acquisitions[self._acquisition_count :],
            history.latest_reads[self._latest_read_count :],
            self._violations[self._violation_count :],
        )
        if entry != Entry():
            self._write(entry)

    def close(self) -> None:
        """Write down the rest, and close the file."""
        sessions = [*self._history.unsaved, *(write.session for write in self._open_writes)]
        for session in dict.fromkeys(sessions):
            self.save(session)
        os.close(self._file)

    def _take_stamped_writes(self, session: str) -> list[StampedWrite]:
        """Return the session's writes that are under way, or were when it was saved last."""
        new = self._history.stamped_writes[self._stamped_write_count :]
        self._stamped_write_count += len(new)
        self._open_writes += new
        mine = [write for write in self._open_writes if write.session == session]
        self._open_writes = [
            it for it in self._open_writes if it.session != session or it.answered_us is None
        ]
        return mine

    def _write(self, entry: Entry) -> None:
        self._stamped_read_count += len(entry.stamped_reads)
        self._acquisition_count += len(entry.acquisitions)
        self._latest_read_count += len(entry.latest_reads)
        self._violation_count += len(entry.violations)
        body = _encoder.encode(entry)
        content = _LENGTH.pack(len(body)) + body
        written = os.write(self._file, content)
        assert written == len(content), "the disk is full"


@dataclass(slots=True)
class Account:
    """The journals of several processes, as one history."""

    history: History = field(default_factory=History)
    violations: list[Violation] = field(default_factory=list)

    def add(self, entries: Iterable[Entry]) -> None:
        """Add the entries of one process. Of each transaction and row, the last state counts."""
        transactions: dict[str, Transaction] = {}
        stamped: dict[tuple[str, RowKey], StampedWrite] = {}
        for entry in entries:
            transactions |= {t.name: t for t in entry.transactions}
            stamped |= {(it.name, it.write.row): it for it in entry.stamped_writes}
            self.history.stamped_reads += entry.stamped_reads
            self.history.acquisitions += entry.acquisitions
            self.history.latest_reads += entry.latest_reads
            self.violations += entry.violations
        self.history.transactions += transactions.values()
        self.history.stamped_writes += stamped.values()


def read_journal(path: Path) -> Iterator[Entry]:
    """Return the entries of a journal whose writer is gone."""
    content = path.read_bytes()
    place = 0
    while place + _LENGTH.size <= len(content):
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        if place + length > len(content):
            return  # the last entry is torn
        yield _frozen(_decoder.decode(content[place : place + length]))
        place += length


def _frozen(entry: Entry) -> Entry:
    """Return an entry as it was written. In the file, a tuple within a value is a list, and only
    tuples can be hashed."""
    for t in entry.transactions:
        t.reads = [_frozen_row(it) for it in t.reads]
        t.writes = [_frozen_row(it) for it in t.writes]
        t.scans = [it._replace(reads=tuple(map(_frozen_row, it.reads))) for it in t.scans]
    for it in entry.stamped_writes:
        it.write = _frozen_row(it.write)
    entry.stamped_reads = [it._replace(read=_frozen_row(it.read)) for it in entry.stamped_reads]
    entry.latest_reads = [it._replace(read=_frozen_row(it.read)) for it in entry.latest_reads]
    return entry


def _frozen_row(it: Row) -> Row:
    return it._replace(columns=frozen(it.columns))
