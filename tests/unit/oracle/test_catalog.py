"""The catalog's tables: every change, every error, and that nothing is half-done."""

from typing import Any

import pytest
from msgspec.structs import replace

from dodona.errors import (
    InvalidRequest,
    LimitExceeded,
    SchemaViolation,
    TableExists,
    TableNotFound,
)
from dodona.schema import Column
from dodona.types import KEY_MAX, KEY_MIN, Key
from dodona_oracle.core import tables as tables_module
from dodona_wire.messages.catalog import (
    AlterTable,
    CreateTable,
    Done,
    GetTable,
    ListTables,
    MountTable,
    ReshardTable,
    Table,
    TableList,
    UnmountTable,
)
from dodona_wire.messages.tree import RemoveNode
from dodona_wire.rows.computed_column import Computed
from unit.oracle.realm import COLUMNS, Realm, create, pivot


@pytest.fixture
def cluster() -> Realm:
    return Realm()


def test_a_new_table_is_there_and_unmounted(cluster: Realm) -> None:
    table = cluster.ask(create(tablet_count=3))
    assert isinstance(table, Table)
    assert cluster.ask(GetTable("//bank/accounts")) == table
    assert (table.path, table.columns, table.atomicity) == ("//bank/accounts", COLUMNS, "full")
    assert [tablet.pivot_key for tablet in table.tablets] == [KEY_MIN, pivot(1), pivot(2)]
    assert {tablet.state for tablet in table.tablets} == {"unmounted"}
    assert {tablet.cell for tablet in table.tablets} == {None}


def test_tables_are_listed_by_prefix_and_sorted(cluster: Realm) -> None:
    for path in ("//b/x", "//a/y", "//ba", "//a/x"):
        cluster.ask(create(path))
    assert cluster.ask(ListTables("//")) == TableList(("//a/x", "//a/y", "//b/x", "//ba"))
    assert cluster.ask(ListTables("//b")) == TableList(("//b/x", "//ba"))
    assert cluster.ask(ListTables("//nothing")) == TableList(())


def test_all_is_there_after_a_restart(cluster: Realm) -> None:
    cluster.beat(0)
    cluster.ask(create(tablet_count=3))
    cluster.ask(create("//other"))
    cluster.ask(MountTable("//bank/accounts"))
    before = cluster.ask(GetTable("//bank/accounts"))
    cluster.restart()
    cluster.beat(0)
    assert cluster.ask(GetTable("//bank/accounts")) == before
    assert cluster.ask(ListTables("//")) == TableList(("//bank/accounts", "//other"))
    assert len(cluster.beat(0).tablets) == 3


def test_ids_are_not_given_out_twice_even_after_removal_and_restart(cluster: Realm) -> None:
    first = cluster.ask(create(tablet_count=3))
    assert cluster.ask(RemoveNode("//bank/accounts")) == Done()
    cluster.restart()
    second = cluster.ask(create(tablet_count=3))
    used = [tablet.tablet for table in (first, second) for tablet in table.tablets]
    assert len(set(used)) == 6


def test_a_removed_table_is_gone(cluster: Realm) -> None:
    cluster.ask(create())
    cluster.ask(RemoveNode("//bank/accounts"))
    cluster.restart()
    with pytest.raises(TableNotFound):
        cluster.ask(GetTable("//bank/accounts"))
    cluster.ask(create())  # and its name is free


@pytest.mark.parametrize("request_of", [GetTable, RemoveNode, MountTable, UnmountTable])
def test_an_unknown_table_is_named_in_the_error(cluster: Realm, request_of: Any) -> None:
    with pytest.raises(TableNotFound) as caught:
        cluster.ask(request_of("//no/such"))
    assert caught.value.attributes == {"path": "//no/such"}


def test_a_table_can_not_be_made_twice(cluster: Realm) -> None:
    table = cluster.ask(create())
    with pytest.raises(TableExists, match="//bank/accounts"):
        cluster.ask(create(tablet_count=2))
    assert cluster.ask(GetTable("//bank/accounts")) == table


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "//",
        "/a",
        "a",
        "//a/",
        "///a",
        "//a//b",
        "//a b",
        "//a\n",
        "//ä",
        "//a/../\x00",
        "//" + "a" * 257,
        "//" + "/".join(["a" * 200] * 6),
        "//" + "/".join("a" * 65),
    ],
)
def test_a_path_that_is_none_is_refused(cluster: Realm, path: str) -> None:
    with pytest.raises(InvalidRequest, match="path"):
        cluster.ask(create(path))
    assert cluster.records == []


@pytest.mark.parametrize(
    "path",
    [
        "//a",
        "//A-1/b_2/c.3",
        "//.../..a/b../.c",
        "//" + "a" * 256,
        "//" + "/".join(["a" * 203] * 5),
        "//" + "/".join("a" * 64),
    ],
)
def test_a_path_is_names_between_slashes(cluster: Realm, path: str) -> None:
    assert cluster.ask(create(path)).path == path


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ((), "sort_order"),
        ((Column("v", "any"),), "sort_order"),
        ((Column("k", "int64", sort_order="ascending"),), "not a key"),
        ((Column("k", "any", sort_order="ascending"), Column("v", "any")), "key column"),
        ((*COLUMNS, Column("v", "any")), "the same name"),
        ((Column("v", "any"), *COLUMNS[:1]), "come before"),
    ],
)
def test_a_schema_that_is_none_is_refused(
    cluster: Realm, columns: tuple[Column, ...], reason: str
) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        cluster.ask(CreateTable("//a", columns, "full", (KEY_MIN,)))
    assert cluster.records == []


