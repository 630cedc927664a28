"""Random transactions of every kind at the same time, against a model that runs them one by one.

Owns: the model of what a transaction does to rows and of which locks exclude each other. Meanwhile
the cells restart, and the table is resharded or frozen for a while. Checked are the state after
every commit, what every transaction read, that no two committed transactions exclude each other,
and that none met a conflict without another that excludes it.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest

from conformance.backends import Simulated
from conformance.schedules import Actor, Place, Step, begin, commit
from conformance.tables import KEY, Row, Schema
from dodona._core.protocol.steps import Protocol
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona.client import Client
from dodona.errors import TransactionConflict
from dodona.types import LockType, Timestamp
from suite.levels import share

SCHEMA: Final[Schema] = [
    KEY,
    {"name": "a", "type": "int64", "lock": "a", "aggregate": "sum"},
    {"name": "b", "type": "int64", "lock": "b"},
    {"name": "m", "type": "int64"},
]
KEYS: Final = (1, 2, 100, 101)
COLUMNS: Final = ("a", "b", "m")
ROUNDS: Final = 40
TRANSACTIONS: Final = 5
RESTART_RATE: Final = 0.005
FORMATS_EACH: Final = 8
"""Of so many timestamps one is read in every way."""

Groups = frozenset[str]
"""Lock groups, by the column that is in each; m is in the main one."""
State = dict[int, Row]
NONE: Final[Groups] = frozenset()
ALL: Final[Groups] = frozenset(COLUMNS)


def _checked(groups: Groups) -> Groups:
    """The groups that whoever takes these has to look at."""
    if not groups:
        return NONE
    return ALL if "m" in groups else groups | {"m"}


@dataclass(slots=True)
class Locks:
    """What one transaction takes of one row."""

    exclusive: Groups = NONE
    shared_write: Groups = NONE
    strong: Groups = NONE
    weak: Groups = NONE

    def exclude(self, late: "Locks", *, is_at_once: bool) -> bool:
        """Whether a later one must not take its own; `is_at_once`: while these are held."""
        write, together = _checked(late.exclusive), _checked(late.shared_write)
        reading = _checked(late.strong | late.weak)
        held = self.strong | self.weak if is_at_once else self.strong
        return bool(
            self.exclusive & (write | together | reading)
            or held & (write | together)
            or self.shared_write & (write | reading)
        )


@dataclass(slots=True)
class Change:
    """One call: which rows, how."""

    key: int
    way: str
    values: Row = field(default_factory=dict)
    lock_type: LockType = "exclusive"
    groups: tuple[str, ...] = ()

    def do(self, state: State) -> None:
        row = state.get(self.key)
        match self.way:
            case "delete":
                state.pop(self.key, None)
            case "lock":
                pass
            case "insert":
                state[self.key] = dict.fromkeys(COLUMNS) | self.values
            case "update":
                state[self.key] = (row or dict.fromkeys(COLUMNS)) | self.values
            case "change":
                before = row or dict.fromkeys(COLUMNS)
                total = (before["a"] or 0) + self.values["a"]
                state[self.key] = before | self.values | {"a": total}

    def step(self) -> Step:
        def step(actor: Actor) -> Protocol[None]:
            buffer = yield from actor.buffer()
            yield from self.on(actor.place.session, buffer, actor.place.path)

        return step

    def on(self, session: Session, buffer: TransactionBuffer, path: str) -> Protocol[None]:
        """Buffer it."""
        key = {"k": self.key}
        match self.way:
            case "delete":
                yield from session.delete_rows(buffer, path, [key])
            case "lock":
                groups = None if "m" in self.groups else self.groups
                yield from session.lock_rows(buffer, path, [key], groups, self.lock_type)
            case _:
                yield from session.insert_rows(
                    buffer,
                    path,
                    [key | self.values],
                    update=self.way != "insert",
                    aggregate=self.way == "change",
                    lock_type=self.lock_type,
                )


def _locks_of(changes: list[Change], before: State) -> dict[int, Locks]:
    """By key. Writes of one row become one write first; locks without data stay what they are, but
    for those of a row that was not there before, which is locked as a whole."""
    locks: dict[int, Locks] = {}
    for key in {change.key for change in changes}:
        mine = locks[key] = Locks()
        written: Groups = NONE
        alone: Groups = NONE
        is_deleted = False
        for change in (it for it in changes if it.key == key):
            groups = frozenset(change.groups) if key in before else ALL
            match change.way, change.lock_type:
                case "delete", _:
                    written, alone, is_deleted = frozenset("m"), frozenset("m"), True
                case "lock", "exclusive":
                    mine.exclusive |= groups
                case "lock", "shared_write":
                    mine.shared_write |= groups
                case "lock", "shared_strong":
                    mine.strong |= groups
                case "lock", _:
                    mine.weak |= groups
                case _:
                    groups = ALL if change.way == "insert" else frozenset(change.values)
                    if is_deleted:
                        written, alone, is_deleted = ALL, ALL, False
                    written |= groups
                    alone |= groups if change.lock_type == "exclusive" else NONE
        mine.exclusive |= alone
        mine.shared_write |= written - alone
    return locks


def _exclude(first: "Done", second: "Done", *, is_at_once: bool) -> bool:
    ours, theirs = [_locks_of(it.changes, it.saw or {}) for it in (first, second)]
    return any(
        ours[key].exclude(theirs[key], is_at_once=is_at_once) for key in ours if key in theirs
    )


def _draw(dice: Random) -> Change:
    key = dice.choice(KEYS)
    way = dice.choice(("insert", "update", "update", "change", "change", "delete", "lock", "lock"))
    lock_type: LockType = dice.choice(("exclusive", "shared_write"))
    match way:
        case "delete":
            return Change(key, way)
        case "lock":
            types: tuple[LockType, ...] = (
                *("exclusive", "shared_write"),
                *("shared_strong", "shared_weak"),
            )
            groups = dice.choice((("a",), ("b",), ("a", "b"), ("m",)))
            return Change(key, way, lock_type=dice.choice(types), groups=groups)
        case "change":
            return Change(key, way, {"a": dice.randrange(1, 100)}, lock_type)
    columns = dice.sample(COLUMNS, dice.randint(1, 3))
    return Change(key, way, {name: dice.randrange(1000) for name in columns}, lock_type)


def _read_all(actor: Actor) -> Protocol[None]:
    at = (yield from actor.buffer()).read_timestamp()
    found = yield from actor.place.session.select(actor.place.path, None, None, None, at)
    actor.reads = [{row["k"]: dict(row) for row in found}]


@dataclass(slots=True)
class Done:
    """One transaction that is over."""

    changes: list[Change]
    start: int
    commit: int | None
    saw: State | None
    has_lost: bool


def _run_round(place: Place, dice: Random) -> list[Done]:
    """Some transactions, each request of each at a random moment."""
    drawn = [[_draw(dice) for _ in range(dice.randint(1, 4))] for _ in range(TRANSACTIONS)]
    scripts = [[begin, _read_all, *[it.step() for it in changes], commit] for changes in drawn]
    actors = [Actor(place, script) for script in scripts]
    while left := [actor for actor in actors if not actor.is_over]:
        dice.choice(left).permit()
        place.settle(actors, dice.choice((0, 1, 3, 20)))
        if dice.random() < RESTART_RATE:
            place.backend.restart_cells()
    return [_done(place.backend.db, *it) for it in zip(drawn, actors, strict=True)]


def _done(db: Client, changes: list[Change], actor: Actor) -> Done:
    buffer = actor.end()
    assert buffer.start_timestamp is not None
    assert buffer.id is not None
    committed_at = buffer.commit_timestamp
    if buffer.is_committing:  # its client was not told
        committed_at = db.outcome(buffer.id).timestamp
    has_lost = isinstance(actor.error, TransactionConflict)
    seen = actor.reads[0] if actor.reads else None
    return Done(changes, buffer.start_timestamp, committed_at, seen, has_lost)


def _disturb(backend: Simulated, dice: Random) -> None:
    """What must change nothing that anybody can read, then or at any time before."""
    db = backend.db
    match dice.choice(("nothing", "nothing", "restart", "reshard", "freeze", "remount")):
        case "restart":
            backend.restart_cells()
        case "reshard":
            pivots = sorted(dice.sample((1, 2, 50, 100, 101), dice.randint(0, 2)))
            db.unmount_table("//t")
            db.reshard_table("//t", pivot_keys=[[], *([pivot] for pivot in pivots)])
            db.mount_table("//t")
        case "freeze":
            db.freeze_table("//t")
            db.unfreeze_table("//t")
        case "remount":
            db.remount_table("//t")


@pytest.mark.parametrize("seed", share(range(12), one_in=3))
def test_a_history_matches_a_model_that_runs_committed_transactions_one_by_one(seed: int) -> None:
    backend, dice = Simulated(), Random(seed)
    attributes = {"enable_shared_write_locks": True}
    backend.db.create_table(
        "//t", SCHEMA, pivot_keys=[[], [100]], mount=True, attributes=attributes
    )
    place = Place(backend, "//t", "requests")
    rounds = []
    for _ in range(ROUNDS):
        rounds.append(_run_round(place, dice))
        _disturb(backend, dice)
    everything = [it for round_ in rounds for it in round_]
    _check_states(backend, everything)
    for round_ in rounds:
        _check_conflicts(round_)
    committed_count = sum(it.commit is not None for it in everything)
    assert len(everything) // 4 < committed_count < len(everything)


def _check_states(backend: Simulated, done: list[Done]) -> None:
    state: State = {}
    events: list[tuple[int, Done]] = [(it.start, it) for it in done]
    events += [(it.commit, it) for it in done if it.commit is not None]
    for at, it in sorted(events, key=lambda event: event[0]):
        if at == it.start:
            seen = it.saw or {}
            assert it.saw is None or {key: _without_key(row) for key, row in seen.items()} == state
            continue
        for change in it.changes:
            change.do(state)
        found = list(backend.db.select("//t", timestamp=Timestamp(at)))
        assert {row["k"]: _without_key(row) for row in found} == state
        if at % FORMATS_EACH == 0:
            _check_formats(backend.db, Timestamp(at), found)


def _check_formats(db: Client, at: Timestamp, rows: list[Row]) -> None:
    """Every kind of read at one timestamp gives the same rows."""
    keys = [{"k": key} for key in KEYS]
    assert db.lookup_rows("//t", keys, timestamp=at) == rows
    assert db.read_arrow("//t", timestamp=at).to_pylist() == rows
    assert db.query("SELECT * FROM [//t] ORDER BY k", timestamp=at).to_pylist() == rows
    histories: list[Any] = db.lookup_versions("//t", keys, timestamp=at, keep_missing=True)
    living = [it.key["k"] for it in histories if it is not None and _is_there(it)]
    assert living == [row["k"] for row in rows]


def _is_there(history: Any) -> bool:
    written, deleted = history.write_timestamps[:1], history.delete_timestamps[:1]
    return bool(written) and written > deleted


def _without_key(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "k"}


def _check_conflicts(done: list[Done]) -> None:
    for it in done:
        others = [other for other in done if other is not it]
        if it.has_lost:
            is_right = any(_exclude(other, it, is_at_once=True) for other in others)
            assert is_right, "refused for nobody"
        for other in others:
            if it.commit and other.commit and it.start < other.commit < it.commit:
                assert not _exclude(other, it, is_at_once=False)


@pytest.mark.parametrize("seed", share(range(6), one_in=2))
def test_reads_of_own_writes_equal_the_reads_after_the_commit(seed: int) -> None:
    db, dice = Simulated().db, Random(seed)
    attributes = {"enable_shared_write_locks": True}
    db.create_table("//t", SCHEMA, pivot_keys=[[], [100]], mount=True, attributes=attributes)
    keys = [{"k": key} for key in KEYS]
    state: State = {}
    for _ in range(20):
        transaction = db.begin(read_own_writes=True)
        for change in (_draw(dice) for _ in range(5)):
            change.do(state)
            db._driver.run(change.on(db._session, transaction._buffer, "//t"))
            rows = [{"k": key} | state[key] for key in KEYS if key in state]
            assert list(transaction.select("//t")) == rows
            assert transaction.lookup_rows("//t", keys) == rows
        query = "SELECT * FROM [//t] ORDER BY k"
        assert transaction.query(query).to_pylist() == rows
        transaction.commit()
        assert list(db.select("//t")) == rows
