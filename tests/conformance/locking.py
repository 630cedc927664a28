"""Early locks for tests: who has a row, who waits for it, and what begins beside the test."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import pytest

from conformance.backends import Backend, Started
from dodona._core.writing.early_locks import WAIT_MS_MAX, waiting_of
from dodona._core.writing.transaction import TransactionBuffer
from dodona.client import Client, Transaction
from dodona.errors import RowBlocked

FAR: Final = 150
"""The key of a row in the second tablet."""
SOON_MS: Final = 100
ATTEMPTS_MAX: Final = 600
Locks = Mapping[str, list[dict[str, Any]]]


LONG_MS: Final = 60_000
"""The longest lease that a cell takes."""


def keys(*values: int) -> list[dict[str, Any]]:
    return [{"k": it} for it in values]


def locked(tx: Transaction, path: str) -> list[int]:
    return [key["k"] for key in tx.locked_rows[path]]


def begin_beside(
    backend: Backend, client: Client, locks: Locks, wait_ms: int = WAIT_MS_MAX
) -> Started[TransactionBuffer]:
    """A transaction that begins while the test goes on."""
    waiting = waiting_of(True, wait_ms, nowait=False, skip_locked=None)
    return backend.start(client, client._session.begin(locks=locks, waiting=waiting))


def end(client: Client, buffer: TransactionBuffer) -> None:
    client._run(client._session.abort(buffer))


def is_free(client: Client, path: str, key: int) -> bool:
    try:
        client.begin(locks={path: keys(key)}, nowait=True).abort()
    except RowBlocked:
        return False
    client.lookup_rows(path, keys(key))  # behind the release, on the same connection
    return True


def wait_until(backend: Backend, is_so: Callable[[], bool], what: str) -> None:
    for _ in range(ATTEMPTS_MAX):
        if is_so():
            return
        backend.let_pass(10)
    pytest.fail(what)


def wait_until_free(backend: Backend, client: Client, path: str, *rows: int) -> None:
    """No answer to a release is awaited, so it may still be on its way."""
    for it in rows:
        wait_until(backend, partial(is_free, client, path, it), f"row {it} stays locked")


def stand_in_line(
    backend: Backend, client: Client, locks: Locks, *others: int
) -> Started[TransactionBuffer]:
    """A transaction that waits for a row. The last of `locks` is a row that shows that it is in
    line, and so is each of `others`. The lower cell is asked first, and either may be the lower."""
    beginning = begin_beside(backend, client, locks)
    path, rows = list(locks.items())[-1]
    shown_by = [rows[-1]["k"], *others]

    def is_in_line() -> bool:
        return not all(is_free(client, path, it) for it in shown_by)

    wait_until(backend, is_in_line, "its request does not arrive")
    return beginning