def computed(expression: str) -> tuple[Column, ...]:
    return (Column("c", "int64", sort_order="ascending", expression=expression), *COLUMNS)


def test_a_restored_table_keeps_an_expression_that_a_new_table_can_not_have(
    cluster: Realm,
) -> None:
    columns = computed("k % 0")
    with pytest.raises(SchemaViolation, match="divides by zero"):
        cluster.ask(CreateTable("//a", columns, "full", (KEY_MIN,)))
    assert cluster.records == []
    restored = CreateTable("//a", columns, "full", (KEY_MIN,), is_restored=True)
    assert cluster.ask(restored).columns == columns


@pytest.mark.parametrize(
    ("columns", "reason"),
    [(computed("k %"), "'c' is wrong"), (computed("v"), "'c' is wrong"), ((), "sort_order")],
)
def test_a_restored_table_has_a_schema_that_servers_can_read(
    cluster: Realm, columns: tuple[Column, ...], reason: str
) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        cluster.ask(CreateTable("//a", columns, "full", (KEY_MIN,), is_restored=True))
    assert cluster.records == []


@pytest.mark.parametrize(
    ("pivots", "reason"),
    [
        ((), "First pivot key must be empty"),
        ((pivot(1),), "First pivot key must be empty"),
        ((KEY_MIN, KEY_MIN), "strictly increasing"),
        ((KEY_MIN, pivot(2), pivot(1)), "strictly increasing"),
        ((KEY_MIN, pivot(1), pivot(1)), "strictly increasing"),
        ((KEY_MIN, Key(b"\x03abc")), "values of the first key columns"),
        ((KEY_MIN, Key(b"\x10abc\x00\x01")), "values of the first key columns"),
        ((KEY_MIN, Key(pivot(1, "a") + b"\x02")), "values of the first key columns"),
        ((KEY_MIN, KEY_MAX), "values of the first key columns"),
    ],
)
def test_pivot_keys_that_are_none_are_refused(
    cluster: Realm, pivots: tuple[Key, ...], reason: str
) -> None:
    with pytest.raises(SchemaViolation, match=reason):
        cluster.ask(CreateTable("//a", COLUMNS, "full", pivots))
    assert cluster.records == []


def test_a_pivot_key_may_name_some_or_all_key_columns(cluster: Realm) -> None:
    pivots = (KEY_MIN, pivot(None), pivot(1), pivot(1, "m"), pivot(2))
    table = cluster.ask(CreateTable("//a", COLUMNS, "none", pivots))
    assert tuple(tablet.pivot_key for tablet in table.tablets) == pivots


def test_ten_thousand_tablets_are_the_most_a_table_has(cluster: Realm) -> None:
    assert len(cluster.ask(create("//most", tablet_count=10_000)).tablets) == 10_000
    with pytest.raises(LimitExceeded, match="10000"):
        cluster.ask(create("//more", tablet_count=10_001))
    spare_bytes = 4096 - len(pivot(1, ""))
    longest, longer = (pivot(1, "x" * (spare_bytes + more)) for more in (0, 1))
    cluster.ask(CreateTable("//longest", COLUMNS, "full", (KEY_MIN, longest)))
    with pytest.raises(LimitExceeded, match="4096 bytes"):
        cluster.ask(CreateTable("//longer", COLUMNS, "full", (KEY_MIN, longer)))


def test_tables_and_tablets_in_all_are_limited(
    cluster: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_module, "TABLES_MAX", 2)
    monkeypatch.setattr(tables_module, "TABLETS_MAX", 5)
    cluster.ask(create("//a", tablet_count=3))
    with pytest.raises(LimitExceeded):
        cluster.ask(create("//b", tablet_count=3))
    cluster.ask(create("//b", tablet_count=2))
    cluster.ask(ReshardTable("//b", (KEY_MIN, pivot(7))))
    with pytest.raises(LimitExceeded):
        cluster.ask(ReshardTable("//b", (KEY_MIN, pivot(7), pivot(8))))
    cluster.ask(RemoveNode("//a"))
    cluster.ask(create("//c", tablet_count=3))
    cluster.ask(RemoveNode("//b"))
    cluster.ask(create("//d"))
    with pytest.raises(LimitExceeded):
        cluster.ask(create("//e"))


IMPOSSIBLE = (Column("h", "int64", "ascending", expression="k % (1 - 1)"), *COLUMNS)


def test_a_new_table_can_not_divide_a_key_column_by_zero(cluster: Realm) -> None:
    with pytest.raises(SchemaViolation, match=r"column 'h' is wrong.*divides by zero") as error:
        cluster.ask(replace(create(), columns=IMPOSSIBLE))
    assert error.value.attributes["expression"] == "'k % (1 - 1)'"
    assert cluster.ask(ListTables("//")) == TableList(())


def test_a_stored_table_that_divides_a_key_column_by_zero_is_read(
    cluster: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(Computed, "check_possible", lambda self: None)
        cluster.ask(replace(create(), columns=IMPOSSIBLE))
    cluster.restart()
    cluster.beat(0)
    assert cluster.ask(GetTable("//bank/accounts")).columns == IMPOSSIBLE
    altered = (*IMPOSSIBLE, Column("w", "int64"))
    cluster.ask(AlterTable("//bank/accounts", altered))
    cluster.ask(MountTable("//bank/accounts"))
    (tablet,) = cluster.beat(0).tablets
    assert tablet.columns == altered
    cluster.ask(RemoveNode("//bank/accounts"))
