"""A value that leaves the database is its caller's own, and one that goes in is the database's own.

Values of type any and of nested types are lists and dicts, which whoever holds them can change.
Whatever a caller does with what he gave or got, everybody sees what was committed: at any
timestamp, before a commit and after an unmount, and in a second look at the same result.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from conformance.tables import KEY, MakeTable, Schema
from dodona.client import Client
from dodona.errors import SchemaViolation
from dodona.types import Timestamp

Look = Callable[[Client, str], list[Any]]
"""Reads the table's one row. → its values of type any."""

BY_NUMBER: Final[Schema] = [KEY, {"name": "v", "type": "any"}, {"name": "n", "type": "int64"}]
BY_TEXT: Final[Schema] = [{**KEY, "type": "utf8"}, *BY_NUMBER[1:]]
AGGREGATED: Final[Schema] = [KEY, {"name": "v", "type": "any", "aggregate": "first"}]
NESTED: Final[Schema] = [
    KEY,
    {"name": "v", "type": "struct<roles:list<any>,plain:int8>"},
    {"name": "n", "type": "int64"},
]
"""A type that `value` is of."""
UNSTORABLE: Final = (object(), {1, 2}, {"a": [object()]}, {1: "a"}, {"a": 1 << 64}, "\ud800")


def value() -> dict[str, Any]:
    return {"roles": ["user", {"of": [1, 2]}], "plain": 1}


def spoil(held: Any) -> None:
    """Change a value wherever it can be changed."""
    if isinstance(held, dict):
        for item in held.values():
            spoil(item)
        held["roles"] = held["admin"] = True
    elif isinstance(held, list):
        for item in held:
            spoil(item)
        held.append("admin")


def key_of(path_schema: Schema) -> Any:
    return "a" if path_schema is BY_TEXT else 1


def by_lookup(**options: Any) -> Look:
    return lambda db, path: [row["v"] for row in db.lookup_rows(path, keys(db, path), **options)]


def keys(db: Client, path: str) -> list[dict[str, Any]]:
    is_text = db.get_table(path).schema.key_columns[0].type == "utf8"
    return [{"k": "a" if is_text else 1}]


def by_versions(db: Client, path: str) -> list[Any]:
    (row,) = db.lookup_versions(path, keys(db, path))
    return [it.value for it in row.values["v"]]


def by_transaction(db: Client, path: str) -> list[Any]:
    with db.begin() as transaction:
        (row,) = transaction.lookup_rows(path, keys(db, path))
        return [row["v"], *[it["v"] for it in transaction.select(path)]]


WAYS_OUT: Final[dict[str, Look]] = {
    "lookup": by_lookup(),
    "lookup of columns": by_lookup(columns=["n", "v"]),
    "lookup with missing": by_lookup(keep_missing=True),
    "versions": by_versions,
    "transaction": by_transaction,
    "select": lambda db, path: [row["v"] for row in db.select(path)],
    "select, by place": lambda db, path: [db.select(path)[0]["v"]],
    "select, a part": lambda db, path: [db.select(path)[:1][0]["v"]],
    "select, tuples": lambda db, path: [row[1] for row in db.select(path).tuples()],
    "select of columns": lambda db, path: [db.select(path, columns=["v"])[0]["v"]],
    "pandas": lambda db, path: db.select(path).to_pandas()["v"].to_list(),
}


@pytest.mark.parametrize(
    "schema", [BY_NUMBER, BY_TEXT, NESTED], ids=["by number", "by text", "nested"]
)
def test_changing_a_value_that_was_read_does_not_change_the_database(
    db: Client, make_table: MakeTable, schema: Schema
) -> None:
    path = make_table(schema)
    at = db.insert_rows(path, [{"k": key_of(schema), "v": value(), "n": 1}])
    assert at is not None
    for way, look in WAYS_OUT.items():
        for held in look(db, path):
            assert held == value(), way
            spoil(held)
        assert by_lookup()(db, path) == [value()], way
        assert by_lookup(timestamp=Timestamp(at))(db, path) == [value()], way
    db.unmount_table(path)
    db.mount_table(path)
    assert by_lookup()(db, path) == [value()]


