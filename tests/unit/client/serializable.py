"""A session with a serializable transaction, and cells with a few rows, for the tests of both."""

from collections.abc import Callable
from typing import Any

from dodona._core.protocol.steps import Protocol, Target
from dodona._core.session import Session
from dodona._core.writing.reads import ReadKeys
from dodona._core.writing.transaction import TransactionBuffer
from dodona.schema import Column
from dodona.types import (
    Isolation,
    Timestamp,
)
from dodona_wire.messages.data import (
    CommitOne,
    GenerateTimestamps,
    Lookup,
    LookupReply,
    LookupVersions,
    Prepare,
    RowVersion,
    Scan,
    ScanPage,
    TabletModifications,
    TimestampRange,
    ValidatedCommit,
    VersionedRows,
    bare_commit,
)
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.reads import ReadRange
from dodona_wire.rows.keys import successor
from unit.client.protocols import (
    PATH,
    Clock,
    Play,
    key,
    new_session,
    play,
    table,
)

OTHER, START = "//u", 50
IDS = [1, 5, 99, 100, 150]
GROUPS = (
    Column("id", "int64", "ascending"),
    Column("a", "int64", lock="a"),
    Column("b", "int64", lock="b"),
)
MAIN, A, B = 1, 2, 4


def cells(target: Target, body: Request) -> Reply:
    """Cells with the rows of `IDS`, two on a page."""
    if isinstance(body, Lookup):
        assert isinstance(body.column_mask, int)
        row = (1, None)[: body.column_mask.bit_count()]
        present = {key(it) for it in IDS}
        return LookupReply(tuple([row if it in present else None for it in body.keys]))
    if isinstance(body, LookupVersions):
        version = RowVersion(Timestamp(7), 0b11, (1, None))
        return VersionedRows(tuple([(version,) for _ in body.keys]), is_paged=True)
    assert isinstance(body, Scan)
    found = [it for it in IDS if body.lower <= key(it) < body.upper]
    page = found[: min(body.row_count_max, 2)]
    resume = key(found[len(page)]) if len(page) < len(found) else None
    rows = tuple([(it, None) for it in page])
    return ScanPage(tuple(map(key, page)), rows, resume)


class Bench:
    """A session with a transaction that is serializable."""

    def __init__(self, *tables: Any, isolation: Isolation | None = "serializable") -> None:
        self.clock = Clock()
        self.session = new_session(self.clock, *(tables or (table(), table(path=OTHER))))
        self.tx: TransactionBuffer = self.begin(isolation=isolation)

    def begin(self, **options: Any) -> TransactionBuffer:
        def oracle(target: Target, body: Request) -> Reply:
            assert isinstance(body, GenerateTimestamps)
            return TimestampRange(Timestamp(START), body.count)

        begin = self.session.begin(**options, is_repeatable=True)
        return play(self.clock, begin, oracle)

    def run(self, protocol: Protocol[Any]) -> Any:
        return play(self.clock, protocol, cells)

    def look_up(self, *ids: int, path: str = PATH, columns: Any = None) -> None:
        keys = [{"id": it} for it in ids]
        at = Timestamp(START)
        self.run(self.session.lookup_rows(path, keys, columns, timestamp=at, transaction=self.tx))

    def select(self, lower: Any = None, upper: Any = None, path: str = PATH) -> None:
        at = Timestamp(START)
        read = self.session.select(path, lower, upper, timestamp=at, transaction=self.tx)
        self.run(read)

    def write(self, *ids: int, path: str = PATH, **options: Any) -> None:
        rows = [{"id": it, "value": 1} for it in ids]
        self.run(self.session.insert_rows(self.tx, path, rows, **options))

    def commit(self) -> "Play[Timestamp | None]":
        return Play(self.clock, self.session.commit(self.tx))

    def noted(self, path: str = PATH) -> list[ReadKeys]:
        assert self.tx.reads is not None
        return [*self.tx.reads.tables[path].all()]


def single(number: int, mask: int = MAIN) -> ReadRange:
    return ReadRange(key(number), successor(key(number)), mask)


def part_of(body: Request, number: int) -> TabletModifications:
    assert isinstance(body, ValidatedCommit)
    bare = bare_commit(body)
    assert isinstance(bare, CommitOne | Prepare)
    (part,) = [it for it in bare.modifications if it.tablet == number]
    return part


Read = Callable[[Session, TransactionBuffer], Protocol[Any]]
AT: dict[str, Any] = {"timestamp": Timestamp(START)}
KEYS = [{"id": 1}, {"id": 2}, {"id": 100}]
