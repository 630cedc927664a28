"""What an altered table's rows become: in the tablet itself, in copies, and from other cells."""

from typing import Any

import pytest
from msgspec.structs import replace

from dodona.keys import encode_key, first_columns, successor
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
)
from dodona_tablets.core.rows.migration import Migration, pack_version, plain_version, range_in
from dodona_tablets.core.rows.version import Version
from dodona_wire.messages.catalog import TabletAssignment, TabletSource
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    Lookup,
    LookupReply,
    RowVersion,
    TabletModifications,
)
from dodona_wire.rows.columns import SortOrder
from unit.tablets.cells import ATOMIC, SCHEMA, Bench, assignment, put, update

CELL = CellId(0)
ID, A, B = SCHEMA.columns
NEW_KEY = Column("id2", "int64", sort_order="ascending")
ALTERED = TableSchema.parse([ID, NEW_KEY, Column("c", "any"), replace(B, lock=None), A])
"""A key column more, a value column more, the others in another order."""


def mount(bench: Bench, schema: TableSchema, revision: int) -> None:
    it = replace(assignment(ATOMIC, "full", Revision(revision)), columns=schema.columns)
    bench.assign(CELL, [])
    bench.assign(CELL, [it])
    bench.answer_oracle()


def rows(bench: Bench, schema: TableSchema, revision: int, *keys: dict[str, Any]) -> list[Any]:
    request = Lookup(
        ATOMIC,
        Revision(revision),
        SYNC_LAST_COMMITTED,
        tuple(schema.key_of(it) for it in keys),
        schema.pack_mask(schema.full_mask),
    )
    reply = bench.answer(bench.ask(request))
    assert isinstance(reply, LookupReply), reply
    return list(reply.rows)


def test_rows_follow_their_columns_by_name_and_new_columns_are_null() -> None:
    bench = Bench()
    bench.commit(put(1, 10, "one"))
    bench.commit(update(1, b="two"))
    bench.commit(put(2, 20))
    mount(bench, ALTERED, 2)
    keys: list[dict[str, Any]] = [
        {"id": 1, "id2": None},
        {"id": 2, "id2": None},
        {"id": 2, "id2": 0},
    ]
    expected = [(None, "two", 10), (None, None, 20), None]
    assert rows(bench, ALTERED, 2, *keys) == expected
    bench.start(CELL)
    assert rows(bench, ALTERED, 2, *keys) == expected


def test_null_and_nought_in_a_new_key_column_are_two_rows() -> None:
    bench = Bench()
    bench.commit(put(1, 10))
    mount(bench, ALTERED, 2)
    write = ALTERED.write_of({"id": 1, "id2": 0, "a": 11})
    part = TabletModifications(ATOMIC, Revision(2), (write,))
    route = bench.ask(CommitOne(bench.begin(), (part,)))
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)
    keys: list[dict[str, Any]] = [{"id": 1, "id2": None}, {"id": 1, "id2": 0}]
    assert rows(bench, ALTERED, 2, *keys) == [(None, None, 10), (None, None, 11)]
    bench.start(CELL)
    assert rows(bench, ALTERED, 2, *keys) == [(None, None, 10), (None, None, 11)]


def test_a_snapshot_from_before_reads_the_same_afterwards() -> None:
    bench = Bench()
    first = bench.commit(put(1, 10, "one"))
    bench.commit(update(1, a=11))
    mount(bench, ALTERED, 2)
    keys = (ALTERED.key_of({"id": 1, "id2": None}),)
    reply = bench.answer(bench.ask(Lookup(ATOMIC, Revision(2), first, keys, 7)))
    assert isinstance(reply, LookupReply)
    assert reply.rows == ((None, "one", 10),)


def test_text_becomes_bytes() -> None:
    bench = Bench()
    bench.commit(put(1, 10, "ä"))
    bench.commit(put(2, 20, None))
    bytes_schema = TableSchema.parse([ID, A, replace(B, type="string")])
    mount(bench, bytes_schema, 2)
    expected = [(10, "ä".encode()), (20, None)]
    assert rows(bench, bytes_schema, 2, {"id": 1}, {"id": 2}) == expected


def test_a_text_key_is_the_same_bytes() -> None:
    old = TableSchema.parse([Column("k", "utf8", sort_order="ascending"), A])
    new = TableSchema.parse([Column("k", "string", sort_order="ascending"), A])
    assert Migration(old, new).key(old.key_of({"k": "ä"})) == new.key_of({"k": "ä".encode()})


