"""Tables live through everything at once, and no row is lost, doubled or seen where it is not.

The catalog's functions and two cells, against a model that is a dictionary a table: tablets are
mounted, frozen, resharded, altered, copied and removed while rows are written, messages are lost
or late, cells stop at any point and replay their logs, a master answers that was replaced long ago,
and transactions stay prepared for a while. In the end no cell keeps a tablet that nobody needs.
"""

from bisect import bisect_right
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from dodona.errors import DodonaError
from dodona.keys import encode_key
from dodona.schema import Column, TableSchema
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    SYNC_LAST_COMMITTED,
    CellId,
    Key,
    Revision,
    TabletId,
    Timestamp,
    TransactionId,
    Write,
)
from dodona_oracle.core import mounting
from dodona_oracle.core.records import StoredTable, StoredTablet
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.records import Record, TabletMounted, TabletsDropped
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Assignment, Heartbeat
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    Decide,
    Prepare,
    Prepared,
    Scan,
    ScanPage,
    TabletModifications,
)
from dodona_wire.messages.families import Reply
from suite.levels import examples
from unit.tablets.cells import CLUSTER, Bench

CELLS = (CellId(0), CellId(1))
COLUMNS = (Column("k", "int64", sort_order="ascending"), Column("v", "int64"))
READABLE = ("mounted", "freezing", "frozen", "unfreezing")
ENDS = ("unmounted", "mounted", "frozen")
TABLES_MAX = 4

numbers = st.integers(0, 7)
places = st.integers(0, 3)
Rows = dict[Key, tuple[Any, ...]]


class Cells(Bench):
    """Cells without any tablet, and crashes that take back what was not done yet."""

    def add(self, cell: CellId) -> None:
        self.start(cell)

    def crash_under(self, cell: CellId, assignment: Assignment) -> None:
        """It stops before anything of what this made it do is durable, or has left it."""
        self.nodes[cell].handle_assignment(assignment, self.now)
        self.nodes[cell].take_effects()
        self.asked = [it for it in self.asked if it[0] != cell]
        self.start(cell)


class Pending(msgspec.Struct):
    """A transaction that is prepared in both cells; it writes one row."""

    id: TransactionId
    at: Timestamp
    table: str
    key: Key
    values: tuple[Any, ...]


class Master(msgspec.Struct):
    """What one knows. Another one that was replaced knows what it knew then, for good."""

    tables: dict[str, StoredTable]
    last_id: int = 0
    revision: int = 0

    def answer(self, heartbeat: Heartbeat) -> Assignment:
        assigned = mounting.in_order(
            it
            for path in sorted(self.tables)
            for it in mounting.assignments(self.tables[path], heartbeat.cell)
        )
        needed = {tablet for table in self.tables.values() for tablet in mounting.needed(table)}
        gone = [it for it in heartbeat.stored if it <= self.last_id and it not in needed]
        revision = Revision(self.revision)
        return Assignment(assigned, {}, heartbeat.sequence, revision, CLUSTER, tuple(gone))


