"""Short words for what tests do with owners of early locks."""

from typing import Any

from dodona.types import CellId, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    CommitOne,
    ConditionalCommit,
)
from dodona_wire.messages.locks import (
    AcquireLocks,
    LocksGranted,
    LocksReleased,
    ReleaseLocks,
    TabletKeys,
)
from dodona_wire.types import Owner
from unit.tablets.cells import (
    ATOMIC,
    REVISION,
    Bench,
    changes,
    key,
)

LEASE_MS = 10_000
BOTH = (CellId(0), CellId(1))


def new_owner(bench: Bench) -> Owner:
    return Owner(bench.timestamp())


def ask(bench: Bench, owner: Owner, *ids: int, wait_ms: int = 2_000, skip_max: int = 0) -> Any:
    keys = TabletKeys(ATOMIC, REVISION, tuple(map(key, ids)))
    return bench.ask(AcquireLocks(owner, (keys,), LEASE_MS, wait_ms, skip_max))


def said(bench: Bench, route: Any) -> Any:
    return bench.answer(route)


def locked(bench: Bench, *ids: int) -> Owner:
    """An owner that has these rows."""
    owner = new_owner(bench)
    assert isinstance(said(bench, ask(bench, owner, *ids)), LocksGranted)
    return owner


def release(bench: Bench, owner: Owner) -> None:
    assert said(bench, bench.ask(ReleaseLocks(owner))) == LocksReleased(owner)


def ask_commit(bench: Bench, owner: Owner, *writes: Any, start: TransactionId | None = None) -> Any:
    start = bench.begin() if start is None else start
    return bench.ask(ConditionalCommit(CommitOne(start, (changes(*writes),)), (), owner))


def commit(bench: Bench, owner: Owner, *writes: Any, start: TransactionId | None = None) -> Any:
    route = ask_commit(bench, owner, *writes, start=start)
    bench.answer_oracle()
    return said(bench, route)


def is_waiting(bench: Bench, *routes: Any) -> bool:
    return all(said(bench, it) is None for it in routes)


def granted(bench: Bench, *routes: Any) -> list[bool]:
    return [isinstance(said(bench, it), LocksGranted) for it in routes]


def kind_of(answer: Any) -> str:
    assert isinstance(answer, Failure), answer
    return answer.kind
