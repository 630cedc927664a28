"""What comes after the sessions of a run, on a client that only notes what it is asked for."""

from collections.abc import Sequence
from typing import Any

import pytest

from dodona._core.protocol.steps import Pause, Protocol
from dodona.errors import TransactionConflict
from dodona.schema import Column
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.live.phases import KEYS_PER_LOCK, NotLive, Phases
from unit.loadtest.model_rows import exhaust

TABLES = tuple(
    TableShape(
        f"//t/{atomicity}", (Column("id", "int64", sort_order="ascending"),), ((),), atomicity
    )
    for atomicity in ("full", "none")
)


class Session:
    """Locks whatever it is asked for, a second each time, unless somebody holds it."""

    catalog = None

    def __init__(self, held: int | None = None) -> None:
        self.held = held
        self.now_us = 0
        self.locked: list[int] = []

    @property
    def session(self) -> "Session":
        return self

    def begin(self) -> Protocol[None]:
        yield Pause(1)

    def lock_rows(
        self, buffer: object, path: str, keys: Sequence[dict[str, Any]], lock_type: str
    ) -> Protocol[None]:
        assert path == "//t/full"
        self.now_us += 1_000_000
        if {"id": self.held} in keys:
            raise TransactionConflict("held")
        self.locked.append(len(keys))
        yield from ()

    def commit(self, buffer: object) -> Protocol[None]:
        yield Pause(1)


class Lockable:
    """A workload, as far as its tables go."""

    tables = TABLES


def take(session: Session, count: int, wait_s_max: float) -> None:
    phases: Any = Phases(session, Lockable())  # type: ignore[arg-type]
    rows = [table.row_key({"id": number}) for table in TABLES for number in range(count)]
    exhaust(phases.take_all_locks(rows, wait_s_max))


def test_a_transaction_locks_at_most_the_allowed_number_of_rows() -> None:
    session = Session()
    take(session, 2 * KEYS_PER_LOCK + 5, 60.0)
    assert session.locked == [KEYS_PER_LOCK, KEYS_PER_LOCK, 5]


def test_all_parts_have_one_deadline() -> None:
    session = Session(held=2 * KEYS_PER_LOCK)
    with pytest.raises(NotLive, match="locking all rows did not work within 6 s: held"):
        take(session, 2 * KEYS_PER_LOCK + 1, 6.0)
    assert session.now_us == 7_000_000
