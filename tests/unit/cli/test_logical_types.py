"""Logical types on the command line: the schema's text, keys, and rows in text."""

import json
from pathlib import Path

from unit.cli.commands import Commands

ROW = {
    "day": "2024-02-29",
    "at": "2024-02-29T12:30:00Z",
    "price": "12.50",
    "id": "a3bb189e-8bf9-3888-9912-ace4e6543002",
}
SCHEMA = "day:date:key,at:datetime,price:decimal(5,2),id:uuid"


def test_rows_go_in_and_out_as_text(dodona: Commands, tmp_path: Path) -> None:
    pivots = '[[], ["2024-02-29"]]'
    dodona.said("create", "//t", "--schema", SCHEMA, "--pivot-keys", pivots)
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([ROW]))
    dodona.said("insert", "//t", file)
    assert dodona.rows("//t") == [ROW]
    assert dodona.rows("//t", "--lower", "day=2024-02-29") == [ROW]
    assert "2024-02-29T12:30:00Z" in dodona.said("lookup", "//t", "day=2024-02-29")
    assert "2024-02-29" in dodona.said("describe", "//t")
    said = dodona.refused("lookup", "//t", "day=29.02.2024")
    assert "takes a date such as 2024-05-31" in said
