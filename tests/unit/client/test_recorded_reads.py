"""What a serializable transaction records of its reads, played by hand."""

from typing import Any

import pytest

from dodona._core.protocol.steps import Target
from dodona._core.writing.reads import ReadKeys
from dodona.schema import Column
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    Revision,
    TabletId,
    TransactionId,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable
from dodona_wire.messages.data import (
    CommitOne,
    Lookup,
    LookupReply,
    TabletModifications,
)
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.reads import ReadRange
from dodona_wire.rows.keys import successor
from unit.client.protocols import (
    COLUMNS,
    PATH,
    Play,
    key,
    play,
    table,
)
from unit.client.serializable import (
    AT,
    GROUPS,
    KEYS,
    MAIN,
    START,
    A,
    B,
    Bench,
    Read,
    cells,
    part_of,
    single,
)

# ---- what is recorded


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        pytest.param(
            lambda session, tx: session.lookup_rows(PATH, KEYS, **AT, transaction=tx),
            [single(1), single(2), single(100)],
            id="keys, present and absent",
        ),
        pytest.param(
            lambda session, tx: session.lookup_rows(PATH, KEYS[:1], **AT, transaction=tx),
            [single(1)],
            id="the fast path",
        ),
        pytest.param(
            lambda session, tx: session.lookup_versions(PATH, KEYS[:2], **AT, transaction=tx),
            [single(1), single(2)],
            id="versions",
        ),
        pytest.param(
            lambda session, tx: session.select(PATH, [5], [150], **AT, transaction=tx),
            [ReadRange(key(5), key(150), MAIN)],
            id="a range",
        ),
        pytest.param(
            lambda session, tx: session.select(PATH, **AT, transaction=tx),
            [ReadRange(KEY_MIN, KEY_MAX, MAIN)],
            id="everything",
        ),
        pytest.param(
            lambda session, tx: session.first_rows(
                PATH, 9, 1_000, [5], [150], **AT, transaction=tx
            ),
            [ReadRange(key(5), key(150), MAIN)],
            id="first rows of few",
        ),
        pytest.param(
            lambda session, tx: session.first_rows(PATH, 2, 1_000, [5], **AT, transaction=tx),
            [ReadRange(key(5), successor(key(100)), MAIN)],
            id="first rows of many, and the key behind them",
        ),
        pytest.param(
            lambda session, tx: session.first_rows(PATH, 9, 1, [5], **AT, transaction=tx),
            [ReadRange(key(5), successor(key(99)), MAIN)],
            id="as many bytes as wanted",
        ),
    ],
)
def test_each_way_of_reading_is_recorded(read: Read, expected: list[ReadRange]) -> None:
    bench = Bench()
    bench.run(read(bench.session, bench.tx))
    assert [ReadRange(*it) for it in bench.noted()] == expected


@pytest.mark.parametrize("isolation", ["snapshot", None])
def test_transactions_that_are_not_serializable_are_not_validated(isolation: Any) -> None:
    bench = Bench(isolation=isolation)
    bench.look_up(1)
    bench.select()
    assert bench.tx.validated == {}
    bench.write(1)
    assert bench.commit().call == (0, CommitOne(TransactionId(START), bench_parts(bench)))


def bench_parts(bench: Bench) -> tuple[TabletModifications, ...]:
    writes = tuple(bench.tx.tables[PATH].writes.values())
    return (TabletModifications(TabletId(10), Revision(1), writes),)


def test_a_transaction_without_atomicity_records_nothing() -> None:
    bench = Bench(table(atomicity="none"))
    tx = bench.begin(atomicity="none")
    bench.run(bench.session.lookup_rows(PATH, KEYS, transaction=tx))
    assert tx.reads is None
    bench.look_up(1)
    assert bench.tx.reads is not None
    assert bench.tx.reads.tables == {}, "no more is known of such a table in a full one"


def test_the_groups_of_the_columns_that_are_read_are_recorded() -> None:
    bench = Bench(table(columns=GROUPS))
    for columns in (["a"], ["id", "b"], ["id"], None):
        bench.tx = bench.begin(isolation="serializable")
        bench.look_up(1, columns=columns)
        expected = {("a",): A, ("id", "b"): B, ("id",): MAIN | A | B}
        mask = A | B if columns is None else expected[tuple(columns)]
        assert bench.noted() == [ReadKeys(key(1), successor(key(1)), mask)]


def test_a_read_is_recorded_before_it_is_answered() -> None:
    reads: list[Read] = [
        lambda session, tx: session.lookup_rows(PATH, KEYS, **AT, transaction=tx),
        lambda session, tx: session.lookup_rows(PATH, KEYS[:1], **AT, transaction=tx),
        lambda session, tx: session.select(PATH, **AT, transaction=tx),
    ]
    for read in reads:
        bench = Bench()
        Play(bench.clock, read(bench.session, bench.tx)).give_up()
        assert bench.noted()


def test_first_rows_that_fail_half_way_are_recorded_up_to_there() -> None:
    bench = Bench()
    read = bench.session.first_rows(PATH, 9, 1_000, [1], **AT, transaction=bench.tx)
    play = Play(bench.clock, read)
    play.answer(cells(*play.call))
    play.give_up()
    assert bench.noted() == [ReadKeys(key(1), key(99), MAIN)]


def test_rows_under_the_snapshot_of_own_writes_are_recorded() -> None:
    bench = Bench()
    bench.tx = bench.begin(isolation="serializable", read_own_writes=True)
    bench.write(1)
    bench.look_up(1)
    assert bench.noted() == [ReadKeys(key(1), successor(key(1)), MAIN)]
    read = bench.session.first_rows(PATH, 1, 1_000, **AT, transaction=bench.tx)
    bench.run(read)
    assert bench.noted()[1:] == [ReadKeys(KEY_MIN, successor(key(5)), MAIN)]


def test_a_schema_that_was_old_leaves_no_reads() -> None:
    bench = Bench(table())
    new = table(columns=(*COLUMNS, Column("new", "int64")))

    def altered(target: Target, body: Request) -> Reply:
        if isinstance(body, GetTable):
            return new
        assert isinstance(body, Lookup)
        if body.column_mask != 0b111:
            return Failure("invalid_request", "another schema")
        return LookupReply(((1, None, None),))

    read = bench.session.lookup_rows(PATH, KEYS[:1], **AT, transaction=bench.tx)
    play(bench.clock, read, altered)
    bench.write(7)
    assert part_of(bench.commit().call[1], 10).reads == (single(1),)
