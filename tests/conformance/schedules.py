"""Schedules of a few transactions on a few rows, in all interleavings of their steps.

Owns: the steps that a script is made of, the order in which one schedule takes them, and what is
recorded of it. A transaction begins in its first step. A step that has to wait for another
transaction does not hold up the schedule: what its own transaction does next waits behind it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import NoneType
from typing import Any, Final, Literal

from conformance.backends import Backend, Started
from conformance.stepping import one_by_one, requests_of
from conformance.tables import Schema
from dodona._core.protocol.steps import Protocol
from dodona._core.protocol.steps import Step as Request
from dodona._core.writing.transaction import TransactionBuffer
from dodona.errors import DodonaError, TransactionConflict
from dodona.types import Atomicity, Isolation, Timestamp
from dodona_wire.messages.families import Reply
from suite.levels import some

CommitStyle = Literal["whole", "phases", "requests"]
"""What of a commit is one step: all of it, all prepares at once, or each request."""

SCHEMA: Final[Schema] = [
    {"name": "row", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "int64"},
]
X, Y, Z, U = 1, 102, 3, 104
"""Rows: x and z are before the pivot key of two tablets, y and u behind it."""
APART: Final[list[list[Any]]] = [[], [100]]
INITIAL: Final = {X: 10, Y: 20}

STEP_MS_MAX: Final = 20
"""Of virtual time: whoever is not done with a step by then waits for somebody."""


# ---- scripts


@dataclass(slots=True)
class Account:
    """What a transaction saw and came to."""

    reads: list[dict[int, Any]] = field(default_factory=list)
    """What each reading step saw, by row."""
    is_committed: bool = False
    """Or it came to its end with nothing to commit."""
    error: DodonaError | None = None
    """What it was refused with."""


class Actor(Account):
    """One transaction of a schedule."""

    def __init__(self, place: "Place", script: "Sequence[Step]") -> None:
        super().__init__()
        self.place = place
        self._script = iter(script)
        self._buffer: TransactionBuffer | None = None
        self._commit: Protocol[Timestamp | None] | None = None
        self._request: Request | None = None
        self._running: Started[list[Reply] | None] | None = None
        self._permits = 0
        self.is_over = False

    def buffer(self) -> Protocol[TransactionBuffer]:
        if self._buffer is None:
            begin, isolation = self.place.session.begin, self.place.isolation
            self._buffer = yield from begin(self.place.atomicity, isolation=isolation)
        return self._buffer

    def end(self) -> TransactionBuffer:
        """What is left of it once it is over."""
        assert self.is_over
        assert self._buffer is not None
        return self._buffer

    # One step after the other, each when the schedule permits it

    def permit(self) -> None:
        self._permits += 1
        self.go_on()

    @property
    def is_idle(self) -> bool:
        return self.is_over or (self._running is None and self._permits == 0)

    def go_on(self) -> None:
        """Note that a step is done, and begin the next one that is permitted."""
        if self._running is not None:
            if not self._running.is_over:
                return
            replies, self._running = self._running.result(), None
            if self._commit is not None:
                self._resume_commit(replies)
        if self._permits and not self.is_over and self._running is None:
            self._permits -= 1
            self._begin_next()

    def _begin_next(self) -> None:
        if self._request is not None:
            self._start(_carry_out(self._request))
            return
        step = next(self._script, None)
        if step is None:
            self.is_over = self.is_committed = True
        elif step is not commit or self.place.style == "whole":
            self._start(self._whole(step))
        else:
            self._begin_commit()

    def _start(self, protocol: "Protocol[list[Reply] | None]") -> None:
        self._running = self.place.start(protocol)

    def _whole(self, step: "Step") -> Protocol[None]:
        try:
            yield from step(self)
        except DodonaError as error:
            self._refuse(error)

    def _refuse(self, error: DodonaError) -> None:
        self.error = error
        self.is_over = True

    def _begin_commit(self) -> None:
        assert self._buffer is not None
        self._commit = self.place.session.commit(self._buffer)
        if self.place.style == "requests":
            self._commit = one_by_one(self._commit)
        self._resume_commit(None)

    def _resume_commit(self, replies: list[Reply] | None) -> None:
        assert self._commit is not None
        try:
            self._request = next(self._commit) if replies is None else self._commit.send(replies)
        except DodonaError as error:
            self._refuse(error)
        except StopIteration:
            self.is_over = self.is_committed = True
        else:
            if replies is None or not requests_of(self._request):
                self._start(_carry_out(self._request))  # the first request is this step's own


def _carry_out(request: Request) -> Protocol[list[Reply] | None]:
    return (yield request)


Step = Callable[[Actor], Protocol[None]]
NewValue = int | Callable[[dict[int, int]], int]
"""A value, or what to make of that which the transaction read last."""


def read(*rows: int) -> Step:
    """Look these rows up."""

    def step(actor: Actor) -> Protocol[None]:
        buffer = yield from actor.buffer()
        keys = [{"row": row} for row in rows]
        session, path = actor.place.session, actor.place.path
        asked = path, keys, None, False, buffer.read_timestamp()
        found = yield from session.lookup_rows(*asked, transaction=buffer)
        actor.reads.append({row["row"]: row["value"] for row in found})

    return step


def read_where(is_wanted: Callable[[int], bool]) -> Step:
    """Scan all rows for those whose value is wanted."""

    def step(actor: Actor) -> Protocol[None]:
        buffer = yield from actor.buffer()
        session, path = actor.place.session, actor.place.path
        asked = path, None, None, None, buffer.read_timestamp()
        found = yield from session.select(*asked, transaction=buffer)
        actor.reads.append({row["row"]: row["value"] for row in found if is_wanted(row["value"])})

    return step


def write(values: dict[int, NewValue]) -> Step:
    """Buffer these rows."""

    def step(actor: Actor) -> Protocol[None]:
        rows = [
            {"row": row, "value": value if isinstance(value, int) else value(actor.reads[-1])}
            for row, value in values.items()
        ]
        buffer = yield from actor.buffer()
        yield from actor.place.session.insert_rows(buffer, actor.place.path, rows)

    return step


def change_all(change: Callable[[int], int]) -> Step:
    """Buffer a new value for every row that the transaction read last."""

    def step(actor: Actor) -> Protocol[None]:
        rows = [{"row": row, "value": change(value)} for row, value in actor.reads[-1].items()]
        buffer = yield from actor.buffer()
        yield from actor.place.session.insert_rows(buffer, actor.place.path, rows)

    return step


def delete_read() -> Step:
    """Buffer the deletion of every row that the transaction read last."""

    def step(actor: Actor) -> Protocol[None]:
        keys = [{"row": row} for row in actor.reads[-1]]
        buffer = yield from actor.buffer()
        yield from actor.place.session.delete_rows(buffer, actor.place.path, keys)

    return step


def lock(*rows: int) -> Step:
    """Buffer strong read locks."""

    def step(actor: Actor) -> Protocol[None]:
        keys = [{"row": row} for row in rows]
        buffer = yield from actor.buffer()
        yield from actor.place.session.lock_rows(
            buffer, actor.place.path, keys, None, "shared_strong"
        )

    return step


def at_once(*steps: Step) -> Step:
    """Several steps as one: what is only buffered in between is seen by nobody."""

    def step(actor: Actor) -> Protocol[None]:
        for each in steps:
            yield from each(actor)

    return step


def begin(actor: Actor) -> Protocol[None]:
    """Its snapshot is of now, and not of its first reading step."""
    yield from actor.buffer()


def commit(actor: Actor) -> Protocol[None]:
    buffer = yield from actor.buffer()
    yield from actor.place.session.commit(buffer)
    actor.is_over = actor.is_committed = True


def abort(actor: Actor) -> Protocol[None]:
    buffer = yield from actor.buffer()
    buffer.abort()
    actor.is_over = True


# ---- schedules


def interleavings(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All orders of so many steps of each transaction, each transaction's own order kept."""
    if not any(lengths):
        yield ()
        return
    for index, left in enumerate(lengths):
        if left:
            rest = [*lengths[:index], left - 1, *lengths[index + 1 :]]
            yield from ((index, *order) for order in interleavings(rest))


