"""Groups of a log as entries of a replicated log: whole again, or not there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dodona_replication.core.entries import make_entry
from dodona_tablets.core.records import Checkpoint, Record
from dodona_tablets.shell import log_entries
from dodona_tablets.shell.log_entries import OPENING, FoundGroups, records_of_group
from dodona_tablets.shell.log_reading import read
from dodona_wire.errors import DataCorrupted
from dodona_wire.messages.replicas import Entry
from unit.tablets.logs import rows

PATH = Path("node-1")


def entries_of(*groups: Sequence[Record] | bytes, first_index: int = 1) -> list[Entry]:
    """Return entries with these groups; bytes are an entry of their own."""
    found: list[Entry] = []
    for group in groups:
        index = first_index + len(found)
        parts = [group] if isinstance(group, bytes) else records_of_group(index, group)[1]
        found += [make_entry(index + at, 1, part) for at, part in enumerate(parts)]
    return found


def read_all(entries: Sequence[Entry]) -> list[int]:
    """Return the numbers of the rows, and those of checkpoints with a minus."""
    found: list[Any] = [record for _, record in read([FoundGroups(PATH, entries)])]
    return [-it.number if isinstance(it, Checkpoint) else it.stamp for it in found]


def test_groups_come_back_in_order() -> None:
    entries = entries_of(OPENING, [rows(1)], [rows(2), rows(3)], OPENING, [rows(4)])
    assert len(entries) == 5
    assert read_all(entries) == [1, 2, 3, 4]


def test_a_long_group_is_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_entries, "PART_BYTES_MAX", 10)
    entries = entries_of(OPENING, [rows(1), rows(2)], [rows(3)])
    assert len(entries) > 5
    assert max(len(it.records) for it in entries) == 11
    assert read_all(entries) == [1, 2, 3]


def test_a_group_whose_owner_ended_within_it_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = entries_of(OPENING, [rows(1)])
    monkeypatch.setattr(log_entries, "PART_BYTES_MAX", 10)
    begun = records_of_group(3, [rows(2), rows(3)])[1][:-1]
    monkeypatch.undo()
    entries = [*whole, *[make_entry(3 + at, 1, part) for at, part in enumerate(begun)]]
    assert read_all(entries) == [1]
    behind = entries_of(OPENING, [rows(4)], first_index=entries[-1].index + 1)
    assert read_all([*entries, *behind]) == [1, 4]


def test_a_cut_log_is_read_from_its_checkpoint_on() -> None:
    entries = entries_of([rows(1), Checkpoint(7), rows(2)], [rows(3)], first_index=40)
    assert read_all(entries) == [-7, 2, 3]


def test_a_cut_log_without_a_checkpoint_is_damaged() -> None:
    with pytest.raises(DataCorrupted, match="does not have a checkpoint to begin with"):
        read_all(entries_of([rows(1)], first_index=40))


def test_a_damaged_group_is_named() -> None:
    entries = entries_of(OPENING, [rows(1)])
    entries[1] = make_entry(2, 1, entries[1].records[:-1] + b"?")
    with pytest.raises(DataCorrupted, match="fails its checksum") as caught:
        read_all(entries)
    assert caught.value.attributes["group"] == 2


def test_a_log_without_entries_is_read() -> None:
    assert read_all([]) == []
