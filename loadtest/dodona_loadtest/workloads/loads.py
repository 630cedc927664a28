"""Loads: bulk loads and ordinary transactions on the same rows, and loads without atomicity.

Owns: these parts:

- Bundles of rows that always have one mark, as in `blind`. Loads write, update and delete them, and
  make them the only ones of a range.
- A ledger with a row of each load that brings one.
- The comparison of both with the records of loads, in one snapshot.
- Rows without atomicity, of which none may come after the end of its load.

Owners vanish at any step, and others continue their loads. Tasks stage rows that are not published,
and stage rows late.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from dodona._core.loads.records import LOADS, LoadRecord
from dodona._core.loads.ticket import Range
from dodona._core.protocol.steps import Calls, Pause, Post, Protocol, Step
from dodona_loadtest.histories.history import History
from dodona_loadtest.histories.loads import (
    Brought,
    LoadAttempt,
    LoadPlan,
    begin_load,
    vanish,
)
from dodona_loadtest.histories.recorder import Attempt, Recorder
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.histories.stamped import write_stamped
from dodona_loadtest.workloads.plain_loads import PlainLoads
from dodona_loadtest.workloads.workload import SNAPSHOTS_MAX, Workload
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError, NodeNotFound, Unavailable
from dodona_wire.rows.schema import Column
from dodona_wire.types import LoadMode, Timestamp

ROWS_PER_TABLET: Final = 6
LOCAL_OFFSETS: Final = (0, 1, 2)
SOLO_OFFSET: Final = 3
SPREAD_OFFSETS: Final = (4, 5)
SHARDS: Final = 3
"""Tablets of the ledger."""
STEPS_MAX: Final = 20
"""Steps of a publication, until its owner vanishes."""
APPLICATIONS: Final = ("a", "b")
ENDS: Final = ("finished", "aborted")
DONE: Final = ("published", "finished")

Bundle = tuple[int, ...]
Piece = tuple[TableShape, list[dict[str, Any]]]
"""Rows of one table."""


class BulkLoads(Workload):
    """Rows 0 to n-1, in bundles. A deleted bundle has no rows."""

    name = "loads"
    needs_python_client = True

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tablet_count = random.choice((2, 3, 4))
        self.load_rate = random.choice((0.1, 0.3, 0.6))
        self.lease_ms = random.choice((300, 1_000, 4_000))
        self.hot_rate = random.choice((0.0, 0.5))
        firsts = range(0, ROWS_PER_TABLET * self.tablet_count, ROWS_PER_TABLET)
        self.blocks = [(first, first + SOLO_OFFSET + 1) for first in firsts]
        """Ranges of whole bundles, of one tablet each in the beginning."""
        self.narrow: list[Bundle] = []
        for first in firsts:
            self.narrow.append(tuple(first + offset for offset in LOCAL_OFFSETS))
            self.narrow.append((first + SOLO_OFFSET,))
        self.wide: list[Bundle] = [
            tuple(first + offset for first in firsts) for offset in SPREAD_OFFSETS
        ]
        self.table = TableShape(
            "//loads/bundles",
            (
                Column("id", "int64", sort_order="ascending"),
                Column("mark", "utf8"),
                Column("load", "int64"),
            ),
            ((), *[(first,) for first in firsts[1:]]),
        )
        self.ledger = TableShape(
            "//loads/ledger",
            (
                Column("shard", "int64", sort_order="ascending"),
                Column("load", "int64", sort_order="ascending"),
                Column("mark", "utf8"),
                Column("application", "utf8"),
                Column("version", "int64"),
            ),
            ((), *[(shard,) for shard in range(1, SHARDS)]),
        )
        self.plain = PlainLoads(self.lease_ms)
        self._versions = dict.fromkeys(APPLICATIONS, 0)
        self._records: dict[int, LoadRecord] = {}
        """The last known records."""

    @property
    def tables(self) -> list[TableShape]:
        return [self.table, self.ledger, self.plain.table]

    @property
    def bundles(self) -> list[Bundle]:
        return [*self.narrow, *self.wide]

    def draw_key(self, random: Random) -> dict[str, Any]:
        return {"id": random.randrange(ROWS_PER_TABLET * self.tablet_count)}

    # Before and after

    def set_up(self, db: Recorder) -> Protocol[bool]:
        """Write the first rows. By the ledger's first row, all later loads are of this run."""
        attempt = yield from db.begin()
        for bundle in self.bundles:
            yield from self._mark(db, attempt, bundle)
        row = {"shard": 0, "load": 0, "mark": db.unique_value(), "version": attempt.record.start}
        yield from attempt.insert(self.ledger, row)
        return (yield from attempt.commit())

    def touch(self, db: Recorder) -> Protocol[bool]:
        """Write to every tablet. Recover abandoned loads, so that later looks change nothing."""
        yield from db.session.loads.recover("the last")
        records = yield from db.session.loads.list_loads()
        if any(record.state not in ENDS for record in records):
            return False
        attempt = yield from db.begin()
        for bundle in self.bundles:
            yield from self._mark(db, attempt, bundle)
        for shard in range(SHARDS):
            row = {"shard": shard, "load": -attempt.record.start, "mark": db.unique_value()}
            yield from attempt.insert(self.ledger, row)
        if not (yield from attempt.commit()):
            return False
        row = {"load": -attempt.record.start, "n": 0, "mark": db.unique_value()}
        written = yield from write_stamped(db, self.plain.table, [row], is_durable=True)
        return all(it.status == "ok" or it.clocks is not None for it in written)

    def conclude(self, db: Recorder) -> Protocol[None]:
        """Check that every load has an end by now, and that each recovery has its record."""
        loads = db.session.loads
        recoveries = {it.load: it for it in (yield from loads.list_recoveries())}
        records = yield from loads.list_loads()
        for record in records:
            if record.state not in ENDS:
                raise Unavailable("it is too early", load=record.load, state=record.state)
            recovery = recoveries.get(record.load)
            is_recovered = record.reason is not None and "lease expired before" in record.reason
            if is_recovered and recovery is None:
                self.flag(f"{record} was recovered, and nobody says so")
            if recovery is not None:
                is_back = recovery.outcome == "rolled_back"
                if is_back != (record.state == "aborted"):
                    self.flag(f"{record} was recovered otherwise: {recovery}")
        self.count("loads recovered", len(recoveries))
        self._records = {record.load: record for record in records}
        yield from self.audit(db)

    def resolve(self, history: History) -> None:
        """Note the outcomes of loads whose owners do not know them. The records say them. If a
        record is wrong, the tables have rows without a writer, or rows are missing. Such a load may
        be published at any time after its owner continued. So it has no order with later work."""
        for t in history.transactions:
            if not t.load or t.commit_us is None or t.status in ("ok", "fail"):
                continue
            record = self._records.get(t.load)
            if record is not None and record.state == "finished":
                t.status, t.commit = "ok", record.commit_timestamp
                t.session = f"{t.session}, unsure"
            else:
                t.status = "fail"

    # What sessions do

    def transact(self, db: Recorder) -> Protocol[None]:
        dice = db.random.random()
        if dice >= self.load_rate:
            yield from self._use_rows(db)
        elif dice < 0.06 * self.load_rate:
            yield from db.session.loads.recover(db.name)
        elif dice < 0.25 * self.load_rate:
            yield from self.plain.transact(db, self)
        else:
            yield from self._load(db)

    def _use_rows(self, db: Recorder) -> Protocol[None]:
        """Run an ordinary transaction: look at some bundles, mark one, and maybe delete or lock
        another."""
        attempt = yield from db.begin()
        first, second = self._draw_bundle(db.random), self._draw_bundle(db.random)
        try:
            yield from self._look(attempt, first)
            if db.random.random() < 0.5:
                yield Pause(db.random.randrange(1, 30))
            yield from self._mark(db, attempt, first)
            if second != first:
                dice = db.random.random()
                for row in second if dice < 0.4 else ():
                    key = {"id": row}
                    if dice < 0.15:
                        yield from attempt.delete(self.table, key)
                    else:
                        yield from attempt.lock(self.table, key, is_strong=dice < 0.3)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        yield from attempt.commit()

    def _draw_bundle(self, random: Random) -> Bundle:
        if random.random() < self.hot_rate:
            return random.choice([*self.narrow[:2], self.wide[0]])
        return random.choice(self.bundles)

    def _look(self, attempt: Attempt, bundle: Bundle) -> Protocol[None]:
        rows = yield from attempt.lookup(self.table, [{"id": row} for row in bundle])
        problem = self._mixture(bundle, {row["id"]: row for row in rows if row is not None})
        if problem:
            self.flag(f"at {attempt.record.start} {problem}")

    def _mark(self, db: Recorder, attempt: Attempt, bundle: Bundle) -> Protocol[None]:
        mark = db.unique_value()
        for row in bundle:
            yield from attempt.insert(self.table, {"id": row, "mark": mark, "load": 0})

    # Loads

    def _load(self, db: Recorder) -> Protocol[None]:
        load = yield from begin_load(db, self._plan(db), db.name)
        self.count("loads begun")
        if load.ticket.is_recorded:
            self.count("loads skipped at once")
            yield from load.publish(())
            return
        brought = yield from self._bring(db, load)
        dice = db.random.random()
        if dice < 0.08:
            return  # its owner vanishes, and none of its rows is ever seen
        if dice < 0.2:
            yield Pause(db.random.randrange(1, 2 * load.plan.lease_ms))
        elif dice < 0.3:
            yield from load.renew()
        if dice > 0.93:
            yield from load.abort()
        elif dice > 0.78:
            yield from self._vanish_publishing(db, load, brought)
        else:
            yield from self._publish(db, load, brought)
        if db.random.random() < 0.5:
            yield from self._bring_late(db, load)

    def _plan(self, db: Recorder) -> LoadPlan:
        random = db.random
        mode: LoadMode = random.choice(("upsert", "upsert", "upsert", "insert", "update", "delete"))
        may_tell = mode in ("upsert", "insert")
        tables: tuple[TableShape, ...] = (self.table,)
        if may_tell and random.random() < 0.8:
            tables = (self.ledger,) if random.random() < 0.15 else (self.table, self.ledger)
        erased: dict[str, Range] = {}
        if self.table in tables and mode == "upsert" and random.random() < 0.35:
            lower, upper = random.choice(self.blocks)
            is_all = random.random() < 0.3
            erased[self.table.path] = (None, None) if is_all else ((lower,), (upper,))
        application = version = None
        if self.ledger in tables and random.random() < 0.4:
            application = random.choice(APPLICATIONS)
            self._versions[application] += random.random() < 0.4
            version = self._versions[application]
        start = None
        if self._snapshots and random.random() < 0.15:
            start = self._snapshots[-1]
        return LoadPlan(
            tables,
            mode,
            random.random() < 0.4,
            start,
            erased,
            application,
            version,
            self.lease_ms,
        )

    def _bring(self, db: Recorder, load: LoadAttempt) -> Protocol[list[Brought]]:
        """Stage the tasks' rows. Each task may have had other attempts, whose rows do not count.
        Return the batches to publish."""
        pieces = self._pieces(db, load)
        brought: list[Brought] = []
        for partition, (table, rows) in enumerate(pieces):
            losing_count = db.random.choice((0, 0, 1, 2))
            for attempt in range(losing_count):
                yield from load.stage(table, self._others(db, table, rows), partition, attempt)
            # A task may stage its rows in parts.
            middle = len(rows) // 2 if db.random.random() < 0.3 else 0
            for part in (rows[:middle], rows[middle:]):
                if part:
                    done = yield from load.stage(table, part, partition, losing_count)
                    brought.append(done)
            if db.random.random() < 0.2:
                yield Pause(db.random.randrange(1, 50))
        return brought

    def _others(
        self, db: Recorder, table: TableShape, rows: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the rows of another attempt of a task: other values, and maybe another row."""
        others = [row | {"mark": db.unique_value()} if "mark" in row else row for row in rows]
        if table is self.table and db.random.random() < 0.5:
            others = [others[0] | self.draw_key(db.random)]
        return others

    def _pieces(self, db: Recorder, load: LoadAttempt) -> list[Piece]:
        """Return the rows to load, divided among tasks."""
        pieces: list[Piece] = []
        plan, random = load.plan, db.random
        if self.table in plan.tables:
            lower, upper = plan.erased.get(self.table.path, (None, None))
            bundles = [self._draw_bundle(random) for _ in range(random.randrange(1, 4))]
            rows = [row for it in dict.fromkeys(bundles) for row in self._rows(db, load, it)]
            if lower is not None and upper is not None and random.random() < 0.5:
                rows = []  # it only deletes
            if plan.mode == "delete":
                rows = [{"id": row["id"]} for row in rows]
            random.shuffle(rows)
            middle = random.randrange(len(rows) + 1)
            pieces += [(self.table, part) for part in (rows[:middle], rows[middle:]) if part]
        if self.ledger in plan.tables:
            row = {
                "shard": random.randrange(SHARDS),
                "load": load.ticket.load,
                "mark": db.unique_value(),
                "application": plan.application,
                "version": plan.version,
            }
            pieces.append((self.ledger, [row]))
        return pieces

    def _rows(self, db: Recorder, load: LoadAttempt, bundle: Bundle) -> list[dict[str, Any]]:
        mark = db.unique_value()
        return [{"id": row, "mark": mark, "load": load.ticket.load} for row in bundle]

    def _publish(self, db: Recorder, load: LoadAttempt, brought: list[Brought]) -> Protocol[None]:
        """Publish as a driver does: after an answer without an outcome it asks again, or stops."""
        for _ in range(3):
            try:
                yield from load.publish(brought)
            except CommitOutcomeUnknown:
                self.count("loads told unknown")
                if db.random.random() < 0.3:
                    break
            except DodonaError as error:
                self.count(f"loads refused: {error.kind}")
                break
            else:
                self.count(f"loads published {load.record.status}")
                return
        if db.random.random() < 0.8:
            yield from load.abort()

    def _vanish_publishing(
        self, db: Recorder, load: LoadAttempt, brought: list[Brought]
    ) -> Protocol[None]:
        """Let the owner vanish at some step of the publication. Another continues, or none."""
        left = db.random.randrange(STEPS_MAX)

        def goes_on(step: Step) -> bool:
            nonlocal left
            left -= isinstance(step, Calls | Post)
            return left > 0

        yield from vanish(load.publish(brought), goes_on)
        load.is_unsure = True
        self.count("loads left")
        dice = db.random.random()
        if dice < 0.4:
            yield Pause(db.random.randrange(1, 2_000))
            yield from self._publish(db, load, brought)
        elif dice < 0.6:
            yield from load.abort()

    def _bring_late(self, db: Recorder, load: LoadAttempt) -> Protocol[None]:
        """Stage rows of a task that outlived its job. A load closed by all cells refuses them."""
        is_closed = load.is_closed
        pieces = self._pieces(db, load)
        if not pieces:
            return
        table, rows = pieces[0]
        try:
            done = yield from load.stage(table, rows, 99, 0)
        except DodonaError:
            self.count("late tasks refused", is_closed)
            return
        if is_closed and done.batches:
            self.flag(f"load {load.ticket.load} was closed everywhere, and took {done.batches}")

    # Judgement

    def _judge(self, attempt: Attempt) -> Protocol[None]:
        """Judge rows, ledger and records in one snapshot."""
        try:
            rows = yield from attempt.scan(self.table)
            entries = yield from attempt.scan(self.ledger)
            records = yield from self._records_at(attempt)
        except DodonaError as error:
            attempt.give_up(error)
            raise
        attempt.end()
        self.snapshot_count += 1
        self._snapshots = [*self._snapshots[1 - SNAPSHOTS_MAX :], attempt.record.start]
        problem = self.problem(rows) or self.disagreement(rows, entries, records)
        if problem:
            self.flag(f"at {attempt.record.start} {problem}")

    def _records_at(self, attempt: Attempt) -> Protocol[list[Row]]:
        at = Timestamp(attempt.record.start)
        try:
            return list((yield from attempt.session.select(LOADS, timestamp=at)))
        except NodeNotFound:  # there was no load yet
            return []

    def problem(self, rows: list[dict[str, Any]]) -> str | None:
        found = {row["id"]: row for row in rows}
        return next(filter(None, [self._mixture(it, found) for it in self.bundles]), None)

    def _mixture(self, bundle: Bundle, rows: Mapping[int, Row]) -> str | None:
        """Return the error if its rows are not all of one write."""
        found = [rows.get(row, {}) for row in bundle]
        states = [(row.get("mark"), row.get("load")) for row in found]
        if all(state == states[0] for state in states):
            return None
        return f"the rows {bundle} are not one bundle: {states}"

    def disagreement(
        self, rows: Sequence[Row], entries: Sequence[Row], records: Sequence[Row]
    ) -> str | None:
        """Return the contradiction between the tables and the records of loads, in one snapshot."""
        since = next((row["version"] for row in entries if row["load"] == 0), None)
        if since is None:
            return "the ledger's first row is not there"
        told = [row["load"] for row in entries if row["load"] > 0]
        done = {row["load"]: row for row in records if row["state"] in DONE and row["load"] > since}
        told_by = [it for it, row in done.items() if self.ledger.path in row["tables"]]
        if sorted(told) != sorted(told_by):
            return f"the ledger has loads {sorted(told)}, but published are {sorted(told_by)}"
        early = [row for row in rows if row["load"] and row["load"] not in done]
        if early:
            return f"{early} are there, but their loads are not published"
        versions = [(it["application"], it["version"]) for it in entries if it["application"]]
        if len(set(versions)) != len(versions):
            return f"a version was published twice: {versions}"
        return None

    def check(self, history: History) -> list[Any]:
        """Check that versions of an application rise in the order of their publications."""
        last: dict[str, int] = {}
        done = [t for t in history.transactions if t.load and t.status == "ok"]
        for t in sorted(done, key=lambda t: t.commit or 0):
            for write in t.writes:
                columns = dict(write.columns or ())
                application, version = columns.get("application"), columns.get("version")
                if application is None or version is None:
                    continue
                if version <= last.get(application, -1):
                    self.flag(f"{t.name} published version {version} of {application} too late")
                last[application] = version
        return []
