"""What each workload's own check demands, by histories made by hand, and what runs contain."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from dodona.types import Key
from dodona_loadtest.checkers.appends import Append, Observe
from dodona_loadtest.histories.history import (
    History,
    LatestRead,
    Lock,
    Read,
    Scan,
    Transaction,
    Write,
)
from dodona_loadtest.workloads import (
    WORKLOADS,
    ColumnGroups,
    Counters,
    ListAppend,
    Retention,
    Sideband,
    SlowTransactions,
    Sums,
    UnlockedWriteSkew,
    WriteSkew,
)
from dodona_loadtest.workloads.sideband import Message
from dodona_tablets.core.node import NodeCore
from dodona_wire.expressions.farm_hash import farm_hash
from dodona_wire.rows.keys import decode_key
from simulator.simulation import Result, Simulation


def test_every_workload_is_listed_under_its_name() -> None:
    assert all(workload.name == name for name, workload in WORKLOADS.items())
    assert len(WORKLOADS) == 17


def test_no_version_grows_old_while_a_run_lasts() -> None:
    for workload in WORKLOADS.values():
        for table in workload(Random(1)).tables:
            assert table.attributes["min_data_ttl"] > 10**10


# Histories made by hand


class Tale:
    """Transactions one after the other, an instant each."""

    def __init__(self) -> None:
        self.history = History()
        self._now_us = 0

    def now(self) -> int:
        self._now_us += 1
        return self._now_us

    def add(
        self, status: Any, *writes: Write, reads: tuple[Read, ...] = (), scans: Any = ()
    ) -> Transaction:
        t = self.history.begin("s", self.now())
        t.start, t.begun_us = 10 * self._now_us, self.now()
        t.reads, t.scans, t.writes = list(reads), list(scans), list(writes)
        t.status = status
        t.commit_us = self.now() if writes else None
        t.commit = 10 * self._now_us if writes and status == "ok" else None
        t.end_us = None if status == "open" else self.now()
        return t


@pytest.fixture
def tale() -> Tale:
    return Tale()


# List append


def listing(workload: ListAppend, number: int, elements: str | None) -> Read:
    columns = None if elements is None else (("elements", tuple(elements.split(","))),)
    return Read(workload.table.row_key({"id": number}), columns)


def put(workload: ListAppend, number: int, elements: str) -> Write:
    row = {"id": number, "elements": elements.split(",")}
    return workload.table.write(row, is_update=False)


def append(tale: Tale, workload: ListAppend, status: str, before: str, element: str) -> Transaction:
    read = listing(workload, 0, before or None)
    text = f"{before},{element}" if before else element
    return tale.add(status, put(workload, 0, text), reads=(read,))


def test_a_history_becomes_appends_and_looks(tale: Tale) -> None:
    workload = ListAppend(Random(1))
    first, second = listing(workload, 0, "a,b"), listing(workload, 1, None)
    t = tale.add("ok", put(workload, 1, "c,d"), reads=(first, second))
    scan = Scan(workload.table.path, b"", b"\xff", (first,))
    tale.add("ok", scans=(scan,))
    old = tale.add("ok", reads=(first,))
    old.is_fresh = False
    tale.history.latest_reads.append(LatestRead(70, 71, first))
    found = workload.transactions(tale.history)
    empty = [Observe(str(number), ()) for number in range(1, workload.list_count)]
    assert [it.operations for it in found] == [
        (Observe("0", ("a", "b")), Observe("1", ()), Append("1", "c"), Append("1", "d")),
        (Observe("0", ("a", "b")), *empty),
        (Observe("0", ("a", "b")),),
    ]
    assert (found[0].name, found[0].session, found[0].status) == (t.name, "s", "ok")
    assert (found[0].begin_us, found[0].end_us) == (t.begin_us, t.end_us)
    assert (found[2].begin_us, found[2].end_us) == (70, 71)
    assert len({it.session for it in found}) == 2


def test_a_transaction_that_was_never_sent_has_failed(tale: Tale) -> None:
    workload = ListAppend(Random(1))
    t = append(tale, workload, "open", "", "x")
    assert workload.transactions(tale.history)[0].status == "open"
    t.commit_us = None
    assert workload.transactions(tale.history)[0].status == "fail"


def test_lists_that_lose_or_find_elements(tale: Tale) -> None:
    workload = ListAppend(Random(1))
    append(tale, workload, "ok", "", "a")
    append(tale, workload, "fail", "a", "b")
    append(tale, workload, "info", "a", "c")
    look = tale.add("ok", reads=(listing(workload, 0, "a"),))
    look.session = "another"
    assert workload.check(tale.history) == []
    look.reads = [listing(workload, 0, "a,c")]
    assert workload.check(tale.history) == []
    for elements, promise in (("", "REAL-TIME"), ("a,b", "G1A")):
        look.reads = [listing(workload, 0, elements or None)]
        assert promise in [it.promise for it in workload.check(tale.history)], elements


def test_a_list_with_an_element_twice() -> None:
    workload = ListAppend(Random(1))

    def row(number: int, elements: list[str]) -> dict[str, Any]:
        return {"hash": farm_hash(number) % 1024, "id": number, "elements": elements}

    assert workload.problem([row(0, ["a", "b"]), row(1, ["a"])]) is None
    said = workload.problem([row(0, ["a"]), row(1, ["b", "a", "b"])])
    assert said is not None
    assert said.startswith("list 1")
    assert not workload.violations


# Write skew


def duties(workload: WriteSkew, away: tuple[int, ...]) -> list[dict[str, Any]]:
    return [
        {"id": doctor, "is_on_duty": doctor not in away, "writer": f"w{doctor}"}
        for doctor in range(2 * workload.pair_count)
    ]


def test_write_skew_reports_a_pair_without_a_member_on_duty() -> None:
    workload = WriteSkew(Random(1))
    assert workload.problem(duties(workload, ())) is None
    assert workload.problem(duties(workload, (0,))) is None
    assert workload.problem(duties(workload, (0, workload.pair_count))) is not None
    assert workload.problem(duties(workload, ())[1:]) is not None
    unlocked = UnlockedWriteSkew(Random(1))
    assert unlocked.problem(duties(unlocked, (0, unlocked.pair_count))) is None


def test_skews_are_counted_once_each(tale: Tale) -> None:
    workload = UnlockedWriteSkew(Random(1))
    reads = [
        Read(workload.table.row_key(row), workload.table.columns_read(row))
        for row in duties(workload, (0, workload.pair_count))
    ]
    for _ in range(3):
        tale.add("ok", reads=tuple(reads))
    tale.add("ok", reads=(reads[0],))
    assert workload.check(tale.history) == []
    assert workload.counts == {"skews": 1}


# Column groups


def raised(workload: ColumnGroups, group: str, count: int, writer: str) -> Write:
    row = {"id": 0, f"{group}_count": count, f"{group}_writer": writer}
    return workload.table.write(row, is_update=True)


def look_at(workload: ColumnGroups | Sums, tale: Tale, *rows: dict[str, Any]) -> None:
    table = workload.table
    reads = tuple(Read(table.row_key(row), table.columns_read(row) or ()) for row in rows)
    tale.add("ok", scans=(Scan(table.path, b"", b"\xff", reads),))


@pytest.mark.parametrize(("count", "is_wrong"), [(0, True), (1, False), (2, False), (3, True)])
def test_a_counter_is_between_the_sure_and_the_unsure_raises(
    tale: Tale, count: int, is_wrong: bool
) -> None:
    workload = ColumnGroups(Random(1))
    tale.add("ok", raised(workload, "a", 1, "x"))
    tale.add("fail", raised(workload, "a", 2, "y"))
    tale.add("info", raised(workload, "a", 2, "z"))
    look_at(workload, tale, {"id": 0, "a_count": count})
    assert bool(workload.check(tale.history)) is is_wrong


def test_commits_side_by_side_are_counted(tale: Tale) -> None:
    workload = ColumnGroups(Random(1))
    first = tale.add("ok", raised(workload, "a", 1, "x"))
    second = tale.add("ok", raised(workload, "b", 1, "y"))
    workload.check(tale.history)
    assert workload.counts == {"side by side": 0}
    second.start = first.start
    workload.check(tale.history)
    assert workload.counts == {"side by side": 1}
    second.writes = [raised(workload, "a", 1, "y")]
    workload.check(tale.history)
    assert workload.counts == {"side by side": 1}


def test_rows_that_are_half_of_a_group() -> None:
    workload = ColumnGroups(Random(1))
    names = [column.name for column in workload.table.value_columns]
    rows = [{"id": number, **dict.fromkeys(names, 1)} for number in range(0, workload.row_count, 2)]
    assert workload.problem(rows) is None
    assert workload.problem(rows[1:]) is not None
    assert workload.problem([rows[0] | {"b_writer": None}, *rows[1:]]) is not None


# Sums


def change(workload: Sums, number: int, amount: int, writer: str) -> Write:
    row = {"id": number, "balance": amount, "changes": 1, "writer": writer}
    return workload.table.write(row, is_update=True, is_aggregate=True)


def test_changes_are_recorded_as_such() -> None:
    workload = Sums(Random(1))
    assert change(workload, 0, 5, "x").added == ("balance", "changes")
    plain = {"id": 0, "balance": 5, "changes": 1, "writer": "x"}
    assert workload.table.write(plain, is_update=False).added == ()


@pytest.mark.parametrize(("changes", "is_wrong"), [(1, True), (2, False), (3, False), (4, True)])
def test_sums_accepts_a_count_of_the_sure_and_some_unsure_changes(
    tale: Tale, changes: int, is_wrong: bool
) -> None:
    workload = Sums(Random(1))
    tale.add("ok", change(workload, 0, 5, "x"), change(workload, 1, -5, "y"))
    tale.add("info", change(workload, 0, 6, "z"))
    tale.add("fail", change(workload, 0, 6, "z"))
    look_at(workload, tale, {"id": 0, "balance": 5, "changes": changes})
    assert bool(workload.check(tale.history)) is is_wrong


def test_balances_that_do_not_cancel_out() -> None:
    workload = Sums(Random(1))
    rows = [{"id": number, "balance": 0} for number in range(workload.row_count)]
    assert workload.problem(rows) is None
    assert workload.problem(rows[1:]) is not None
    assert workload.problem([rows[0] | {"balance": 1}, *rows[1:]]) is not None


# Counters


def test_a_row_that_is_half_of_one_write() -> None:
    workload = Counters(Random(1))
    row = {"id": 1, "mark": "x", "count": 0, "twin": "x"}
    assert workload.problem([row]) is None
    assert workload.problem([row, row | {"twin": "y"}]) is not None


# Sideband


@pytest.mark.parametrize(
    ("number", "row", "is_blind"),
    [
        (0, None, True),
        (0, {"wave": 5, "mark": "told"}, False),
        (0, {"wave": 6, "mark": "other"}, False),
        (0, {"wave": 5, "mark": "other"}, True),
        (0, {"wave": 6, "mark": "early"}, True),
        (1, {"wave": 2, "mark": "other"}, False),
        (1, {"wave": 2, "mark": "early"}, True),
        (1, {"wave": 9, "mark": "late"}, False),
    ],
)
def test_a_reader_that_heard_of_a_commit_must_see_that_commit_or_a_later_one(
    number: int, row: dict[str, Any] | None, is_blind: bool
) -> None:
    workload = Sideband(Random(1))
    workload._commits = {"early": 40, "reported": 50, "late": 60}
    heard = Message("s", number, 5, "told", 50, 1)
    assert (workload.blindness(row, heard) is not None) is is_blind


# What runs contain


def run(name: str, seed: int) -> tuple[Result, Simulation]:
    simulation = Simulation(seed, 15, name, NodeCore)
    result = simulation.run()
    assert result.violations == [], f"replay: {result.command}"
    return result, simulation


def counted(name: str, seeds: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        counts.update(run(name, seed)[0].counts)
    return counts


@pytest.mark.slow("many seeds")
def test_write_skew_occurs_only_in_the_workload_without_read_locks() -> None:
    assert counted("unlocked_write_skew", 8)["skews"] > 10
    assert counted("write_skew", 8)["skews"] == 0


@pytest.mark.slow("many seeds")
def test_writers_of_different_groups_really_go_side_by_side() -> None:
    counts = counted("column_groups", 8)
    assert counts["side by side"] > 20
    assert counts["conflicts"] > 20


@pytest.mark.slow("many seeds")
def test_a_run_of_sideband_contains_many_reads_after_a_message() -> None:
    assert counted("sideband", 6)["told after hearing"] > 300


@pytest.mark.slow("many seeds")
def test_slow_transactions_are_turned_away_and_meet_locks_of_both_kinds() -> None:
    counts: Counter[str] = Counter()
    kinds: Counter[bool] = Counter()
    for seed in range(16):
        result, simulation = run("slow_transactions", seed)
        counts.update(result.counts)
        committed = [t for t in simulation.history.transactions if t.status == "ok"]
        kinds.update(lock.is_exclusive for t in committed for lock in t.locks)
    assert counts["slow commits"] > 10
    assert counts["turned away"] > 10
    assert counts["run again"] > 20
    assert kinds[True] > 20
    assert kinds[False] > 20


def test_a_counter_that_lost_a_raise(tale: Tale) -> None:
    workload = SlowTransactions(Random(1))
    table = workload.table
    tale.add("ok", table.write({"id": 0, "count": 1, "writer": "x"}, is_update=True))
    tale.add("info", table.write({"id": 0, "count": 2, "writer": "y"}, is_update=True))
    rows = [{"id": number, "count": 0, "writer": "w"} for number in workload.counters]
    for count, is_wrong in ((0, True), (1, False), (2, False), (3, True)):
        reads = [
            Read(table.row_key(row), table.columns_read({**row, "count": count}) or ())
            for row in rows[:1]
        ]
        tale.add("ok", scans=(Scan(table.path, b"", b"\xff", tuple(reads)),))
        assert bool(workload.check(tale.history)) is is_wrong, count
    assert workload.problem(rows) is None
    assert workload.problem(rows[1:]) is not None


@pytest.mark.slow("simulates many clusters")
@pytest.mark.part("rows that expire")
def test_rows_that_expire_come_by_transactions_and_by_loads_beside_locks() -> None:
    """Seeds differ a hundredfold: so several together have to show so many times as much."""
    seeds = range(1, 5)
    counts = sum((Counter(run("retention", seed)[0].counts) for seed in seeds), Counter[str]())
    assert counts["passing rows written"] > 10 * len(seeds)
    assert counts["passing rows loaded"] > 10 * len(seeds)
    assert counts["locked without data"] > 5 * len(seeds)
    assert counts["young rows looked for"] > 50 * len(seeds)


def test_retention_reports_a_row_with_another_mark_and_a_refused_row() -> None:
    """And one that has another mark, or was refused: no row is written twice."""
    workload = Retention(Random(1))
    rows = [{"lane": 0, "n": number, "mark": f"m{number}"} for number in range(3)]
    workload._note(rows)
    workload._acknowledge(rows[:1], 7)
    workload._forget(rows[2:])
    assert workload._committed == {(0, 0): 7}
    workload._judge_found(9, {(0, 0): "m0", (0, 1): "m1"})
    assert workload.violations == []
    workload._judge_found(9, {(0, 0): "other"})
    workload._judge_found(9, {(0, 2): "m2"})
    assert ["has other" in it.text or "refused" in it.text for it in workload.violations] == [
        True
    ] * 2


@pytest.mark.slow("many seeds")
def test_changes_go_side_by_side_only_with_shared_locks() -> None:
    shared: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for seed in range(10):
        result, simulation = run("sums", seed)
        assert isinstance(simulation.workload, Sums)
        has_plain = simulation.workload.plain_rate > 0
        if not has_plain:
            (shared if simulation.workload.is_shared else alone).update(result.counts)
    assert shared["changes"] > 100
    assert shared["conflicts"] == 0
    assert alone["conflicts"] > 10


def test_appends_of_many_lists_are_in_a_run() -> None:
    assert counted("list_append", 6)["appends"] > 500


def test_lists_are_nested_values_below_a_computed_column() -> None:
    _, simulation = run("list_append", 3)
    workload = simulation.workload
    assert isinstance(workload, ListAppend)
    hashed, number, elements = workload.table.columns
    assert (hashed.expression, elements.type) == ("farm_hash(id) % 1024", "list<utf8>")
    writes = [it for t in simulation.history.transactions for it in t.writes]
    keys = {decode_key(Key(it.row.key), (hashed.key_type, number.key_type)) for it in writes}
    assert keys == {(farm_hash(it) % 1024, it) for it in range(workload.list_count)}
    assert all(type(value) is tuple for it in writes for _, value in it.columns or ())


def test_a_row_with_another_computed_value_is_flagged() -> None:
    workload = ListAppend(Random(1))
    row = {"hash": farm_hash(3) % 1024, "id": 3, "elements": ["a"]}
    assert workload.problem([row]) is None
    assert not workload.violations
    workload.problem([{**row, "hash": farm_hash(4) % 1024}])
    (violation,) = workload.violations
    assert violation.promise == "INVARIANT"
    assert "list 3 has the hash" in violation.text
    assert workload.problem([{**row, "elements": ["a", "a"]}]) is not None


def test_a_key_is_whole_in_a_history_even_if_a_session_leaves_out_the_computed_column() -> None:
    table = ListAppend(Random(1)).table
    whole = {"hash": farm_hash(5) % 1024, "id": 5}
    assert table.row_key({"id": 5}) == table.row_key(whole)
    assert table.row_key({**whole, "hash": 0}) == table.row_key(whole)
    assert table.key_text({"id": 5}) == repr(whole)


def test_locks_are_recorded_with_their_groups() -> None:
    _, simulation = run("write_skew", 2)
    locks = [lock for t in simulation.history.transactions for lock in t.locks]
    assert locks
    assert all(lock.is_strong and lock.groups == (1,) for lock in locks)
    _, simulation = run("unlocked_write_skew", 2)
    weak = [lock for t in simulation.history.transactions for lock in t.locks]
    assert weak
    assert all(lock == Lock(lock.row, False, (1,)) for lock in weak)


@pytest.mark.slow("many seeds")
def test_crashes_lose_writes_that_were_acknowledged_from_memory() -> None:
    """And clocks are refused, rows are left unsure, and some calls are half done."""
    wanted = {"rows ok": 1000, "rows info": 50, "clock refused": 50, "lost": 0}
    counts: Counter[str] = Counter()
    for seed in range(60):  # which of the first seeds show all of it, nobody can say beforehand
        result, simulation = run("counters", seed)
        counts.update(result.counts)
        dumped = {(it.row, it.columns) for it in simulation.cluster.dump()}
        counts["lost"] += sum(
            write.status == "ok" and (write.write.row, write.write.columns) not in dumped
            for write in simulation.history.stamped_writes
        )
        if all(counts[name] > floor for name, floor in wanted.items()):
            return
    pytest.fail(f"60 seeds do not show it: {counts}")
