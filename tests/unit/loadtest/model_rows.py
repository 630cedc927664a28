"""A database in memory with snapshot isolation, that lies where it is told to.

Owns: the rows of the tests of scenarios, a session of it that any recorder takes, and a gateway in
front of it. Each call is a pause, so that whoever runs sessions may have them take turns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NoReturn

from dodona._core.protocol.limits import TransactionLimits
from dodona._core.protocol.steps import Pause, Protocol
from dodona._core.writing.outcomes import ABORTED, Outcome
from dodona._core.writing.transaction import TransactionBuffer
from dodona.errors import CommitOutcomeUnknown, DodonaError, TransactionConflict
from dodona.types import SYNC_LAST_COMMITTED, Durability, LockType, Timestamp, TransactionId
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, Version
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.rest_session import RestAnswer, RestCall
from dodona_loadtest.histories.row_session import RowSession
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.live.verdict import judge
from dodona_loadtest.swarm.tally import Tally
from dodona_loadtest.workloads import Workload

Place = tuple[str, tuple[Any, ...]]
State = dict[str, Any]
FIRST: Final = 1 << 60


@dataclass
class Lies:
    """What the database does wrong, once it is told to."""

    repeats_timestamps: bool = False
    loses_writes: bool = False
    """Of an acknowledged commit the last row is not there."""
    misses_conflicts: bool = False
    reads_old: bool = False
    """A read shows what was there before the last commit but one."""
    reads_new: bool = False
    """A read at a timestamp shows what is there now."""
    hides_rows: bool = False
    """A scan of several rows lacks one."""
    doubles_writes: bool = False
    """A commit is there twice, at two timestamps."""
    refuses_all: bool = False
    """Every commit lost to another one, which nobody made."""


@dataclass
class Model:
    """All versions of all rows."""

    tables: Mapping[str, TableShape]
    lies: Lies = field(default_factory=Lies)
    is_lying: bool = False
    now: int = FIRST
    versions: dict[Place, list[tuple[int, State]]] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    def issue(self, count: int = 1) -> int:
        if not (self.is_lying and self.lies.repeats_timestamps):
            self.now += count
        return self.now

    def place(self, path: str, row: Row) -> Place:
        return path, tuple(row[column.name] for column in self.tables[path].key_columns)

    def read(self, place: Place, at: int) -> dict[str, Any] | None:
        if self.is_lying and self.lies.reads_new:
            at = SYNC_LAST_COMMITTED
        seen = [state for ts, state in self.versions.get(place, []) if ts <= at]
        if self.is_lying and self.lies.reads_old:
            seen = seen[:-2]
        if not seen:
            return None
        names = [column.name for column in self.tables[place[0]].key_columns]
        merged: State = {}
        for state in seen:
            merged |= state
        values = {column.name: None for column in self.tables[place[0]].value_columns}
        return dict(zip(names, place[1], strict=True)) | values | merged

    def scan(
        self, path: str, lower: Sequence[Any] | None, upper: Sequence[Any] | None, at: int
    ) -> list[dict[str, Any]]:
        places = sorted(place for place in self.versions if place[0] == path)
        first, end = tuple(lower or ()), None if upper is None else tuple(upper)
        inside = [it for it in places if it[1] >= first and (end is None or it[1] < end)]
        rows = [row for it in inside if (row := self.read(it, at)) is not None]
        return rows[:-1] if self.is_lying and self.lies.hides_rows and len(rows) > 1 else rows

    def commit(self, writes: Iterable[tuple[Place, State]], start: int | None) -> int:
        writes = list(writes)
        if self.is_lying and self.lies.refuses_all:
            self._refuse(writes[0][0], 1)
        is_careless = self.is_lying and self.lies.misses_conflicts
        for place, _ in writes:
            newest = max((ts for ts, _ in self.versions.get(place, [])), default=0)
            if start is not None and newest > start and not is_careless:
                self._refuse(place, newest)
        timestamp = self.issue()
        if self.is_lying and self.lies.doubles_writes:
            for place, state in writes:
                self.versions.setdefault(place, []).append((timestamp, state))
            timestamp = self.issue()
        if self.is_lying and self.lies.loses_writes:
            writes.pop()
        for place, state in writes:
            self.versions.setdefault(place, []).append((timestamp, state))
        return timestamp

    def _refuse(self, place: Place, winner: int) -> NoReturn:
        names = [column.name for column in self.tables[place[0]].key_columns]
        key = dict(zip(names, place[1], strict=True))
        raise TransactionConflict("lost", key=key, winner_timestamp=winner)

    def write_of(self, path: str, row: Row, update: bool) -> tuple[Place, State]:
        names = [it.name for it in self.tables[path].value_columns if not update or it.name in row]
        return self.place(path, row), {name: row.get(name) for name in names}

    def dump(self) -> Iterator[Version]:
        for place, versions in sorted(self.versions.items()):
            table = self.tables[place[0]]
            names = [column.name for column in table.key_columns]
            row = table.row_key(dict(zip(names, place[1], strict=True)))
            for timestamp, state in versions:
                yield Version(row, timestamp, tuple(sorted(state.items())))


class ModelSession:
    """A `RowSession` of it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._writes: list[tuple[Place, State]] = []

    def generate_timestamp(self, count: int = 1) -> Protocol[Timestamp]:
        yield Pause(1)
        return Timestamp(self._model.issue(count) - count + 1)

    def begin(self) -> Protocol[TransactionBuffer]:
        yield Pause(1)
        self._writes = []
        start = Timestamp(self._model.issue())
        return TransactionBuffer(
            start, atomicity="full", durability="sync", begun_us=0, limits=TransactionLimits()
        )

    def lookup_rows(
        self,
        path: str,
        keys: Sequence[Row],
        columns: Sequence[str] | None = None,
        *,
        keep_missing: bool,
        timestamp: Timestamp,
    ) -> Protocol[list[Any]]:
        yield Pause(1)
        assert keep_missing
        rows = [self._model.read(self._model.place(path, key), timestamp) for key in keys]
        if columns is None:
            return rows
        return [None if row is None else {it: row[it] for it in columns} for row in rows]

    def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        *,
        timestamp: Timestamp,
    ) -> Protocol[list[Row]]:
        yield Pause(1)
        return list(self._model.scan(path, lower, upper, timestamp))

    def write_rows(
        self, path: str, rows: Sequence[Row], update: bool, durability: Durability
    ) -> Protocol[Timestamp | None]:
        yield Pause(1)
        writes = [self._model.write_of(path, row, update) for row in rows]
        return Timestamp(self._model.commit(writes, None))

    def insert_rows(
        self,
        buffer: TransactionBuffer,
        path: str,
        rows: Sequence[Row],
        update: bool,
        aggregate: bool,
        lock_type: LockType,
    ) -> Protocol[None]:
        self._writes += [self._model.write_of(path, row, update) for row in rows]
        yield from ()

    def commit(self, buffer: TransactionBuffer) -> Protocol[Timestamp | None]:
        yield Pause(1)
        assert buffer.start_timestamp is not None
        return Timestamp(self._model.commit(self._writes, buffer.start_timestamp))

    def erase_rows(self, *_: Any) -> Protocol[Timestamp | None]:
        raise NotImplementedError

    def delete_rows(self, *_: Any) -> Protocol[None]:
        raise NotImplementedError

    def lock_rows(self, *_: Any) -> Protocol[None]:
        raise NotImplementedError

    def outcome(self, transaction: TransactionId, *, settle: bool = False) -> Protocol[Outcome]:
        raise NotImplementedError


