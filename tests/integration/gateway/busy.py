"""A cluster that is at work: tables with rows of all kinds, and somebody who writes all the time.

Owns: what a person who opens the console of a small shop would see. Values and keys look for
trouble: markup, quotes, bytes that are no text, and texts that are long.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import dodona
from dodona._core.protocol import steps
from dodona._core.protocol.steps import Calls, Post
from dodona.errors import DodonaError, TransactionConflict

MARKUP: Final = "<script>alert('x')</script>"
QUOTES: Final = """it's "quoted" & <b>bold</b>"""
BINARY: Final = b"\xff\xd8\xff\xe0\x00\x10"
LONG: Final = "long " * 1000
ACCOUNTS: Final = "//bank/accounts"
ORDERS: Final = "//shop/orders"
STOCK: Final = "//shop/stock"
EVENTS: Final = "//shop/events"
ACCOUNT_COUNT: Final = 200


def _columns(key: str, **kinds: str) -> list[dict[str, Any]]:
    first = {"name": key, "type": kinds.pop(key), "sort_order": "ascending"}
    return [first, *[{"name": name, "type": kind} for name, kind in kinds.items()]]


def furnish(db: dodona.Client) -> None:
    """Make the tables, with their rows."""
    accounts = _columns("id", id="int64", owner="utf8", balance="int64")
    orders = _columns(
        "id", id="int64", customer="utf8", total="double", paid="boolean", about="any"
    )
    stock = _columns("item", item="string", count="int64", photo="string", note="utf8")
    events = _columns("at", at="uint64", what="utf8")
    db.create_table(ACCOUNTS, accounts, pivot_keys=[[], [50], [100], [150]], mount=True)
    db.create_table(ORDERS, orders, pivot_keys=[[], [100]], mount=True)
    db.create_table(STOCK, stock, mount=True)
    db.create_table(EVENTS, events, atomicity="none", mount=True)
    names = ("ann", "bob", "cid", "dot")
    db.insert_rows(
        ACCOUNTS,
        [{"id": it, "owner": names[it % 4], "balance": 1000} for it in range(ACCOUNT_COUNT)],
    )
    db.insert_rows(
        ORDERS,
        [
            {
                "id": it,
                "customer": names[it % 3],
                "total": it * 7.25,
                "paid": None if it % 5 == 0 else it % 2 == 0,
                "about": {"lines": it % 4, "gift": it % 7 == 0} if it % 3 else None,
            }
            for it in range(180)
        ],
    )
    db.insert_rows(
        STOCK,
        [
            {"item": MARKUP, "count": 1, "note": QUOTES},
            {"item": "lamp", "count": 7, "photo": BINARY, "note": LONG},
            {"item": b"\x00\x01\xfe", "count": -3, "note": "a\tb\nc \u202e d"},
            {"item": "rope", "count": 40},
        ],
    )
    db.insert_rows(EVENTS, [{"at": it, "what": "opened"} for it in range(5)])


class Writer:
    """Somebody who moves money between accounts of two cells, and now and then does so twice at the
    same time, which is a conflict. For the length of a `with` block; outages are waited out."""

    def __init__(self, url: str, pause_s: float = 0.01) -> None:
        self._url = url
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._turn = threading.Lock()
        """Held while it writes."""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.commit_count = 0
        self.conflict_count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def at_rest(self) -> Iterator[tuple[int, int]]:
        """Nothing of it is under way meanwhile. Gives its commits and its conflicts so far."""
        with self._turn:
            yield self.commit_count, self.conflict_count

    def _run(self) -> None:
        with dodona.connect(self._url) as db:
            turn = 0
            while not self._stop.wait(self._pause_s):
                turn += 1
                try:
                    with self._turn:
                        self._move(db, turn)
                except TransactionConflict:
                    self.conflict_count += 1
                except DodonaError:
                    time.sleep(self._pause_s)

    def _move(self, db: dodona.Client, turn: int) -> None:
        ids = (turn * 7 % 100, 100 + turn * 13 % 100)
        first = db.begin()
        second = db.begin() if turn % 8 == 0 else None
        for transaction in (first, second):
            if transaction is None:
                continue
            found = transaction.lookup_rows(ACCOUNTS, [{"id": it} for it in ids])
            changes = zip(found, (-1, 1), strict=True)
            rows = [{**row, "balance": row["balance"] + change} for row, change in changes]
            transaction.insert_rows(ACCOUNTS, rows)
        first.commit()
        self.commit_count += 1
        if second is not None:
            second.commit()


class Commit:
    """One of two cells, whose client vanished behind its prepares while a cell stands still: a
    client that lives gives up after a while, and has the other cell abort."""

    def __init__(self, url: str) -> None:
        self._db = dodona.connect(url)
        begun = self._db.begin()
        assert begun.start_timestamp is not None
        self.transaction = begun.start_timestamp
        begun.insert_rows(ORDERS, [{"id": 5_000 - it * 10_000, "total": 1.0} for it in (0, 1)])
        self._begun = begun

    def start(self) -> None:
        prepares = next(self._db._session.commit(self._begun._buffer))
        assert isinstance(prepares, Calls)
        self._db._driver.run(_sent(prepares))

    def end(self) -> None:
        self._db.close()


def _sent(step: Calls) -> steps.Protocol[None]:
    yield Post(step.requests)
