"""Whatever clients send, a cell goes on, answers everything, and its log tells the same story.

Two cells get well-typed messages whose every field may be anything, as they come off the wire:
mostly near enough to sense to go through, in any order, with lost cell messages, time and restarts
between. Not the answers are looked at here but that there is one, and that it can be sent.
"""

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.schema import TableSchema
from dodona.types import (
    ASYNC_LAST_COMMITTED,
    KEY_MAX,
    MAX_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    CellId,
    Key,
    LockType,
    ReaderId,
    Revision,
    SpecialWrites,
    TableSettings,
    TabletId,
    Timestamp,
    WireMask,
    WireWrite,
)
from dodona_tablets.core.records import Record
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import TabletAssignment
from dodona_wire.messages.codec import decode_requests, encode_frame
from dodona_wire.messages.conditions import RowCondition, TabletConditions
from dodona_wire.messages.data import (
    AskOutcome,
    CommitOne,
    Committed,
    ConditionalCommit,
    CountVersions,
    DataRequest,
    Decide,
    HoldSnapshot,
    Lookup,
    LookupVersions,
    Prepare,
    RowLock,
    Scan,
    ScanArrow,
    ScanVersions,
    SplitTablet,
    TabletModifications,
    WriteArrow,
    WriteNonAtomic,
)
from dodona_wire.rows.arrow import arrow_from_rows
from dodona_wire.rows.conditions import is_same_value, required_values
from suite.levels import examples
from unit.tablets.cells import SECOND, Bench, assignment

COLUMNS = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "a", "type": "int64"},
    {"name": "b", "type": "string", "lock": "group_b", "aggregate": "max"},
    {"name": "c", "type": "double", "lock": "group_c", "aggregate": "sum"},
    {"name": "d", "type": "any"},
]
NARROW = TableSchema.parse(COLUMNS)
WIDE = TableSchema.parse([*COLUMNS, *({"name": f"v{i}", "type": "int64"} for i in range(70))])
SCHEMAS = {1: NARROW, 2: NARROW, 3: WIDE, 4: WIDE}
TYPED = TableSchema.parse(
    [
        *COLUMNS,
        {"name": "e", "type": "date"},
        {"name": "f", "type": "decimal(10,2)"},
        {"name": "g", "type": "struct<x:int64,y:list<timestamp>>"},
        {"name": "h", "type": "dict<utf8,uuid>"},
        {"name": "i", "type": "int8"},
        {"name": "j", "type": "boolean"},
    ]
)
"""A table whose values have other forms in an error than in a cell."""
TYPED_ROW = {
    "a": 1,
    "b": b"x",
    "c": 0.5,
    "d": {"x": [1]},
    "e": date(2026, 7, 1),
    "f": Decimal("1.50"),
    "g": {"x": 1, "y": [datetime(2026, 7, 1, tzinfo=UTC)]},
    "h": {"x": UUID(int=1)},
    "i": 3,
    "j": True,
}
BATCHES = {
    schema: arrow_from_rows(
        schema,
        schema.full_mask,
        [NARROW.key_of({"id": 1})],
        [(1, b"b", 0.5, {"x": [None]}, *range(len(schema.value_columns) - 4))],
    )
    for schema in (NARROW, WIDE)
}
BASE = 1_000_000 * SECOND
CELLS = (CellId(0), CellId(1))

KEYS = [
    *[NARROW.key_of({"id": number}) for number in (1, 2, 3, 1000)],
    NARROW.key_of({"id": None}),
    Key(b""),
    Key(b"\x03nonsense"),
    KEY_MAX,
]
ODD_NUMBERS = [-(1 << 63), -1, 0, 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1]
ODD_TIMESTAMPS = [*ODD_NUMBERS, SYNC_LAST_COMMITTED, ASYNC_LAST_COMMITTED, MAX_TIMESTAMP]
ODD_VALUES: list[Any] = [
    *ODD_NUMBERS, None, True, 0.5, float("nan"), float("inf"), "a", "\x00é", b"", b"b", b"\xff",
    [], {}, [[1], "x"], {"x": None}, msgspec.msgpack.Ext(1, b""), {1: 2},
    datetime(1, 1, 1, tzinfo=UTC),
]  # fmt: skip
LOCK_TYPES: list[LockType] = ["shared_weak", "shared_strong", "exclusive", "shared_write"]
PARTICIPANTS = [(0, 1), (0, 1), (1, 0), (0,), (1,), (0, 1, 7), (7, 0), (0, 0), ()]
STEPS_MAX = 60
STEPS = ("oracle", "deliver", "lose", "restart", "second", "minute", "remount", "freeze")


