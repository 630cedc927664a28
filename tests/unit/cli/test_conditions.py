"""`dodona insert` and `delete` with conditions: all rows of a file, or none."""

import re
from pathlib import Path

import pytest

from dodona_local import inserting
from unit.cli.commands import TABLE, Commands, account, lines_of

JSON = ("--input-format", "json")


def insert(bank: Commands, *words: object, **row: object) -> int:
    """Insert a row. → its version."""
    line = lines_of([{**account(1), **row}])
    said = bank.said("insert", TABLE, "-", *JSON, *words, stdin=line)
    found = re.search(r"at timestamp (\d+)", said)
    assert found is not None, said
    return int(found[1])


def refused(bank: Commands, *words: object, **row: object) -> str:
    line = lines_of([{**account(1), **row}])
    return bank.refused("insert", TABLE, "-", *JSON, *words, stdin=line)


def test_rows_are_inserted_if_they_are_absent(bank: Commands) -> None:
    version = insert(bank, "--if-absent")
    said = refused(bank, "--if-absent", balance=5)
    assert f"is there already, with version {version}" in said
    assert "condition='if_absent'" in said
    lines = lines_of([account(2), account(1)])
    bank.refused("insert", TABLE, "-", *JSON, "--if-absent", stdin=lines)
    assert bank.rows() == [account(1)]


def test_rows_are_updated_at_their_version(bank: Commands) -> None:
    first = insert(bank)
    second = insert(bank, "--if-version", first, balance=5)
    assert f"version {first} is required" in refused(bank, "--if-version", first, balance=6)
    assert f"has version {second}" in refused(bank, "--if-version", first)
    assert bank.rows() == [account(1, balance=5)]


def test_rows_are_updated_at_their_values(bank: Commands) -> None:
    insert(bank)
    insert(bank, "--expect", "balance=100,name=n1", balance=5)
    said = refused(bank, "--expect", '{"balance": 100}', balance=6)
    assert "expected={'balance': 100}, found={'balance': 5}" in said
    assert bank.rows() == [account(1, balance=5)]


def test_rows_are_deleted_by_key_and_from_a_file_under_conditions(
    bank: Commands, tmp_path: Path
) -> None:
    version = insert(bank)
    keys = tmp_path / "keys.json"
    keys.write_text('{"id": 1}\n')
    for source in ([keys, *JSON], ["--key", "id=1"]):
        assert "has version" in bank.refused("delete", TABLE, *source, "--if-version", 5)
        said = bank.refused("delete", TABLE, *source, "--expect", "balance=7")
        assert "found={'balance': 100}" in said
    bank.said("delete", TABLE, "--key", "id=1", "--if-version", version, "--expect", "balance=100")
    assert bank.rows() == []


def test_conditions_need_one_transaction(bank: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_of([account(number) for number in range(25)])
    for words in (["--atomic"], ["--batch-rows", 5]):
        done = bank.run("insert", TABLE, "-", "--if-absent", *words, stdin=lines, code=2)
        assert "conditions need one transaction" in done.stderr
    monkeypatch.setattr(inserting, "BATCH_ROWS", 10)
    said = bank.refused("insert", TABLE, "-", *JSON, "--if-absent", stdin=lines)
    assert "a bulk load has no conditions" in said
    assert bank.rows() == []


def test_a_table_without_atomicity_has_no_conditions(bank: Commands) -> None:
    bank.said("create", "//bank/log", "--schema", "id:int64:key,v:int64", "--atomicity", "none")
    line = '{"id": 1, "v": 1}\n'
    said = bank.refused("insert", "//bank/log", "-", *JSON, "--if-absent", stdin=line)
    assert "has no conditions" in said


def test_expected_values_are_those_of_other_columns(bank: Commands) -> None:
    insert(bank)
    assert "no such column" in refused(bank, "--expect", "id=1")
    assert "write values as JSON" in refused(bank, "--expect", "balance")
    assert "no such value" in refused(bank, "--expect", "balance=much")
