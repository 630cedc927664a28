"""Commits of serializable transactions, played by hand: what they send, and what is refused."""

import pytest

from dodona._core.protocol.retry import LOCKED_ROWS_MAX
from dodona._core.protocol.steps import MASTER, Target
from dodona._core.writing.conditions import requirement_of
from dodona._core.writing.reads import READS_MAX
from dodona.errors import InvalidRequest, TableNotMounted, TransactionAborted, TransactionConflict
from dodona.schema import Column
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    CellId,
    Key,
    Revision,
    TabletId,
    Timestamp,
    TransactionId,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    ConditionalCommit,
    Prepare,
    TabletModifications,
    TimestampRange,
    ValidatedCommit,
    bare_commit,
)
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.reads import ReadRange
from unit.client.protocols import (
    COLUMNS,
    CONFLICT,
    MOVED,
    PATH,
    TWO_TABLETS,
    Play,
    key,
    nobody,
    play,
    table,
    tablet,
)
from unit.client.serializable import MAIN, OTHER, START, Bench, part_of, single

# ---- what the commit sends


def test_a_transaction_that_has_only_read_sends_nothing() -> None:
    bench = Bench()
    bench.look_up(1, 2)
    bench.select()
    assert play(bench.clock, bench.session.commit(bench.tx), nobody) is None
    assert bench.tx.reads is None


def test_reads_of_one_cell_are_sent_with_its_writes() -> None:
    bench = Bench()
    bench.look_up(2, 5)
    bench.select([3], [4])
    bench.write(1)
    commit = bench.commit()
    assert commit.call[0] == 0
    part = part_of(commit.call[1], 10)
    assert [it[0] for it in part.writes] == [key(1)]
    assert part.reads == (single(2), single(5), ReadRange(key(3), key(4), MAIN))
    commit.answer(Committed(TransactionId(START), Timestamp(70)))
    assert commit.result == 70
    assert bench.tx.reads is None


def test_rows_that_are_overwritten_need_no_validation() -> None:
    bench = Bench()
    bench.look_up(1)
    bench.write(1)
    assert isinstance(bench.commit().call[1], CommitOne)


def test_a_tablet_that_was_only_read_takes_part() -> None:
    bench = Bench()
    bench.select([50])
    bench.write(1)
    commit = bench.commit()
    assert [target for target, _ in commit.calls] == [0, 1]
    (_, first), (_, second) = commit.calls
    assert part_of(first, 10).reads == (ReadRange(key(50), key(100), MAIN),)
    assert part_of(second, 11) == TabletModifications(
        TabletId(11), Revision(1), (), reads=(ReadRange(key(100), KEY_MAX, MAIN),)
    )
    assert bare_commit(second).participants == (CellId(0), CellId(1))  # type: ignore[attr-defined]


def test_only_cells_with_reads_get_them() -> None:
    bench = Bench()
    bench.look_up(150)
    bench.write(1)
    (_, first), (_, second) = bench.commit().calls
    assert isinstance(first, Prepare)
    assert part_of(second, 11).reads == (single(150),)


def test_a_table_that_was_only_read_takes_part() -> None:
    there = table((tablet(12, 2, None),), path=OTHER)
    bench = Bench(table(), there)
    bench.look_up(7, path=OTHER)
    bench.write(1)
    bench.session.routing.forget(OTHER)
    commit = bench.commit()
    assert commit.call == (MASTER, GetTable(OTHER))
    commit.answer(there)
    assert [target for target, _ in commit.calls] == [0, 2]
    assert part_of(commit.calls[1][1], 12).reads == (single(7),)


def test_all_of_a_wide_range_is_divided_among_tablets() -> None:
    tablets = (tablet(10, 0, None), tablet(11, 1, 10), tablet(12, 0, 20), tablet(13, 1, 30))
    bench = Bench(table(tablets))
    bench.select()
    bench.write(1)
    ends = [KEY_MIN, key(10), key(20), key(30), KEY_MAX]
    found = {}
    for _, body in bench.commit().calls:
        bare = bare_commit(body)
        assert isinstance(bare, Prepare)
        found.update({it.tablet: it.reads for it in bare.modifications})
    assert found == {
        10 + at: (ReadRange(ends[at], ends[at + 1], MAIN),) for at in range(len(tablets))
    }


def test_reads_are_divided_anew_for_each_attempt() -> None:
    bench = Bench(table((tablet(10, 0, None),)))
    bench.select([1], [150])
    bench.write(1)
    commit = bench.commit()
    assert part_of(commit.call[1], 10).reads == (ReadRange(key(1), key(150), MAIN),)
    commit.answer(MOVED)
    commit.wait()
    commit.answer(table(TWO_TABLETS))
    (_, first), (_, second) = commit.calls
    assert part_of(first, 10).reads == (ReadRange(key(1), key(100), MAIN),)
    assert part_of(second, 11).reads == (ReadRange(key(100), key(150), MAIN),)