class TableLife(RuleBasedStateMachine):
    """Rules are commands and mishaps; `check` lets everything come to rest and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = Cells(2, CellLimits())
        self.master = Master({})
        self.replaced = Master({})
        self.model: dict[str, Rows] = {}
        self.pending: list[Pending] = []
        self.late: list[tuple[CellId, Any]] = []
        self.create()
        self.mount(0, False, None, True)
        self.write(0, {*range(8)}, 1)

    # Commands. With `is_awaited` nothing else happens until all is done that they ask for.

    @precondition(lambda self: len(self.tables) < TABLES_MAX)
    @rule()
    def create(self) -> None:
        number = self.take_ids(2)
        path = f"//t{number}"
        first = StoredTablet(TabletId(number + 1), KEY_MIN, "unmounted", None, Revision(0))
        self.tables[path] = StoredTable(number, path, COLUMNS, "full", (first,))
        self.model[path] = {}

    @precondition(lambda self: self.tables)
    @rule(
        place=places,
        is_frozen=st.booleans(),
        first=places | st.none(),
        is_awaited=st.booleans(),
    )
    def mount(self, place: int, is_frozen: bool, first: int | None, is_awaited: bool) -> None:
        table, revision = self.pick(place), Revision(self.master.revision + 1)
        self.attempt(
            table,
            lambda: mounting.mount(
                table,
                first,
                None,
                is_frozen=is_frozen,
                revision=revision,
                place=lambda count: [CELLS[(revision + at) % 2] for at in range(count)],
            ),
            is_awaited=is_awaited,
        )

    @precondition(lambda self: self.tables)
    @rule(
        place=places,
        command=st.sampled_from([mounting.unmount, mounting.freeze, mounting.unfreeze]),
        first=places | st.none(),
        last=places | st.none(),
        is_awaited=st.booleans(),
    )
    def command(
        self, place: int, command: Any, first: int | None, last: int | None, is_awaited: bool
    ) -> None:
        table = self.pick(place)
        self.attempt(table, lambda: command(table, first, last), is_awaited=is_awaited)

    @precondition(lambda self: self.tables)
    @rule(place=places)
    def unmount_all(self, place: int) -> None:
        """Wherever its tablets were: what is to be done next may need it."""
        self.settle()
        table = self.pick(place)
        self.attempt(table, lambda: mounting.unmount(table, None, None), is_awaited=True)

    @precondition(lambda self: self.tables)
    @rule(place=places, pivots=st.sets(numbers, max_size=3), first=places, last=places)
    def reshard(self, place: int, pivots: set[int], first: int, last: int) -> None:
        table = self.pick(place)
        first %= len(table.tablets)
        if first <= last:
            keys = [encode_key([number], ["int64"]) for number in sorted(pivots)]
            start = table.tablets[first].pivot_key
            last = min(last, len(table.tablets) - 1)
            ends = [*(it.pivot_key for it in table.tablets[last + 1 :]), KEY_MAX]
            wanted = (start, *(key for key in keys if start < key < ends[0]))
            first_id = self.take_ids(len(wanted))
            self.attempt(table, lambda: mounting.reshard(table, wanted, first, last, first_id))

    @precondition(lambda self: self.tables)
    @rule(place=places, is_key=st.booleans())
    def alter(self, place: int, is_key: bool) -> None:
        """A key column more, or a value column more in front of the others."""
        table = self.pick(place)
        schema = TableSchema(table.columns)
        name = f"c{len(table.columns)}"
        if is_key:
            new = Column(name, "int64", sort_order="ascending")
            columns = (*schema.key_columns, new, *schema.value_columns)
        else:
            columns = (*schema.key_columns, Column(name, "any"), *schema.value_columns)
        if self.attempt(table, lambda: mounting.alter(table, columns)):
            rows = self.model[table.path]
            if is_key:
                rows = {Key(key + b"\x02"): values for key, values in rows.items()}
            else:
                rows = {key: (None, *values) for key, values in rows.items()}
            self.model[table.path] = rows

    @precondition(lambda self: 0 < len(self.tables) < TABLES_MAX)
    @rule(place=places)
    def copy(self, place: int) -> None:
        table = self.pick(place)
        first_id = self.take_ids(1 + len(table.tablets))
        try:
            copy = mounting.copied(table, f"//t{first_id}", first_id)
        except DodonaError:
            return
        self.tables[copy.path] = copy
        self.model[copy.path] = dict(self.model[table.path])

    @precondition(lambda self: len(self.tables) > 1)
    @rule(place=places)
    def remove(self, place: int) -> None:
        """Whatever state it is in: its cell lets go of it."""
        table = self.pick(place)
        if not any(it.table == table.path for it in self.pending):
            del self.tables[table.path], self.model[table.path]
            self.master.revision += 1

    # Rows

    @precondition(lambda self: self.tables)
    @rule(place=places, chosen=st.sets(numbers, min_size=1), value=st.integers(0, 99))
    def write(self, place: int, chosen: set[int], value: int) -> None:
        """Rows, each in a transaction of its own."""
        table = self.pick(place)
        for number in sorted(chosen):
            self.write_one(table, *row_of(table, number, value))

    def write_one(self, table: StoredTable, key: Key, write: Write) -> None:
        tablet = tablet_of(table, key)
        if tablet.state == "mounted":
            assert tablet.cell is not None
            part = TabletModifications(tablet.tablet, tablet.revision, (write,))
            start = self.cells.begin()
            reply = self.ask(CommitOne(start, (part,)), tablet.cell)
            if isinstance(reply, Committed):
                self.model[table.path][key] = write[2]
                # Who was prepared there has committed by itself: it holds no lock any more.
                own = (table.path, key)
                self.pending = [it for it in self.pending if (it.table, it.key) != own]
            else:
                assert isinstance(reply, Failure) or reply is None, reply
                self.give_up(start, tablet.cell)

    def give_up(self, start: TransactionId, cell: CellId) -> None:
        """Nobody hears of a transaction that still waits for a row: it is poisoned."""
        alive = self.cells.nodes[cell].cell.transactions.get(start)
        if alive is not None:
            self.ask(Decide(start, (cell,), None), cell)

    @precondition(lambda self: self.tables and len(self.pending) < 2)
    @rule(place=places, number=numbers, value=st.integers(0, 99))
    def prepare(self, place: int, number: int, value: int) -> None:
        table = self.pick(place)
        key, write = row_of(table, number, value)
        tablet = tablet_of(table, key)
        if tablet.state != "mounted" or any(it.key == key for it in self.pending):
            return
        start = self.cells.begin()
        part = TabletModifications(tablet.tablet, tablet.revision, (write,))
        votes = [
            self.ask(Prepare(start, CELLS, (part,) if cell == tablet.cell else ()), cell)
            for cell in CELLS
        ]
        if all(isinstance(vote, Prepared) for vote in votes):
            at = Timestamp(max(vote.timestamp for vote in votes if isinstance(vote, Prepared)))
            self.pending.append(Pending(start, at, table.path, key, write[2]))
        elif isinstance(self.outcome(start), Committed):
            self.model[table.path][key] = write[2]

    def outcome(self, start: TransactionId) -> Reply:
        """Of a transaction that is to be aborted. If a cell only waited, it may be prepared by now:
        then it is committed all the same."""
        route = self.cells.ask(Decide(start, CELLS, None), CELLS[0])
        for _ in range(20):
            reply = self.cells.answer(route)
            if reply is not None:
                return reply
            self.cells.pass_time(0.5)
            self.cells.settle()
        raise AssertionError("nobody decides")

    @precondition(lambda self: self.pending)
    @rule()
    def decide(self) -> None:
        it = self.pending.pop()
        reply = self.ask(Decide(it.id, CELLS, it.at), CELLS[0])
        assert isinstance(reply, Committed)
        self.model[it.table][it.key] = it.values

    # What happens to cells

    @rule(cell=st.sampled_from(CELLS), is_crash=st.booleans())
    def beat(self, cell: CellId, is_crash: bool) -> None:
        """A heartbeat and its answer; the cell may stop under it."""
        heartbeat = self.cells.heartbeats[cell]
        mounted = {it.tablet: it for it in heartbeat.mounted}
        for path, table in self.tables.items():
            self.tables[path] = stored(mounting.take_heartbeat(table, cell, mounted))
        self.take(cell, self.master.answer(heartbeat), is_crash=is_crash)

    @rule()
    def replace_master(self) -> None:
        self.replaced = msgspec.structs.replace(self.master, tables=dict(self.tables))

    @rule(cell=st.sampled_from(CELLS))
    def beat_to_a_master_that_was_replaced(self, cell: CellId) -> None:
        self.take(cell, self.replaced.answer(self.cells.heartbeats[cell]), is_crash=False)

    def take(self, cell: CellId, assignment: Assignment, *, is_crash: bool) -> None:
        if is_crash:
            self.cells.crash_under(cell, assignment)
        else:
            self.cells.nodes[cell].handle_assignment(assignment, self.cells.now)
            self.cells.carry_out(cell)

    @rule(cell=st.sampled_from(CELLS))
    def restart(self, cell: CellId) -> None:
        self.cells.asked = [it for it in self.cells.asked if it[0] != cell]
        self.cells.start(cell)

    @rule(is_lost=st.booleans())
    def pass_messages(self, is_lost: bool) -> None:
        self.cells.answer_oracle()
        self.late += self.cells.in_flight[:1]
        if is_lost:
            self.cells.in_flight.clear()
        else:
            self.cells.in_flight += self.cells.in_flight[:1]  # one of them comes twice
            self.cells.deliver()

    @rule()
    def pass_late_copies(self) -> None:
        """Of messages that came, or were lost, before."""
        self.cells.in_flight += self.late
        self.late = []
        self.cells.deliver()

    @rule()
    def tick(self) -> None:
        self.cells.pass_time(0.5)

    # The end

    @rule()
    def check(self) -> None:
        """Everything comes to rest, and all that can be read is as the model has it."""
        self.settle()
        for table in self.tables.values():
            self.compare(table)

    def teardown(self) -> None:
        self.settle()
        for path in self.tables:
            states = {it.state for it in self.tables[path].tablets}
            if states & {"frozen"} and states & {"mounted"}:
                self.attempt(self.tables[path], lambda path=path: self.unfrozen(path))
                self.settle()
            self.master.revision += 1
            self.tables[path] = mounting.mount(
                self.tables[path],
                None,
                None,
                is_frozen={it.state for it in self.tables[path].tablets} & {"frozen"} != set(),
                revision=Revision(self.master.revision),
                place=lambda count: [CELLS[at % 2] for at in range(count)],
            )
        self.settle()
        self.settle()  # what was not needed any more in the end has been dropped by now
        there = {it.tablet: it.cell for table in self.tables.values() for it in table.tablets}
        for cell in CELLS:
            self.restart(cell)
        self.settle()
        for table in self.tables.values():
            assert all(it.state in READABLE for it in table.tablets)
            self.compare(table)
        for cell in CELLS:
            assert all(there.get(it) == cell for it in self.cells.nodes[cell].cell.tablets)
            check_ends(self.cells.logs[cell])

    def unfrozen(self, path: str) -> StoredTable:
        table = self.tables[path]
        for at, tablet in enumerate(table.tablets):
            if tablet.state == "frozen":
                table = mounting.unfreeze(table, at, at)
        return table

    def settle(self) -> None:
        while self.pending:
            self.decide()
        for _ in range(20):
            self.cells.pass_time(1.2)
            self.pass_messages(is_lost=False)
            for cell in CELLS:
                self.beat(cell, is_crash=False)
            if not any(
                mounting.is_moving(it) for table in self.tables.values() for it in table.tablets
            ):
                return
        raise AssertionError("tablets go on moving")

    def compare(self, table: StoredTable) -> None:
        uppers = [*(it.pivot_key for it in table.tablets[1:]), KEY_MAX]
        for tablet, upper in zip(table.tablets, uppers, strict=True):
            assert tablet.state in ENDS
            if tablet.state not in READABLE:
                continue
            assert tablet.cell is not None
            full = TableSchema(table.columns).full_mask
            lower = tablet.pivot_key
            scan = Scan(
                tablet.tablet, tablet.revision, SYNC_LAST_COMMITTED, lower, upper, full, 1000
            )
            page = self.ask(scan, tablet.cell)
            assert isinstance(page, ScanPage), page
            expected = {
                key: values
                for key, values in sorted(self.model[table.path].items())
                if lower <= key < upper
            }
            assert dict(zip(page.keys, page.rows, strict=True)) == expected

    # Small things

    def ask(self, body: Any, cell: CellId) -> Reply | None:
        route = self.cells.ask(body, cell)
        self.cells.answer_oracle()
        return self.cells.answer(route)

    def take_ids(self, count: int) -> int:
        self.master.last_id += count
        return self.master.last_id - count + 1

    @property
    def tables(self) -> dict[str, StoredTable]:
        return self.master.tables

    def pick(self, place: int) -> StoredTable:
        return self.tables[sorted(self.tables)[place % len(self.tables)]]

    def attempt(self, table: StoredTable, change: Any, *, is_awaited: bool = False) -> bool:
        """Whether it was not refused. A refusal leaves the table as it was."""
        try:
            self.tables[table.path] = stored(change())
        except DodonaError:
            return False
        self.master.revision += 1
        if is_awaited:
            self.settle()
        return True


def check_ends(log: list[Record]) -> None:
    """What was dropped is never begun anew."""
    dropped: set[TabletId] = set()
    for record in log:
        if isinstance(record, TabletsDropped):
            dropped |= {*record.tablets}
        elif isinstance(record, TabletMounted):
            assert record.assignment.tablet not in dropped


def stored(table: StoredTable) -> StoredTable:
    """As it comes back from a record."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(table), type=StoredTable)


def row_of(table: StoredTable, number: int, value: int) -> tuple[Key, Write]:
    schema = TableSchema(table.columns)
    others: dict[str, Any] = dict.fromkeys(schema.key_names, None if value % 2 else value % 3)
    row = {**others, "k": number, **dict.fromkeys(schema.value_names, value)}
    write = schema.write_of(row)
    return write[0], write


def tablet_of(table: StoredTable, key: Key) -> StoredTablet:
    pivots = [it.pivot_key for it in table.tablets]
    return table.tablets[bisect_right(pivots, key) - 1]


TestTableLife = TableLife.TestCase
TestTableLife.settings = settings(
    max_examples=examples(100), stateful_step_count=60, deadline=None, report_multiple_bugs=False
)