@pytest.mark.parametrize("is_remote", [False, True])
def test_rows_taken_over_from_an_older_schema_are_found_by_name(is_remote: bool) -> None:
    bench = Bench(2)
    home = CellId(int(is_remote))
    for number in range(4):
        bench.commit(put(number, number, "x"), cell=home)
    bench.assign(home, [])
    lower, upper = _bound(1, 0), _bound(3, 0)  # 1 and null is just below, 3 and null in it
    new = TabletAssignment(
        TabletId(9),
        Revision(2),
        "//test/new",
        ALTERED.columns,
        "full",
        lower,
        upper,
        sources=(TabletSource(ATOMIC, home),),
    )
    bench.assign(CELL, [new])
    bench.settle()
    dumped = bench.nodes[CELL].cell.tablets[TabletId(9)].dump()
    assert [ALTERED.decode_key(key) for key, _ in dumped] == [(2, None), (3, None)]
    assert [versions[0][1:] for _, versions in dumped] == [(0b110, ("x", 2)), (0b110, ("x", 3))]
    bench.start(CELL)
    assert bench.nodes[CELL].cell.tablets[TabletId(9)].dump() == dumped


# The pieces


def _bound(*values: int | None) -> Key:
    return encode_key(values, ["int64", "int64"])


@pytest.mark.parametrize(
    ("lower", "upper", "found"),
    [
        (KEY_MIN, KEY_MAX, [1, 2, 3]),
        (_bound(2), KEY_MAX, [2, 3]),
        (_bound(2, None), KEY_MAX, [2, 3]),
        (_bound(2, 0), KEY_MAX, [2, 3]),  # 2 and null is below: whoever asked leaves it out
        (KEY_MIN, _bound(2), [1]),
        (KEY_MIN, _bound(2, 0), [1, 2]),
        (successor(_bound(2)), KEY_MAX, [3]),
    ],
)
def test_a_range_of_longer_keys_is_found_among_shorter_ones(
    lower: Key, upper: Key, found: list[int]
) -> None:
    low, high = range_in(SCHEMA, lower, upper)
    assert [it for it in (1, 2, 3) if low <= _bound(it) < high] == found


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_a_new_key_column_is_null_in_the_order_of_the_column(
    order: SortOrder,
) -> None:
    schema = TableSchema.parse([ID, replace(NEW_KEY, sort_order=order), A, B])
    key = Migration(SCHEMA, schema).key(_bound(2))
    assert key == schema.key_of({"id": 2, "id2": None})
    low, high = range_in(SCHEMA, schema.bound_of([2, 7]), schema.bound_of([3]))
    assert low <= _bound(2) < high


@pytest.mark.parametrize("types", [["int64", "string"], ["-int64", "-string"]])
def test_the_first_columns_of_a_bound(types: list[str]) -> None:
    whole = encode_key([5, b"a\x00b"], types)
    assert first_columns(whole, types[:1]) == encode_key([5], types)
    assert first_columns(whole, types) == whole
    assert first_columns(successor(whole), types) == successor(whole)
    assert first_columns(encode_key([5], types), types) == encode_key([5], types)
    assert first_columns(KEY_MIN, types) == KEY_MIN


def test_changes_of_aggregates_move_with_their_columns() -> None:
    old = TableSchema.parse([ID, replace(A, aggregate="sum"), B])
    new = TableSchema.parse([ID, Column("z", "any"), B, replace(A, aggregate="sum")])
    migration = Migration(old, new)
    changed = migration.version((Timestamp(5), 0b11, (7, "x"), None, 0b01, 3))
    assert changed == (Timestamp(5), 0b110, ("x", 7), None, 0b100, 0)
    deletion: Version = (Timestamp(5), 0, (), None)
    assert migration.version(deletion) == deletion


def test_a_migration_returns_the_same_object_for_an_unchanged_version() -> None:
    new = TableSchema.parse([*SCHEMA.columns, Column("z", "any")])
    version: Version = (Timestamp(5), 0b11, (7, "x"), None)
    assert Migration(SCHEMA, new).version(version) is version


def test_a_version_travels_unchanged() -> None:
    wide = TableSchema.parse([ID, *(Column(f"c{at}", "int64") for at in range(70))])
    for schema in (SCHEMA, wide):
        values = tuple(range(len(schema.value_columns)))
        versions: list[Version] = [
            (Timestamp(5), schema.full_mask, values, None),
            (Timestamp(5), 0, (), None),
            (Timestamp(5), 0b10, (None,), None, 0b10, 2),
        ]
        for version in versions:
            packed = pack_version(schema, version)
            assert isinstance(packed, RowVersion)
            assert plain_version(schema, packed) == version