def looks_at(db: Client, path: str) -> Iterator[Callable[[], Any]]:
    """Each gives a value of one result, every time that it is called."""
    rows = db.select(path)
    yield lambda: rows[0]["v"]
    yield lambda: next(iter(rows))["v"]
    yield lambda: rows[:1][0]["v"]
    yield lambda: rows.tuples()[0][1]
    yield lambda: next(reversed(rows))["v"]


@pytest.mark.parametrize("schema", [BY_NUMBER, NESTED], ids=["any", "nested"])
def test_two_looks_at_one_result_show_the_same(
    db: Client, make_table: MakeTable, schema: Schema
) -> None:
    path = make_table(schema)
    db.insert_rows(path, [{"k": 1, "v": value(), "n": 1}])
    for look in looks_at(db, path):
        spoil(look())
        assert look() == value()
    rows = db.select(path)
    rows.tuples().clear()
    assert len(rows.tuples()) == 1


@pytest.mark.parametrize("is_update", [False, True])
@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("schema", [BY_NUMBER, NESTED], ids=["any", "nested"])
def test_own_writes_that_were_read_and_changed_are_committed_as_they_were_given(
    db: Client, make_table: MakeTable, is_update: bool, is_flushed: bool, schema: Schema
) -> None:
    path = make_table(schema)
    with db.begin(read_own_writes=True) as transaction:
        given = value()
        transaction.insert_rows(path, [{"k": 1, "v": given}], update=is_update)
        spoil(given)
        for _ in range(2):
            (found,) = transaction.lookup_rows(path, [{"k": 1}])
            (listed,) = transaction.select(path)
            assert found["v"] == listed["v"] == value()
            spoil(found["v"])
            spoil(listed["v"])
    if is_flushed:
        db.unmount_table(path)
        db.mount_table(path)
    assert by_lookup()(db, path) == [value()]


def put(db: Client, path: str, given: Any, **options: Any) -> None:
    db.insert_rows(path, [{"k": 1, "v": given}], **options)


def put_in_transaction(db: Client, path: str, given: Any, **options: Any) -> None:
    with db.begin() as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": given}], **options)
        spoil(given)


@pytest.mark.parametrize("way", [put, put_in_transaction])
@pytest.mark.parametrize("option", ["", "update", "aggregate"])
@pytest.mark.parametrize("schema", [BY_NUMBER, AGGREGATED], ids=["plain", "first"])
def test_changing_a_value_that_was_passed_to_a_write_does_not_change_the_database(
    db: Client, make_table: MakeTable, way: Callable[..., None], option: str, schema: Schema
) -> None:
    path, given = make_table(schema), value()
    way(db, path, given, **({option: True} if option else {}))
    spoil(given)
    (held,) = by_lookup()(db, path)
    assert held == value()
    spoil(held)
    assert by_versions(db, path) == [value()]
    if schema is AGGREGATED:
        db.insert_rows(path, [{"k": 1, "v": "a later one"}], aggregate=True)
        assert by_lookup()(db, path) == [value()]


@pytest.mark.parametrize("way", [put, put_in_transaction])
@pytest.mark.parametrize("option", ["", "update"])
def test_a_value_that_cannot_be_stored_is_refused_before_any_write(
    db: Client, make_table: MakeTable, way: Callable[..., None], option: str
) -> None:
    path = make_table(BY_NUMBER)
    for unstorable in UNSTORABLE:
        for given in (unstorable, [unstorable], {"a": {"b": unstorable}}):
            with pytest.raises(SchemaViolation) as refusal:
                way(db, path, given, **({option: True} if option else {}))
            assert refusal.value.attributes["column"] == "v"
    assert list(db.select(path)) == []
    db.unmount_table(path)


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_an_unstorable_change_of_a_value_that_was_read_does_not_stop_an_unmount(
    db: Client, make_table: MakeTable, atomicity: str
) -> None:
    path = make_table(BY_NUMBER, atomicity=atomicity)
    db.insert_rows(path, [{"k": 1, "v": value(), "n": 1}])
    for look in WAYS_OUT.values():
        if atomicity == "full" or look is not by_transaction:
            for held in look(db, path):
                held["unstorable"] = object()
    db.unmount_table(path)
    db.mount_table(path)
    assert by_lookup()(db, path) == [value()]