@dataclass(frozen=True, slots=True)
class Run:
    """What one schedule came to."""

    transactions: tuple[Account, ...]
    final: dict[int, int]

    @property
    def are_all_committed(self) -> bool:
        return all(it.is_committed for it in self.transactions)


@dataclass(slots=True)
class Place:
    """Where schedules run: one table, reset before each of them."""

    backend: Backend
    path: str
    style: CommitStyle
    atomicity: Atomicity = "full"
    isolation: Isolation | None = None
    session: Any = field(init=False)

    def __post_init__(self) -> None:
        self.session = self.backend.db._session

    def start(self, protocol: "Protocol[list[Reply] | None]") -> "Started[list[Reply] | None]":
        if self.style == "whole":  # then no step waits for another's
            return _Done(self.backend.db._driver.run(protocol))
        return self.backend.start(self.backend.db, protocol)

    def runs(self, scripts: Sequence[Sequence[Step]]) -> Iterator[Run]:
        """One run for each interleaving. Those by requests are thousands."""
        orders = interleavings([self._length(script) for script in scripts])
        for order in some(orders, one_in=10) if self.style == "requests" else orders:
            yield self._run(scripts, order)

    def _length(self, script: Sequence[Step]) -> int:
        commit_length = {"whole": 1, "phases": 2, "requests": 3}[self.style]
        return sum(commit_length if step is commit else 1 for step in script)

    def _run(self, scripts: Sequence[Sequence[Step]], order: Iterable[int]) -> Run:
        db, path = self.backend.db, self.path
        with db.begin(self.atomicity) as transaction:
            transaction.delete_rows(path, [{"row": row} for row in (Z, U)])
            rows = [{"row": row, "value": value} for row, value in INITIAL.items()]
            transaction.insert_rows(path, rows)
        actors = tuple(Actor(self, script) for script in scripts)
        for index in order:
            actors[index].permit()
            self.settle(actors, STEP_MS_MAX)
        self.settle(actors, STEP_MS_MAX)
        while not all(actor.is_over for actor in actors):
            for actor in actors:
                actor.permit()
            self.settle(actors, STEP_MS_MAX)
        assert all(type(it.error) in (NoneType, TransactionConflict) for it in actors)
        return Run(actors, {row["row"]: row["value"] for row in db.select(path)})

    def settle(self, actors: Sequence[Actor], limit_ms: int) -> None:
        """Let them go on until nobody has anything to do, but no longer than this."""
        for _ in range(limit_ms):
            for actor in actors:
                actor.go_on()
            if all(actor.is_idle for actor in actors):
                return
            self.backend.let_pass(1)


class _Done:
    """A step that was over at once."""

    def __init__(self, replies: list[Reply] | None) -> None:
        self._replies = replies
        self.is_over = True

    def result(self) -> list[Reply] | None:
        return self._replies


def values_read(account: Account) -> list[int]:
    """All values that the transaction saw, in order."""
    return list(chain.from_iterable(seen.values() for seen in account.reads))
