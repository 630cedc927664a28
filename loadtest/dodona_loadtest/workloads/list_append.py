"""List append: rows hold lists; transactions append unique elements to lists and look at lists.

Owns: a few hot lists in the tablets of several cells. Also owns the history in the form of a
checker that uses no timestamps: the lists themselves show the order of the transactions.
The lists are values of a nested type, and a computed key column spreads them. Most rows and keys
leave the column out, and each row that is read must have the right value in it.
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, Final

from dodona._core.protocol.steps import Pause, Protocol
from dodona_loadtest.checkers.appends import Append, AppendTransaction, Observe
from dodona_loadtest.checkers.list_append import check_appends
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import Columns, History, Read, RowKey, Transaction
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.workloads.workload import Workload
from dodona_wire.errors import DodonaError
from dodona_wire.expressions.farm_hash import farm_hash
from dodona_wire.rows.schema import Column

LISTS_PER_TABLET: Final = 2
OPERATIONS_MAX: Final = 5
THOUGHT_MS_MAX: Final = 30
HASHES: Final = 1_024

Elements = tuple[str, ...]


class ListAppend(Workload):
    """Lists 0 to n-1. A list without appends has no row."""

    name = "list_append"
    path = "//append/lists"
    lists_per_tablet = LISTS_PER_TABLET
    is_serializable = False

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3, 4))
        self.list_count = self.lists_per_tablet * self.tablet_count
        self.append_rate = random.choice((0.3, 0.5, 0.8))
        self._in_order = sorted(range(self.list_count), key=lambda it: (hash_of(it), it))
        self._firsts = self._in_order[:: self.lists_per_tablet]
        """The first list of each tablet."""
        pivots = [(hash_of(number),) for number in self._firsts[1:]]
        self.table = TableShape(
            self.path,
            (
                Column("hash", "uint64", "ascending", expression=f"farm_hash(id) % {HASHES}"),
                Column("id", "int64", "ascending"),
                Column("elements", "list<utf8>", required=True),
            ),
            ((), *pivots),
            compute=_computed,
        )

    def set_up(self, db: Recorder) -> Protocol[bool]:
        return (yield from self._append_to(db, self._firsts))

    def touch(self, db: Recorder) -> Protocol[bool]:
        return (yield from self._append_to(db, self._firsts))

    def _append_to(self, db: Recorder, lists: Iterable[int]) -> Protocol[bool]:
        attempt = yield from self._begin(db)
        for number in lists:
            yield from self._append(db, attempt, number, 1)
        return (yield from attempt.commit())

    def _begin(self, db: Recorder) -> Protocol[Attempt]:
        return db.begin()

    def transact(self, db: Recorder) -> Protocol[None]:
        attempt = yield from self._begin(db)
        try:
            yield from self._operate(db, attempt)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        if attempt.record.is_writer:
            yield from attempt.commit()
        else:
            attempt.end()

    def _operate(self, db: Recorder, attempt: Attempt) -> Protocol[None]:
        """Append to some lists, and look at others."""
        operation_count = db.random.randint(1, OPERATIONS_MAX)
        lists = [self._draw_list(db.random) for _ in range(operation_count)]
        for number in dict.fromkeys(lists):
            if db.random.random() < self.append_rate:
                yield from self._append(db, attempt, number, lists.count(number))
            else:
                yield from self._look(attempt, number)
            if db.random.random() < 0.2:
                yield Pause(db.random.randrange(1, THOUGHT_MS_MAX))

    def _draw_list(self, random: Random) -> int:
        return random.randrange(self.list_count)

    def _append(self, db: Recorder, attempt: Attempt, number: int, count: int) -> Protocol[None]:
        elements = yield from self._look(attempt, number)
        added = [db.unique_value() for _ in range(count)]
        row = {"id": number, "elements": [*elements, *added]}
        if db.random.random() < 0.2:
            row["hash"] = hash_of(number)
        yield from attempt.insert(self.table, row, is_update=db.random.random() < 0.5)

    def _look(self, attempt: Attempt, number: int) -> Protocol[Elements]:
        (row,) = yield from attempt.lookup(self.table, [{"id": number}])
        if row is None:
            return ()
        self._judge_hash(row)
        return tuple(row["elements"])

    def _judge_hash(self, row: Row) -> None:
        """Note a row whose computed column has another value than its expression gives."""
        if row["hash"] != hash_of(row["id"]):
            self.flag(f"list {row['id']} has the hash {row['hash']}, not {hash_of(row['id'])}")

    def draw_key(self, random: Random) -> dict[str, Any]:
        number = random.randrange(self.list_count)
        return {"hash": hash_of(number), "id": number}

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        for row in rows:
            self._judge_hash(row)
            elements = row["elements"]
            if len(set(elements)) != len(elements):
                return f"list {row['id']} has an element twice: {elements}"
        return None

    def check(self, history: History) -> list[Violation]:
        transactions = self.transactions(history)
        self.count("appends", sum(_append_count(t) for t in transactions if t.status == "ok"))
        return check_appends(transactions, is_serializable=self.is_serializable)

    def transactions(self, history: History) -> list[AppendTransaction]:
        """Return the history in the checker's form. Looks at chosen old timestamps are left out,
        because they show an earlier time than that of the look."""
        self._names = {self.table.row_key({"id": n}): str(n) for n in range(self.list_count)}
        found = [self._translate(t) for t in history.transactions if t.is_fresh]
        for number, latest in enumerate(history.latest_reads):
            found.append(
                AppendTransaction(
                    f"latest#{number}",
                    f"latest#{number}",
                    "ok",
                    latest.asked_us,
                    latest.answered_us,
                    (self._observe(latest.read),),
                )
            )
        return found

    def _translate(self, t: Transaction) -> AppendTransaction:
        is_dead = t.status == "open" and t.commit_us is None
        return AppendTransaction(
            t.name,
            t.session,
            "fail" if is_dead and t.writes else t.status,
            t.begin_us,
            t.end_us,
            tuple(self._operations(t)),
        )

    def _operations(self, t: Transaction) -> Iterator[Append | Observe]:
        """Return its looks, and then its appends: reads do not see its own writes."""
        for scan in t.scans:
            seen = {read.row: read for read in scan.reads}
            rows = [row for row in self._names if scan.lower <= row.key < scan.upper]
            for row in rows:
                yield self._observe(seen.get(row, Read(row, None)))
        before: dict[RowKey, Elements] = {}
        for read in t.reads:
            before[read.row] = _elements_of(read.columns)
            yield self._observe(read)
        for write in t.writes:
            # One that read nothing requires that the list is absent.
            for element in _elements_of(write.columns)[len(before.get(write.row, ())) :]:
                yield Append(self._names[write.row], element)

    def _observe(self, read: Read) -> Observe:
        return Observe(self._names[read.row], _elements_of(read.columns))


def _elements_of(columns: Columns | None) -> Elements:
    return () if columns is None else dict(columns)["elements"]


def hash_of(number: int) -> int:
    """Return the computed column of a list's row."""
    return farm_hash(number) % HASHES


def _computed(row: Row) -> Row:
    return {"hash": hash_of(row["id"])}


def _append_count(t: AppendTransaction) -> int:
    return sum(isinstance(operation, Append) for operation in t.operations)