def test_reads_are_around_conditions() -> None:
    bench = Bench()
    bench.look_up(2)
    bench.write(1, required=requirement_of(True, None, None))
    body = bench.commit().call[1]
    assert isinstance(body, ValidatedCommit)
    assert isinstance(body.request, ConditionalCommit)
    assert part_of(body, 10).reads == (single(2),)


def test_locks_alone_are_committed_with_reads() -> None:
    bench = Bench()
    bench.look_up(2)
    keys = [{"id": 1}]
    bench.run(bench.session.lock_rows(bench.tx, PATH, keys))
    part = part_of(bench.commit().call[1], 10)
    assert (part.writes, part.reads) == ((), (single(2),))


def test_very_many_reads_are_sent_as_few() -> None:
    bench = Bench(table((tablet(10, 0, None),)))
    bench.look_up(*range(3 * READS_MAX))
    bench.write(-1)
    reads = part_of(bench.commit().call[1], 10).reads
    assert 1 <= len(reads) <= READS_MAX
    for number in range(3 * READS_MAX):
        wanted = key(number)
        assert any(it.lower <= wanted < it.upper for it in reads)


# ---- tables that are not as they were


@pytest.mark.parametrize("path", [PATH, OTHER])
@pytest.mark.parametrize("change", ["schema", "table"])
def test_a_table_that_changed_after_it_was_read_aborts(path: str, change: str) -> None:
    bench = Bench(table(its_id=1), table(path=OTHER, its_id=2))
    bench.look_up(7, path=path)
    columns = (*COLUMNS, Column("new", "int64")) if change == "schema" else COLUMNS
    bench.session.routing.learn(table(path=path, columns=columns, its_id=9))
    bench.write(1)
    with pytest.raises(TransactionAborted) as caught:
        bench.commit()
    assert caught.value.attributes["table"] == path
    assert bench.tx.is_aborted


def test_a_table_that_was_read_must_still_be_atomic() -> None:
    bench = Bench()
    bench.look_up(7, path=OTHER)
    bench.write(1)
    bench.session.routing.learn(table(path=OTHER, atomicity="none"))
    commit = bench.commit()
    with pytest.raises(InvalidRequest, match="atomicity"):
        commit.answer(table(path=OTHER, atomicity="none"))


def test_a_tablet_that_was_only_read_may_be_frozen() -> None:
    there = table((tablet(12, 2, None, state="frozen"),), path=OTHER)
    bench = Bench(table(), there)
    bench.look_up(7, path=OTHER)
    bench.write(1)
    assert part_of(bench.commit().calls[1][1], 12).reads == (single(7),)


def test_a_table_that_was_read_must_be_mounted_at_the_commit() -> None:
    there = table((tablet(12, 2, None, state="unmounted"),), path=OTHER)
    bench = Bench()
    bench.look_up(7, path=OTHER)
    bench.write(1)
    bench.session.routing.learn(there)

    def master(target: Target, body: Request) -> Reply:
        assert isinstance(body, GetTable)
        return there if body.path == OTHER else table()

    with pytest.raises(TableNotMounted) as caught:
        play(bench.clock, bench.session.commit(bench.tx), master)
    assert caught.value.attributes["table"] == OTHER


# ---- refusals


def test_a_conflict_of_a_read_passes_through() -> None:
    bench = Bench()
    bench.look_up(2)
    bench.write(1)
    about = {"table": PATH, "range": [[1], [5]], "winner_timestamp": 60}
    with pytest.raises(TransactionConflict) as caught:
        bench.commit().answer(Failure("transaction_conflict", "it was changed", about))
    assert caught.value.attributes == about


def refused(bench: Bench) -> dict[str, list[Key]]:
    commit = bench.commit()
    with pytest.raises(TransactionConflict):
        commit.answer(*[CONFLICT for _ in commit.calls])
    return bench.tx.refused_rows


def test_keys_that_were_read_are_locked_in_a_later_attempt() -> None:
    bench = Bench(table((tablet(10, 0, None),)), table((tablet(11, 0, None),), path=OTHER))
    bench.look_up(2, 3)
    bench.look_up(4, path=OTHER)
    bench.select([7], [9])
    bench.write(1, 2)
    assert refused(bench) == {PATH: [key(1), key(2), key(3)], OTHER: [key(4)]}


def test_very_many_keys_that_were_read_are_not_locked() -> None:
    bench = Bench(table((tablet(10, 0, None),)))
    bench.look_up(*range(1, LOCKED_ROWS_MAX + 1))
    bench.write(0)
    assert refused(bench) == {PATH: [key(0)]}


def test_an_attempt_has_the_isolation_of_the_function() -> None:
    bench = Bench()
    rerun = bench.session.rerun(None, 1_000)
    begun = Play(bench.clock, bench.session.begin_attempt(rerun, (), "serializable"))
    begun.answer(TimestampRange(Timestamp(START), 1))
    assert begun.result.isolation == "serializable"
    assert begun.result.reads is not None
