"""Bugs of rows that move: from store to store, into chunks, and out of the log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

from dodona.errors import SchemaViolation
from dodona.schema import Column, TableSchema
from dodona.types import Key, Timestamp, Write
from dodona_tablets.core.cell.readers import Readers
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.stores import Stores
from dodona_tablets.core.rows.version import Version
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep.flushing import Flushing
from dodona_tablets.core.upkeep.truncation import Truncation
from dodona_wire.cores import effects
from dodona_wire.rows.arrow import array_of
from dodona_wire.rows.keys import decode_key, encode_key
from negative.bug import BUSY, CheckedBug, PlantedBug, Where
from unit.tablets import test_readers

MOVING: Final[dict[str, Any]] = {"fault_point_rate": 1.0}
"""Stores are rotated and compacted, and the log is cut, between any two steps."""
SHORT: Final[dict[str, Any]] = MOVING | {"transaction_life_s_max": 3}
"""Besides, nothing is kept for long."""


def forget_what_is_flushed(patch: pytest.MonkeyPatch) -> None:
    """A flushed store goes at once, with all that conflicts are found by."""
    drop = Flushing._drop_unneeded

    def planted(self: Flushing, tablet: Tablet, _: Timestamp) -> None:
        drop(self, tablet, self._cell.latest)

    patch.setattr(Flushing, "_drop_unneeded", planted)


def cut_what_is_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dodona_tablets.core.upkeep.truncation._is_in_memory", lambda *_: False)


def cut_outcomes(patch: pytest.MonkeyPatch) -> None:
    """The log is cut although outcomes that are still asked for are told there only."""
    ready = Truncation._is_ready

    def planted(self: Truncation, waiting: Any) -> bool:
        return ready(self, waiting._replace(newest=Timestamp(0)))

    patch.setattr(Truncation, "_is_ready", planted)


def read_the_first_store_only(patch: pytest.MonkeyPatch) -> None:
    """Whoever finds a row in one store does not look in others: they may have newer versions, and
    those of other columns."""
    versions = Stores.versions

    def planted(self: Stores, key: Key, at: Timestamp, wanted: int = -1) -> list[Version]:
        layers = self.layers
        try:
            if any(it[0] <= at for it in _history(self.active, key)):
                self.layers = ()
            return versions(self, key, at, wanted)
        finally:
            self.layers = layers

    patch.setattr(Stores, "versions", planted)


def _history(store: DynamicStore, key: Key) -> list[Version]:
    found: list[Version] = []
    newest = store.rows.get(key)
    while newest is not None:
        found.append(newest)
        newest = newest[3]
    return found


def remove_files_at_once(patch: pytest.MonkeyPatch) -> None:
    """Before the record that replaced them is durable."""
    held = frozenset(it for it in effects.HELD_EFFECTS if it is not effects.RemoveChunks)
    patch.setattr("simulator.host.HELD_EFFECTS", held)


def write_while_it_is_flushed(patch: pytest.MonkeyPatch) -> None:
    """A transaction that locked before a rotation writes into the store of that time: the flush
    may have passed there."""
    rotate: Callable[[Stores], DynamicStore] = Stores.rotate

    def planted(self: Stores) -> DynamicStore:
        rotated = rotate(self)
        self.active.apply = _late(rotated, self.active.apply)  # type: ignore[method-assign]
        return rotated

    patch.setattr(Stores, "rotate", planted)


def _late(rotated: DynamicStore, apply: Callable[..., None]) -> Callable[..., None]:
    left = [2]

    def planted(*arguments: Any) -> None:
        left[0] -= 1
        (rotated.apply if left[0] >= 0 else apply)(*arguments)

    return planted


def pass_over_readers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Readers, "oldest", lambda *_: None)


def flush_one_list_of_each_length(patch: pytest.MonkeyPatch) -> None:
    """A flush packs nested values once and keeps the bytes, by a name that several values have."""

    def planted(column: Column, values: Sequence[Any]) -> Any:
        if column.stored != "any":
            return array_of(column, values)
        packed: dict[int, Any] = {}
        kept = [None if it is None else packed.setdefault(len(it), it) for it in values]
        return array_of(column, kept)

    patch.setattr("dodona_tablets.core.rows.chunks.rows.array_of", planted)


def believe_computed_columns(patch: pytest.MonkeyPatch) -> None:
    """A client of another version computes a key column otherwise, and the cells do not compute it
    again. No client finds such a row."""
    write_of = TableSchema.write_of
    count = [0]

    def planted(self: TableSchema, row: Mapping[str, Any], *, is_update: bool = False) -> Write:
        key, mask, values = write_of(self, row, is_update=is_update)
        count[0] += 1
        if not self.computed or count[0] % 20:
            return key, mask, values
        computed, *others = decode_key(key, self.key_types)
        return encode_key([computed ^ 1, *others], self.key_types), mask, values

    check_writes = Tablet.check_writes

    def unchecked(self: Tablet, writes: Sequence[Any]) -> None:
        try:
            check_writes(self, writes)
        except SchemaViolation as error:
            if "computed" not in error.attributes:
                raise

    patch.setattr(TableSchema, "write_of", planted)
    patch.setattr(Tablet, "check_writes", unchecked)


BUGS: tuple[PlantedBug | CheckedBug, ...] = (
    CheckedBug(
        39,
        "a compaction passes over a reader that registered",
        pass_over_readers,
        lambda _: (
            test_readers.test_versions_for_a_reader_are_kept_until_the_reader_releases_the_snapshot()
        ),
        "test_versions_for_a_reader_are_kept_until_the_reader_releases_the_snapshot",
    ),
    PlantedBug(
        37,
        "a flush buries what conflicts are found by",
        forget_what_is_flushed,
        ("NOCONFLICT", "RWLOCK"),
        Where("cycle", changes=BUSY | MOVING),
    ),
    PlantedBug(
        37,
        "the log is cut before chunks have its rows",
        cut_what_is_in_memory,
        ("DURABILITY", "CRASH", "ATOMICITY"),
        Where(changes=SHORT, crash_count=10),
    ),
    PlantedBug(
        None,
        "the log is cut before its outcomes are forgotten",
        cut_outcomes,
        ("OUTCOME", "GHOST"),
        Where(
            seconds=30,
            changes=SHORT | {"patience_ms": 3_000, "call_timeout_us": 500_000},
            network={"loss_rate": 0.2},
            crash_count=60,
        ),
    ),
    PlantedBug(
        None,
        "a read takes what the first store has of a row",
        read_the_first_store_only,
        ("EXT", "LATEST"),
        Where("column_groups", changes=MOVING),
    ),
    PlantedBug(
        None,
        "files are removed before the record that replaced them is durable",
        remove_files_at_once,
        ("CRASH", "DURABILITY"),
        Where(changes=SHORT, crash_count=30),
    ),
    PlantedBug(
        None,
        "a commit is written into a store that is being flushed",
        write_while_it_is_flushed,
        ("DURABILITY", "EXT", "CRASH", "LATEST"),
        Where(changes=SHORT, crash_count=10),
    ),
    PlantedBug(
        None,
        "a flush keeps one list for all lists of a length",
        flush_one_list_of_each_length,
        ("DURABILITY", "EXT", "LATEST", "CRASH", "INTERNAL", "LOST-APPEND"),
        Where("list_append", changes=MOVING),
    ),
    PlantedBug(
        None,
        "cells take the word of a client for a computed column",
        believe_computed_columns,
        ("DURABILITY", "EXT", "LATEST", "GHOST", "INVARIANT"),
        Where("list_append"),
    ),
)
