"""One transaction of the file of a replica's store: entries, states of logs, and removals.

Owns: `Writing`, which knows what the transaction changes before it is durable. A map that gets full
undoes it: then nothing has changed, neither in the file nor in memory.
Must not import: the store, or the journal.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import lmdb

from dodona_replication.core.records import (
    EntriesAdded,
    EntriesDropped,
    EpochRaised,
    LogBegun,
    LogCut,
    LogState,
    Record,
    Swept,
)
from dodona_replication.shell.replica_keys import (
    StoredState,
    piece_key,
    pieces_of,
    sealed,
    state_key,
)
from dodona_wire.messages.replicas import Entry

SWEEP_PIECES: Final = 500
"""How many pieces one transaction may remove, in less than a millisecond. One that adds many pieces
removes half as many again. So removals keep up, however entries come."""


class Log(NamedTuple):
    """A log as the store knows it."""

    number: int
    state: LogState
    """With the entries that wait."""


class Writing:
    """One append: what it has changed, before it is durable. A map that gets full undoes it."""

    def __init__(
        self,
        transaction: "lmdb.Transaction[bytes]",
        logs: Mapping[str, Log],
        garbage: deque[tuple[bytes, bytes]],
        next_number: int,
    ) -> None:
        self._transaction = transaction
        self._before = logs
        self.logs: dict[str, Log] = {}
        """The logs that this append has changed."""
        self._with_new_state: dict[str, None] = {}
        self._added_count = 0
        """The pieces that this transaction adds."""
        self.garbage = deque(garbage)
        self.next_number = next_number

    def apply(self, record: Record) -> None:
        """Write one record."""
        if isinstance(record, Swept):
            return
        name = record.log
        log = self._log(name)
        start_count = len(log.state.tail.starts)
        before = log.state.tail
        last_index, first_index = before.last_index, before.first_index
        log.state.apply(record)
        match record:
            case EntriesAdded(entries=entries):
                self.put(log.number, entries)
                if len(log.state.tail.starts) == start_count:
                    return  # the last entry says where the log ends
            case EntriesDropped(last_index=kept_index):
                self._drop(log.number, kept_index + 1, last_index)
            case LogCut():
                self._leave(log.number, first_index, log.state.tail.first_index)
            case LogBegun(entries=entries):
                self._leave(log.number, first_index, last_index + 1)
                log = self.logs[name] = Log(self._number(), log.state)
                self.put(log.number, entries)
            case EpochRaised():
                pass
        self._with_new_state[name] = None

    def finish(self) -> None:
        """Write the states, and remove a part of what no log needs."""
        for name in self._with_new_state:
            key = state_key(name)
            self._transaction.put(key, sealed(key, StoredState.of(*self.logs[name])))
        left = max(SWEEP_PIECES, self._added_count + self._added_count // 2)
        while self.garbage and left:
            begin, end = self.garbage[0]
            left -= self._remove(begin, end, left)
            if left:
                self.garbage.popleft()

    def _log(self, name: str) -> Log:
        log = self.logs.get(name)
        if log is None:
            before = self._before.get(name)
            log = (
                Log(self._number(), LogState())
                if before is None
                else Log(before.number, before.state.copy())
            )
            self.logs[name] = log
        return log

    def _number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    def put(self, number: int, entries: Sequence[Entry]) -> None:
        """Write the pieces of entries of the log with this number."""
        with self._transaction.cursor() as cursor:
            items = chain.from_iterable(pieces_of(number, it) for it in entries)
            given, new = cursor.putmulti(items, overwrite=False)
        assert given == new, "an entry has the key of another one"
        self._added_count += new

    def _leave(self, number: int, first_index: int, end_index: int) -> None:
        if first_index < end_index:
            self.garbage.append((piece_key(number, first_index), piece_key(number, end_index)))

    def _drop(self, number: int, first_index: int, last_index: int) -> None:
        """Remove entries now: others will have their keys."""
        self._remove(piece_key(number, first_index), piece_key(number, last_index + 1), None)

    def _remove(self, begin: bytes, end: bytes, count_max: int | None) -> int:
        count = 0
        with self._transaction.cursor() as cursor:
            is_there = cursor.set_range(begin)
            while is_there and cursor.key() < end and count != count_max:
                cursor.delete()
                count += 1
                is_there = cursor.key() != b""
        return count
