"""Conditions of a commit: what they promise, in one cell and in several, and what an error says."""

from datetime import date
from typing import Any

import pytest

from conformance.backends import Backend
from conformance.tables import APART, GROUPS, PLAIN, SUM, MakeTable, read, value
from dodona.client import Client, Transaction
from dodona.errors import (
    InvalidRequest,
    LimitExceeded,
    PrerequisiteFailed,
    SchemaViolation,
    TransactionConflict,
)
from dodona.types import Timestamp
from dodona_wire.rows.conditions import CONDITIONS_MAX

pytestmark = pytest.mark.part("transactions on real processes")

FAR = 150
"""The key of a row in the second tablet."""


def unmet(error: pytest.ExceptionInfo[PrerequisiteFailed]) -> tuple[str, Any, Any]:
    found = error.value.attributes
    return found["condition"], found["expected"], found["found"]


def insert(db: Client, path: str, **row: Any) -> Timestamp:
    at = db.insert_rows(path, [row])
    assert at is not None
    return at


# ---- one call


def test_a_row_is_inserted_once(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    at = db.insert_rows(path, [{"k": 1, "v": 1}], if_absent=True)
    with pytest.raises(PrerequisiteFailed) as error:
        db.insert_rows(path, [{"k": 1, "v": 2}], if_absent=True)
    assert unmet(error) == ("if_absent", None, at)
    assert error.value.attributes["key"] == {"k": 1}
    assert error.value.attributes["table"] == path
    assert value(db, path, 1) == 1


def test_one_row_that_is_there_refuses_all_of_them(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    insert(db, path, k=FAR, v=1)
    rows = [{"k": it, "v": 2} for it in (1, 2, FAR)]
    with pytest.raises(PrerequisiteFailed):
        db.insert_rows(path, rows, if_absent=True)
    assert read(db, path) == [{"k": FAR, "v": 1}]


def test_a_row_is_updated_at_its_version(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    first = insert(db, path, k=1, v=1)
    second = db.insert_rows(path, [{"k": 1, "v": 2}], update=True, if_version=first)
    with pytest.raises(PrerequisiteFailed) as error:
        db.insert_rows(path, [{"k": 1, "v": 3}], update=True, if_version=first)
    assert unmet(error) == ("if_version", first, second)
    assert value(db, path, 1) == 2


def test_a_row_is_updated_at_its_values(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    insert(db, path, k=1, v=1)
    db.insert_rows(path, [{"k": 1, "v": 2}], update=True, expect={"v": 1})
    with pytest.raises(PrerequisiteFailed) as error:
        db.insert_rows(path, [{"k": 1, "v": 2}], update=True, expect={"v": 1})
    assert unmet(error) == ("expect", {"v": 1}, {"v": 2})
    with pytest.raises(PrerequisiteFailed) as error:
        db.insert_rows(path, [{"k": 9, "v": 2}], update=True, expect={"v": None})
    assert unmet(error) == ("expect", {"v": None}, None), "an absent row has no values"


def test_a_row_is_deleted_at_its_version_or_values(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    at = insert(db, path, k=1, v=1)
    for wrong in ({"if_version": Timestamp(at + 1)}, {"expect": {"v": 2}}):
        with pytest.raises(PrerequisiteFailed):
            db.delete_rows(path, [{"k": 1}], **wrong)
    db.delete_rows(path, [{"k": 1}], if_version=at, expect={"v": 1})
    assert read(db, path) == []


def test_an_aggregate_is_compared_as_it_reads(db: Client, make_table: MakeTable) -> None:
    path = make_table(SUM)
    for _ in range(2):
        db.insert_rows(path, [{"k": 1, "total": 2}], update=True, aggregate=True)
    with pytest.raises(PrerequisiteFailed) as error:
        db.insert_rows(path, [{"k": 1, "v": 1}], update=True, expect={"total": 2})
    assert unmet(error) == ("expect", {"total": 2}, {"total": 4})
    db.insert_rows(path, [{"k": 1, "v": 1}], update=True, expect={"total": 4})


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("double", float("nan"), 0.0),
        ("double", 1, 2.5),
        ("any", {"a": [1, {"b": None}], "c": 1.0}, {"c": 1, "a": [1, {"b": None}]}),
        ("any", True, 1),
        ("string", b"\xff", b"\xfe"),
        ("utf8", "", None),
        ("boolean", False, None),
    ],
)
def test_values_of_any_type_are_compared(
    db: Client, make_table: MakeTable, kind: str, one: Any, other: Any
) -> None:
    path = make_table([*PLAIN, {"name": "it", "type": kind}])
    insert(db, path, k=1, it=one)
    with pytest.raises(PrerequisiteFailed):
        db.insert_rows(path, [{"k": 1, "v": 1}], update=True, expect={"it": other})
    db.insert_rows(path, [{"k": 1, "v": 1}], update=True, expect={"it": one})


def test_an_error_shows_a_date_as_text(db: Client, make_table: MakeTable) -> None:
    path = make_table([*PLAIN, {"name": "day", "type": "date"}])
    insert(db, path, k=1, day=date(2024, 5, 1))
    with pytest.raises(PrerequisiteFailed) as error:
        db.delete_rows(path, [{"k": 1}], expect={"day": date(2024, 5, 2)})
    assert unmet(error) == ("expect", {"day": "2024-05-02"}, {"day": "2024-05-01"})
    db.delete_rows(path, [{"k": 1}], expect={"day": date(2024, 5, 1)})


# ---- transactions


@pytest.mark.parametrize("cells", [1, 2])
def test_a_condition_is_about_the_newest_rows_and_not_the_snapshot(
    db: Client, make_table: MakeTable, cells: int
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    tx = db.begin()
    at = insert(db, path, k=1, v=1)
    assert tx.lookup_rows(path, [{"k": 1}]) == []
    tx.insert_rows(path, [{"k": 1, "v": 2}], if_absent=True)
    if cells == 2:
        tx.insert_rows(path, [{"k": FAR, "v": 2}])
    with pytest.raises(PrerequisiteFailed) as error:
        tx.commit()
    assert unmet(error) == ("if_absent", None, at)
    assert tx.state.value == "aborted"
    assert read(db, path) == [{"k": 1, "v": 1}]


def test_a_condition_is_not_about_the_writes_of_the_transaction(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    with db.begin(read_own_writes=True) as tx:
        tx.insert_rows(path, [{"k": 1, "v": 1}], if_absent=True)
        tx.insert_rows(path, [{"k": 1, "v": 2}], if_absent=True)
        assert tx.lookup_rows(path, [{"k": 1}]) == [{"k": 1, "v": 2}]
    assert value(db, path, 1) == 2


def test_another_condition_for_a_row_is_refused_and_changes_nothing(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    insert(db, path, k=1, v=1)
    with db.begin() as tx:
        tx.insert_rows(path, [{"k": 1, "v": 2}], update=True, expect={"v": 1})
        with pytest.raises(InvalidRequest, match="another condition") as error:
            tx.insert_rows(path, [{"k": 2, "v": 2}, {"k": 1, "v": 3}], if_absent=True)
        assert error.value.attributes["key"] == {"k": 1}
    assert read(db, path) == [{"k": 1, "v": 2}]


def test_a_conflict_stays_a_conflict(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    tx = db.begin()
    at = insert(db, path, k=1, v=1)
    tx.insert_rows(path, [{"k": 1, "v": 2}], if_version=at)
    with pytest.raises(TransactionConflict):
        tx.commit()


def test_a_function_does_not_run_again_for_a_condition(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    insert(db, path, k=1, v=1)
    runs: list[Transaction] = []

    def function(tx: Transaction) -> None:
        runs.append(tx)
        tx.insert_rows(path, [{"k": 1, "v": 2}], if_absent=True)

    with pytest.raises(PrerequisiteFailed) as error:
        db.run_in_transaction(function)
    assert len(runs) == 1
    assert not error.value.is_retryable
    assert error.value.action == "look"


def test_the_values_of_a_group_do_not_meet_writers_of_another_group(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(GROUPS)
    insert(db, path, k=1, a=1, b=1)
    tx = db.begin()
    tx.insert_rows(path, [{"k": 1, "c": 1}], update=True, expect={"a": 1})
    db.insert_rows(path, [{"k": 1, "b": 2}], update=True)
    tx.commit()
    tx = db.begin()
    tx.insert_rows(path, [{"k": 1, "c": 2}], update=True, expect={"a": 1})
    db.insert_rows(path, [{"k": 1, "a": 2}], update=True)
    with pytest.raises(PrerequisiteFailed):
        tx.commit()


def test_a_counter_by_compare_and_set_loses_no_step(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    insert(db, path, k=1, v=0)
    for step in range(4):
        for client in (db, other):
            stale = client.lookup_rows(path, [{"k": 1}])[0]["v"]
            if step % 2:
                with pytest.raises(PrerequisiteFailed):
                    client.insert_rows(
                        path, [{"k": 1, "v": stale}], update=True, expect={"v": stale - 1}
                    )
            client.insert_rows(path, [{"k": 1, "v": stale + 1}], update=True, expect={"v": stale})
    assert value(db, path, 1) == 8


def test_conditions_hold_over_a_restart(backend: Backend, make_table: MakeTable) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    at = insert(backend.db, path, k=1, v=1)
    backend.restart_cells()
    backend.db.insert_rows(path, [{"k": 1, "v": 2}], update=True, if_version=at)
    with pytest.raises(PrerequisiteFailed):
        backend.db.insert_rows(path, [{"k": 1, "v": 3}], if_absent=True)


# ---- arguments


def test_a_transaction_has_a_limit_of_conditions(db: Client, make_table: MakeTable) -> None:
    path, other = make_table(PLAIN), make_table(PLAIN)
    rows = [{"k": it, "v": 1} for it in range(CONDITIONS_MAX)]
    with db.begin() as tx:
        tx.insert_rows(path, rows, if_absent=True)
        tx.insert_rows(path, rows[:2], if_absent=True)
        with pytest.raises(LimitExceeded, match="at most 10000 conditions") as error:
            tx.insert_rows(other, [{"k": 1, "v": 1}], if_absent=True)
        assert error.value.attributes["table"] == other
    assert value(db, path, CONDITIONS_MAX - 1) == 1
    assert read(db, other) == []


def test_null_in_a_required_column_is_refused(db: Client, make_table: MakeTable) -> None:
    columns = [*PLAIN[:1], {"name": "v", "type": "int64", "required": True}]
    path = make_table(columns)
    with pytest.raises(SchemaViolation, match="a required column") as error:
        db.insert_rows(path, [{"k": 1, "v": 1}], expect={"v": None})
    assert error.value.attributes["column"] == "v"
    assert error.value.attributes["table"] == path


def test_a_table_without_atomicity_takes_no_conditions(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, atomicity="none")
    for given in ({"if_absent": True}, {"if_version": Timestamp(5)}, {"expect": {"v": 1}}):
        with pytest.raises(InvalidRequest, match="atomicity full") as error:
            db.insert_rows(path, [{"k": 1, "v": 1}], **given)
        assert error.value.attributes["table"] == path
    with db.begin(atomicity="none") as tx, pytest.raises(InvalidRequest, match="atomicity full"):
        tx.insert_rows(path, [{"k": 1, "v": 1}], if_absent=True)
    assert read(db, path) == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"if_absent": 1}, "if_absent is a bool"),
        ({"if_version": 0}, "if_version is a number from 1"),
        ({"if_version": "new"}, "if_version is a number"),
        ({"expect": {}}, "with a column"),
        ({"expect": [("v", 1)]}, "expect is a dict"),
        ({"if_absent": True, "expect": {"v": 1}}, "has no version and no values"),
        ({"if_absent": True, "if_version": 5}, "has no version and no values"),
        ({"expect": {"k": 1}}, "a key column"),
        ({"expect": {"x": 1}}, "no column of the table"),
        ({"expect": {"v": "one"}}, "takes an int"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    db: Client, make_table: MakeTable, given: dict[str, Any], text: str
) -> None:
    path = make_table(PLAIN)
    with pytest.raises(InvalidRequest, match=text):
        db.insert_rows(path, [{"k": 1, "v": 1}], **given)
    with db.begin() as tx, pytest.raises(InvalidRequest, match=text) as error:
        tx.insert_rows(path, [{"k": 1, "v": 1}], **given)
    assert read(db, path) == []
    if isinstance(error.value, SchemaViolation):
        assert error.value.attributes["table"] == path