class Client:
    """Makes up one request: each field fits mostly, and now and then is anything of its type."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def cells(self) -> list[CellId]:
        """Where its steps go."""
        return self._random.choices(CELLS, k=self._random.randrange(STEPS_MAX))

    def step(self) -> str | DataRequest:
        if self._is_seldom(4):
            return self._random.choice(STEPS)
        request: DataRequest = self._random.choice([*[self._commit] * 5, self._write, self._read])()
        return request

    def _is_seldom(self, one_in: int = 8) -> bool:
        return self._random.randrange(one_in) == 0

    def _of(self, usual: Sequence[Any], odd: Sequence[Any]) -> Any:
        return self._random.choice(odd if self._is_seldom() else usual)

    def _some(self, make: Callable[[], Any], count_max: int) -> tuple[Any, ...]:
        return tuple([make() for _ in range(self._random.randrange(count_max + 1))])

    def _commit(self) -> DataRequest:
        transaction = self._of(range(BASE + 14, BASE + 40), [*range(BASE, BASE + 90), *ODD_NUMBERS])
        cells = tuple(map(CellId, self._random.choice(PARTICIPANTS)))
        match self._random.randrange(6):
            case 0 | 1:
                request = CommitOne(transaction, self._parts(), self._is_seldom(3))
                return self._perhaps_conditional(request)
            case 2 | 3:
                return self._perhaps_conditional(Prepare(transaction, cells, self._parts()))
            case 4:
                at = self._of([None, *range(BASE + 20, BASE + 60)], ODD_NUMBERS)
                return Decide(transaction, cells, at)
            case _:
                return AskOutcome(transaction)

    def _perhaps_conditional(self, request: CommitOne | Prepare) -> DataRequest:
        if not self._is_seldom(3):
            return request
        tablets = [part.tablet for part in request.modifications]
        kept = [it for it in tablets if not self._is_seldom()]
        chosen = (*kept, *self._some(self._tablet, 1)) if self._is_seldom() else kept
        return ConditionalCommit(request, tuple([self._of_tablet(it) for it in chosen]))

    def _of_tablet(self, tablet: TabletId) -> TabletConditions:
        return TabletConditions(tablet, self._some(lambda: self._condition(tablet), 2))

    def _condition(self, tablet: int) -> RowCondition:
        key = self._key()
        if self._is_seldom(3):
            return RowCondition(key, self._of([True], [False]))
        version = Timestamp(self._of([0, 0, *range(BASE + 20, BASE + 60)], ODD_TIMESTAMPS))
        _, mask, values = self._a_write(tablet)
        return RowCondition(key, self._is_seldom(20), version, mask, values)

    def _parts(self) -> tuple[TabletModifications, ...]:
        return self._some(self._part, 2)

    def _part(self) -> TabletModifications:
        tablet, revision = self._tablet(), self._revision()
        writes = self._some(lambda: self._a_write(tablet), 2)
        return TabletModifications(
            tablet, revision, writes, self._some(self._lock, 1), self._special(writes)
        )

    def _tablet(self, usual: Sequence[int] = (1, 1, 3)) -> TabletId:
        return TabletId(self._of(usual, [*SCHEMAS, 9, -1]))

    def _revision(self) -> Revision:
        return Revision(self._of([1], ODD_NUMBERS))

    def _key(self) -> Key:
        return Key(self._of(KEYS[:3], KEYS))

    def _mask(self) -> WireMask:
        odd = self._random.choice([ODD_NUMBERS, range(32)])
        return cast("WireMask", self._of(range(16), [*odd, b"", b"\x01", b"\xff" * 200]))

    def _a_write(self, tablet: int) -> WireWrite:
        mask = self._random.randrange(16)
        usual = [range(-5, 5), [b"", b"a", b"b"], [0.5, -1.0], ODD_VALUES[:-4]]
        values = [self._of(usual[bit], ODD_VALUES) for bit in range(4) if mask >> bit & 1]
        packed = SCHEMAS.get(tablet, NARROW).pack_mask(mask)
        return self._key(), self._of([packed], [self._mask()]), tuple(values)

    def _special(self, writes: tuple[WireWrite, ...]) -> SpecialWrites | None:
        if not writes or not self._is_seldom(3):
            return None
        marks = self._of([0, 2, 4, 6, b"\x02"], [self._mask()]), self._of([0, 2, 4], ODD_NUMBERS)
        return {self._of([writes[0][0]], KEYS): marks}

    def _lock(self) -> RowLock:
        groups = self._of(range(1, 8), [*ODD_NUMBERS, 8])
        return RowLock(self._key(), groups, self._random.choice(LOCK_TYPES))

    def _write(self) -> DataRequest:
        tablet, revision = self._tablet((2, 2, 4)), self._revision()
        near = [BASE + seconds * SECOND for seconds in (-70, -1, 0, 0, 1, 59, 70)]
        stamp = self._of(near, ODD_NUMBERS)
        is_durable = self._is_seldom(2)
        if self._is_seldom(3):
            return WriteArrow(tablet, revision, stamp, is_durable, self._batch(tablet))
        writes = self._some(lambda: self._a_write(tablet), 3)
        return WriteNonAtomic(tablet, revision, stamp, is_durable, writes, self._special(writes))

    def _batch(self, tablet: int) -> bytes:
        batch = bytearray(BATCHES[SCHEMAS.get(tablet, NARROW)])
        for _ in range(self._random.randrange(3)):
            batch[self._random.randrange(len(batch))] = self._random.randrange(256)
        return bytes(batch)

    def _read(self) -> DataRequest:
        newest = [SYNC_LAST_COMMITTED, ASYNC_LAST_COMMITTED]
        at = self._of([*newest, *range(BASE + 20, BASE + 60)], [*ODD_TIMESTAMPS, BASE + 9 * SECOND])
        oldest = self._of([0, 0, *range(BASE + 20, BASE + 60)], ODD_TIMESTAMPS)
        tablet, revision = self._tablet((1, 2, 3, 4)), self._revision()
        mask = self._mask()
        keys = self._some(self._key, 3)
        limits = self._random.choice(KEYS), self._of([KEY_MAX], KEYS)
        count = self._of([1, 2, 1000], ODD_NUMBERS)
        match self._random.randrange(8):
            case 7:
                rest = self._of([0, BASE + 30], ODD_TIMESTAMPS)
                return ScanVersions(tablet, revision, oldest, at, *limits, mask, count, rest)
            case 6:
                return CountVersions(tablet, revision, oldest, at, *limits)
            case 5:
                return SplitTablet(tablet, revision, *limits, count)
            case 4:
                tablets = self._some(self._tablet, 3)
                lease_ms = self._of([60_000, 5_000, 0], ODD_NUMBERS)
                return HoldSnapshot(ReaderId(self._of([1, 2], ODD_NUMBERS)), at, tablets, lease_ms)
            case 0:
                return Lookup(tablet, revision, at, keys, mask, oldest)
            case 1:
                return LookupVersions(tablet, revision, at, keys, mask)
            case 2:
                return Scan(tablet, revision, at, *limits, mask, count, oldest)
            case _:
                return ScanArrow(tablet, revision, at, *limits, mask, count, oldest)


class Fuzz(Bench):
    """Two cells with a narrow and a wide table of each atomicity, on wire and disk as in life."""

    def __init__(self) -> None:
        self.routes: dict[CellId, list[object]] = {cell: [] for cell in CELLS}
        self._stored_count = dict.fromkeys(CELLS, 0)
        super().__init__(0)
        self.tables = self.assignments("mounted")
        for cell in CELLS:
            self.add(cell)
        self.oracle = BASE + 20

    def assignments(self, mode: Any) -> list[TabletAssignment]:
        shared = TableSettings(enable_shared_write_locks=True, min_data_ttl=0, max_data_ttl=0)
        return [
            msgspec.structs.replace(
                assignment(TabletId(tablet), "full" if tablet & 1 else "none"),
                columns=schema.columns,
                settings=shared,
                lower=NARROW.key_of({"id": None}),
                upper=NARROW.key_of({"id": 900}),
                mode=mode,
            )
            for tablet, schema in SCHEMAS.items()
        ]

    def send(self, cell: int, request: DataRequest) -> None:
        ((_, body),) = decode_requests(encode_frame([(1, request)]))
        self.routes[CellId(cell)].append(self.ask(body, cell))  # type: ignore[arg-type]

    def carry_out(self, cell: CellId) -> None:
        super().carry_out(cell)
        self.in_flight = [it for it in self.in_flight if it[0] in CELLS]
        new = self.logs[cell][self._stored_count[cell] :]
        self.logs[cell][self._stored_count[cell] :] = [as_on_disk(record) for record in new]
        self._stored_count[cell] = len(self.logs[cell])

    def take(self, cell: CellId, step: str) -> None:
        match step:
            case "oracle":
                self.answer_oracle()
            case "deliver":
                self.deliver()
            case "lose":
                self.in_flight.clear()
            case "restart":
                self.asked = [it for it in self.asked if it[0] != cell]
                self.routes[cell].clear()  # their connections are gone
                self.start(cell)
                self.assign(cell, self.tables)
            case "second":
                self.pass_time(1)
            case "minute":
                for _ in range(60):
                    self.pass_time(1)
                    self.answer_oracle()
            case "freeze":
                self.assign(cell, self.assignments("frozen"))
            case "remount":
                self.assign(cell, [])
                self.assign(cell, self.tables)

    def settle_for_good(self) -> None:
        for cell in CELLS:
            self.assign(cell, self.tables)
        for _ in range(12):
            self.pass_time(1)
            self.settle()

    def state(self, cell: CellId) -> bytes:
        """What a restart must not change."""
        core = self.nodes[cell].cell
        known = [
            (
                number,
                tablet.assignment,
                tablet.retained_timestamp,
                repr(tablet.dump()),  # masks of a wide table are no numbers of the wire
                sorted([key for key, locks in tablet.locks.items() if locks.holders]),
            )
            for number, tablet in core.tablets.items()
        ]
        return msgspec.msgpack.encode(known)


def as_on_disk(record: Record) -> Record:
    decoded: Record = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Record)
    return decoded


@pytest.mark.slow("large examples")
@pytest.mark.filterwarnings("error")
@given(st.integers(0, (1 << 64) - 1))
@settings(max_examples=examples(300), deadline=None)
def test_no_message_stops_a_cell_and_its_log_restores_its_state(seed: int) -> None:
    bench = Fuzz()
    client = Client(seed)
    for cell in client.cells():
        step = client.step()
        if isinstance(step, str):
            bench.take(cell, step)
        else:
            bench.send(cell, step)
    bench.settle_for_good()
    for route in itertools.chain(*bench.routes.values()):
        reply = bench.answer(route)
        assert reply is not None
        encode_frame([(1, reply)])
    for cell in CELLS:
        before = bench.state(cell)
        bench.start(cell)
        assert bench.state(cell) == before


class Typed(Fuzz):
    """A table with columns of many types."""

    def assignments(self, mode: Any) -> list[TabletAssignment]:
        (narrow, *_) = super().assignments(mode)
        return [msgspec.structs.replace(narrow, columns=TYPED.columns)]

    def told(self, request: DataRequest) -> Any:
        """The answer of the first cell, which can be sent."""
        self.send(0, request)
        for _ in range(3):
            self.answer_oracle()
        reply = self.answer(self.routes[CELLS[0]].pop())
        assert reply is not None
        encode_frame([(1, reply)])
        return reply


@given(st.integers(0, (1 << 64) - 1))
@settings(max_examples=examples(60), deadline=None)
def test_no_value_of_a_condition_stops_a_cell(seed: int) -> None:
    random, bench = Random(seed), Typed()
    mask, stored = required_values(TYPED, TYPED_ROW)
    part = TabletModifications(TabletId(1), Revision(1), ())
    written = msgspec.structs.replace(part, writes=((KEYS[0], mask, stored),))
    made = bench.told(CommitOne(bench.begin(), (written,)))
    assert isinstance(made, Committed), made
    for _ in range(30):
        places = [it for it in range(len(stored)) if random.randrange(2)] or [0]
        pairs = [(stored[it], random.choice([stored[it], *ODD_VALUES])) for it in places]
        wanted = RowCondition(
            random.choice(KEYS[:2]),
            column_mask=sum(1 << it for it in places),
            values=tuple([value for _, value in pairs]),
        )
        conditions = (TabletConditions(TabletId(1), (wanted,)),)
        told = bench.told(ConditionalCommit(CommitOne(bench.begin(), (part,)), conditions))
        holds = wanted.key == KEYS[0] and all(is_same_value(*pair) for pair in pairs)
        assert isinstance(told, Committed if holds else Failure), told