class ModelGateway:
    """REST in front of a model. `loses` says of each call whether its answer is lost, and how: what
    was asked for may have been done before."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.calls: list[RestCall] = []
        self.loses: Callable[[RestCall], str] = lambda call: ""
        self._writes: dict[str, list[tuple[Place, State]]] = {}

    def __call__(self, call: RestCall) -> RestAnswer:
        self.calls.append(call)
        how = self.loses(call)
        if how == "request":
            return RestAnswer(0, None)
        try:
            answer = RestAnswer(200, self._answer(call))
        except DodonaError as error:
            told = {"kind": error.kind, "detail": error.message, "attributes": error.attributes}
            answer = RestAnswer(error.status, told)
        return RestAnswer(0, None) if how == "answer" else answer

    @property
    def open_count(self) -> int:
        return len(self._writes)

    def _answer(self, call: RestCall) -> Any:
        model, body = self.model, call.body or {}
        match call.path.partition("?")[0].split("/")[2:]:
            case ["timestamps"]:
                return {"first": model.issue(body["count"]) - body["count"] + 1}
            case ["rows", "lookup"]:
                return self._look_up(body, body["timestamp"])
            case ["rows", "select"]:
                rows = model.scan(body["table"], body["lower"], body["upper"], body["timestamp"])
                limit = 7  # pages
                key = [column.name for column in model.tables[body["table"]].key_columns]
                after = [rows[limit][name] for name in key] if len(rows) > limit else None
                return {"rows": rows[:limit], "next": after, "timestamp": None}
            case ["rows", "insert"]:
                writes = [
                    model.write_of(body["table"], row, body["update"]) for row in body["rows"]
                ]
                return {"timestamp": model.commit(writes, None)}
            case ["transactions"]:
                start = model.issue()
                self._writes[f"t{start}"] = []
                return {"transaction": f"t{start}", "start_timestamp": start}
            case ["transactions", name, *rest]:
                return self._within(name, rest, body)
        raise AssertionError(call)

    def _writes_of(self, body: Any) -> list[tuple[Place, State]]:
        write_of = self.model.write_of
        return [write_of(body["table"], row, body["update"]) for row in body["rows"]]

    def _look_up(self, body: Any, at: int) -> Any:
        place, read = self.model.place, self.model.read
        return {"rows": [read(place(body["table"], key), at) for key in body["keys"]]}

    def _within(self, name: str, rest: Sequence[str], body: Any) -> Any:
        start = int(name[1:])
        match rest:
            case ["lookup"]:
                return self._look_up(body, start)
            case ["insert"]:
                self._writes[name] += self._writes_of(body)
                return {}
            case ["abort"]:
                self._writes.pop(name, None)
                return {}
            case ["commit"]:
                return {"timestamp": self._commit(name, start)}
            case []:
                found = self.model.outcomes.get(start, ABORTED)
                return {"state": found.state, "timestamp": found.timestamp}
        raise AssertionError(rest)

    def _commit(self, name: str, start: int) -> int | None:
        if name in self._writes:
            try:
                timestamp = Timestamp(self.model.commit(self._writes.pop(name), start))
            except TransactionConflict:
                self.model.outcomes[start] = ABORTED
                raise
            self.model.outcomes[start] = Outcome("committed", timestamp)
        found = self.model.outcomes.get(start, ABORTED)
        if found.state != "committed":
            raise CommitOutcomeUnknown("gone", transaction=name)
        return found.timestamp


@dataclass
class Trial:
    """Some sessions that take turns, and their history."""

    workload: Workload
    model: Model
    seed: int = 1
    history: History = field(default_factory=History)
    tally: Tally = field(default_factory=Tally)
    """Of the steps that began and ended while it lied."""
    instant_us: int = 0

    def recorder(self, name: str, rows: RowSession) -> Recorder:
        return Recorder(rows, name, self.history, Random(f"{self.seed} {name}"), self._tick)

    def _tick(self) -> int:
        self.instant_us += 1
        return self.instant_us

    def run(self, make: Callable[[Model], RowSession], sessions: int, turns: int) -> None:
        """Fill the tables; then steps, of which lies begin in the second half; then the last look,
        which is honest."""
        operator = self.recorder("operator", ModelSession(self.model))
        assert exhaust(self.workload.set_up(operator))
        random = Random(self.seed)
        recorders = [self.recorder(f"s{number}", make(self.model)) for number in range(sessions)]
        running = [self._step(db) for db in recorders]
        for turn in range(turns):
            self.model.is_lying = turn >= turns // 2
            number = random.randrange(sessions)
            if is_over(running[number]):
                running[number] = self._step(recorders[number])
        self.model.is_lying = False
        for left in running:
            while not is_over(left):
                pass
        assert exhaust(self.workload.touch(operator))
        exhaust(self.workload.conclude(operator))

    def _step(self, db: Recorder) -> Protocol[None]:
        """One operation, told as users tell it."""
        is_told = self.model.is_lying
        db.refusal, refusal = None, None
        try:
            yield from self.workload.step(db)
        except DodonaError as error:
            refusal = error.kind
        if is_told and self.model.is_lying:
            self.tally.note(db.doing, 1, refusal or db.refusal)

    def judge(self) -> list[Violation]:
        return judge(self.history, self.model.dump(), self.workload)


def is_over(protocol: Protocol[Any]) -> bool:
    """After one more turn. What its session was refused with is in the history."""
    try:
        protocol.send(None)  # type: ignore[arg-type]  # it may not have begun
    except StopIteration:
        return True
    return False


def exhaust(protocol: Protocol[Any]) -> Any:
    """Its result."""
    try:
        while True:
            protocol.send(None)  # type: ignore[arg-type]
    except StopIteration as stop:
        return stop.value
