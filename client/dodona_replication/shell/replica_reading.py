"""Reading in the file of a replica: its identity, the states of its logs, and their entries.

Owns: the walks over the keys. All of them raise DataCorrupted if something is missing or damaged.
Nothing here writes.
"""

from collections.abc import Iterator
from pathlib import Path

import lmdb

from dodona_replication.core.entries import is_sound
from dodona_replication.core.records import EntriesAdded, LogState
from dodona_replication.shell.replica_journal import JOURNAL_NAME, read_journal
from dodona_replication.shell.replica_keys import (
    FORMAT_KEY,
    FORMAT_VERSION,
    FORMAT_WITHOUT_JOURNAL,
    IDENTITY_KEY,
    PIECE_PREFIX,
    PIECES_END,
    PLACE_KEY,
    STATE_PREFIX,
    Identity,
    Place,
    StoredState,
    damaged,
    joined,
    log_of,
    other_format,
    parse_piece_key,
    piece_key,
    unsealed_identity,
    unsealed_place,
    unsealed_state,
)
from dodona_wire.errors import DataCorrupted
from dodona_wire.messages.replicas import Entry


def read_entry(
    cursor: "lmdb.Cursor[bytes]", log: str, number: int, index: int, path: Path
) -> Entry:
    """Return the entry of a log. Raises DataCorrupted, which names the log and the index."""
    pieces: list[bytes] = []
    try:
        is_there = cursor.set_range(piece_key(number, index))
        while is_there and cursor.key() == piece_key(number, index, len(pieces)):
            pieces.append(cursor.value())
            is_there = cursor.next()
    except lmdb.Error as error:
        raise damaged(f"can't be read ({error})", log, index, path) from error
    if not pieces:
        raise damaged("is missing", log, index, path)
    return joined(log, index, pieces, path)


def read_identity(transaction: "lmdb.Transaction[bytes]", path: Path) -> Identity:
    """Return the identity in a file of these formats. Raises DataCorrupted."""
    found = transaction.get(FORMAT_KEY)
    if found not in (FORMAT_VERSION, FORMAT_WITHOUT_JOURNAL):
        raise other_format(found, path)
    stored = transaction.get(IDENTITY_KEY)
    if stored is None:
        raise DataCorrupted("The replica's id is missing in its file.", path=str(path))
    return unsealed_identity(stored, path)


def read_place(transaction: "lmdb.Transaction[bytes]", path: Path) -> Place | None:
    """Return the place of a file in its journal. None: its format has no journal. Raises
    DataCorrupted."""
    if transaction.get(FORMAT_KEY) == FORMAT_WITHOUT_JOURNAL:
        return None
    stored = transaction.get(PLACE_KEY)
    if stored is None:
        raise DataCorrupted("The place in the journal is missing in the file.", path=str(path))
    return unsealed_place(stored, path)


def read_waiting(transaction: "lmdb.Transaction[bytes]", path: Path) -> list[EntriesAdded]:
    """Return the entries that are in the journal and not in the file. Raises DataCorrupted,
    Overloaded, InvalidRequest."""
    place = read_place(transaction, path)
    return [] if place is None else read_journal(path.with_name(JOURNAL_NAME), place).waiting


def read_states(cursor: "lmdb.Cursor[bytes]", path: Path) -> list[tuple[str, StoredState]]:
    """Return the stored states of all logs, by name. Raises DataCorrupted."""
    found = []
    is_there = cursor.set_range(STATE_PREFIX)
    while is_there and cursor.key() < PIECE_PREFIX:
        key = cursor.key()
        found.append((log_of(key), unsealed_state(key, cursor.value(), path)))
        is_there = cursor.next()
    return found


def last_index_of(cursor: "lmdb.Cursor[bytes]", stored: StoredState, path: Path) -> int:
    """Return the index of the last entry of a log. If it has none, that before its first one."""
    is_behind = cursor.set_range(piece_key(stored.number + 1, 0))
    if cursor.prev() if is_behind else cursor.last():
        key = cursor.key()
        if key >= piece_key(stored.number, stored.first_index):
            return parse_piece_key(key, path)[1]
    return stored.first_index - 1


def check_end(name: str, stored: StoredState, last_index: int, path: Path) -> None:
    """Check that the last epoch has an entry. Raises DataCorrupted."""
    if stored.starts and last_index < stored.starts[-1][1]:
        raise damaged("is missing", name, stored.starts[-1][1], path)


def check_next(added: EntriesAdded, state: LogState | None, path: Path) -> None:
    """Check that entries of the journal go on with the last epoch of their log, which has this
    state. None: there is no such log. Raises DataCorrupted."""
    index = added.entries[0].index
    if state is None or index != state.tail.last_index + 1:
        raise damaged("is missing before those of the journal", added.log, index - 1, path)
    for entry in added.entries:
        if not is_sound(entry):
            raise damaged("has a wrong checksum", added.log, entry.index, path)
        if not state.tail.starts or entry.epoch != state.tail.last_epoch:
            raise damaged("has another epoch", added.log, entry.index, path)


def numbers_in(cursor: "lmdb.Cursor[bytes]", path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each log that has entries, and the key of its first piece."""
    is_there = cursor.set_range(PIECE_PREFIX)
    while is_there and cursor.key() < PIECES_END:
        key = cursor.key()
        number = parse_piece_key(key, path)[0]
        yield number, key
        is_there = cursor.set_range(piece_key(number + 1, 0))
