"""Client protocols played by hand: a clock that only pauses move, and replies that a test gives.

Owns: `Play` (one protocol, one step at a time), `play` (a protocol against a function that gives
the answers), and a table with two tablets in two cells to play with.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from dodona._core.catalog.tree import MasterTransactionSession, TreeSession
from dodona._core.protocol.context import Acknowledgement
from dodona._core.protocol.steps import MASTER, Calls, Pause, Post, Protocol, Target
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona.keys import encode_key
from dodona.schema import Column, TableSchema
from dodona.types import (
    Atomicity,
    CellId,
    Key,
    Revision,
    TableSettings,
    TabletId,
    Timestamp,
    TreeTransactionId,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable, Table, Tablet
from dodona_wire.messages.data import CommitOne, GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.tree import BeginTreeTransaction, TreeTransaction

Result = TypeVar("Result")

PATH = "//t"
COLUMNS = (
    Column("id", "int64", "ascending"),
    Column("value", "int64"),
    Column("note", "utf8"),
)
SCHEMA = TableSchema.parse(COLUMNS)
PIVOT = 100
"""Keys below are in tablet 10 of cell 0, the others in tablet 11 of cell 1."""

LOST = Failure("unavailable", "no answer")
NEVER_SENT = Failure("unavailable", "not reachable", {"is_sent": False})
MOVED = Failure("tablet_moved", "not here any more")
CONFLICT = Failure("transaction_conflict", "somebody was faster")


def key(value: int) -> Key:
    return encode_key([value], ["int64"])


def tablet(
    number: int, cell: int | None, pivot: int | None, *, state: str = "mounted", revision: int = 1
) -> Tablet:
    return Tablet(
        TabletId(number),
        Key(b"") if pivot is None else key(pivot),
        state,
        None if cell is None else CellId(cell),
        Revision(revision),
    )


TWO_TABLETS = (tablet(10, 0, None), tablet(11, 1, PIVOT))


def table(
    tablets: tuple[Tablet, ...] = TWO_TABLETS,
    *,
    path: str = PATH,
    atomicity: Atomicity = "full",
    columns: tuple[Column, ...] = COLUMNS,
    its_id: int = 0,
) -> Table:
    addresses = {it.cell: f"node{it.cell}" for it in tablets if it.cell is not None}
    return Table(path, columns, atomicity, tablets, addresses, TableSettings(), its_id)


class Clock:
    """Time that stands still but for pauses."""

    def __init__(self) -> None:
        self.now_us = 1_000_000

    def instant_us(self) -> int:
        return self.now_us

    def unix_us(self) -> int:
        return 1_700_000_000_000_000 + self.now_us


def new_session(
    clock: Clock, *tables: Table, acknowledgement: Acknowledgement = "decided"
) -> Session:
    """A session that knows these tables' routes."""
    session = Session(
        instant_us=clock.instant_us,
        unix_us=clock.unix_us,
        dice=lambda: 0.5,
        acknowledgement=acknowledgement,
    )
    for it in tables:
        session.routing.learn(it)
    return session


class Play(Generic[Result]):
    """A protocol on its way. `step` is what it waits for, None once it has ended."""

    def __init__(self, clock: Clock, protocol: Protocol[Result]) -> None:
        self._clock = clock
        self._protocol = protocol
        self.step: Calls | Pause | Post | None = None
        self._results: list[Result] = []
        self._go_on(None)

    @property
    def result(self) -> Result:
        (result,) = self._results
        return result

    @property
    def calls(self) -> tuple[tuple[Target, Request], ...]:
        assert isinstance(self.step, Calls), self.step
        return self.step.requests

    @property
    def call(self) -> tuple[Target, Request]:
        (call,) = self.calls
        return call

    def answer(self, *replies: Reply) -> None:
        assert len(replies) == len(self.calls)
        self._go_on(list(replies))

    def wait(self) -> int:
        """Let the pause pass. → its length in ms."""
        assert isinstance(self.step, Pause), self.step
        pause_ms = self.step.duration_ms
        self._clock.now_us += pause_ms * 1000
        self._go_on([])
        return pause_ms

    def posted(self) -> tuple[tuple[Target, Request], ...]:
        """Take what was posted, and go on."""
        assert isinstance(self.step, Post), self.step
        requests = self.step.requests
        self._go_on([])
        return requests

    def give_up(self) -> None:
        """The caller went away."""
        self._protocol.close()

    def _go_on(self, replies: Any) -> None:
        try:
            self.step = self._protocol.send(replies)
        except StopIteration as stop:
            self.step = None
            self._results.append(stop.value)


Answer = Callable[[Target, Request], Reply]


def play(clock: Clock, protocol: Protocol[Result], answer: Answer) -> Result:
    """Play to the end; `answer` is asked for each reply."""
    return finish(Play(clock, protocol), answer)


def finish(it: Play[Result], answer: Answer) -> Result:
    """Play what is left. Bounded, so that an endless loop is noticed."""
    for _ in range(10_000):
        match it.step:
            case Calls():
                it.answer(*[answer(target, body) for target, body in it.calls])
            case Pause():
                it.wait()
            case Post():
                it.posted()
            case None:
                return it.result
    raise AssertionError("the protocol does not end")


def nobody(target: Target, body: Request) -> Reply:
    """For protocols that are to call nobody."""
    raise AssertionError(f"nobody was to be asked: {target} {body}")


def unchanged(known: Table) -> Answer:
    """The master, which says of a table what was known before. Nobody else is to be asked."""

    def answer(target: Target, body: Request) -> Reply:
        assert target == MASTER, f"nobody but the master was to be asked: {target} {body}"
        assert isinstance(body, GetTable), body
        return known

    return answer


def begin(
    clock: Clock, session: Session, start: int = 50, atomicity: Atomicity = "full"
) -> TransactionBuffer:
    """A transaction with that start timestamp."""

    def answer(target: Target, body: Request) -> Reply:
        assert isinstance(body, GenerateTimestamps)
        return TimestampRange(Timestamp(start), body.count)

    return play(clock, session.begin(atomicity), answer)


def begin_master(
    clock: Clock, tree: TreeSession, number: int = 7, timeout_ms: int = 30_000
) -> MasterTransactionSession:
    """A master transaction with that id."""

    def answer(target: Target, body: Request) -> Reply:
        assert isinstance(body, BeginTreeTransaction)
        return TreeTransaction(TreeTransactionId(number), body.timeout_ms)

    return play(clock, tree.begin(timeout_ms), answer)


def with_rows(
    clock: Clock, session: Session, *ids: int, path: str = PATH, atomicity: Atomicity = "full"
) -> TransactionBuffer:
    """A transaction that has buffered a row for each id."""
    transaction = begin(clock, session, atomicity=atomicity)
    rows = [{"id": it, "value": it} for it in ids]
    play(clock, session.insert_rows(transaction, path, rows), nobody)
    return transaction


def tablets_of(body: Request) -> list[int]:
    assert isinstance(body, CommitOne)
    return [part.tablet for part in body.modifications]
