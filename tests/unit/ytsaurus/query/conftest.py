"""An embedded database with a few rows, and queries of it in YTsaurus's language."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona.schema import TableSchema
from dodona_ytsaurus.query.parser import parse
from dodona_ytsaurus.query.translation import to_sql

SCHEMAS = {
    "//t": TableSchema.parse(
        [
            {"name": "k", "type": "int64", "sort_order": "ascending"},
            {"name": "u", "type": "uint64"},
            {"name": "d", "type": "double"},
            {"name": "b", "type": "boolean"},
            {"name": "s", "type": "string"},
            {"name": "t", "type": "utf8"},
            {"name": "j", "type": "any"},
        ]
    ),
    "//people": TableSchema.parse(
        [
            {"name": "name", "type": "string", "sort_order": "ascending"},
            {"name": "city", "type": "utf8"},
            {"name": "age", "type": "int64", "required": True},
        ]
    ),
    "//cities": TableSchema.parse(
        [
            {"name": "city", "type": "utf8", "sort_order": "ascending"},
            {"name": "part", "type": "int64", "sort_order": "ascending"},
            {"name": "size", "type": "uint64"},
        ]
    ),
    "//any": TableSchema.parse(
        [
            {"name": "k", "type": "int64", "sort_order": "ascending"},
            {"name": "j", "type": "any"},
        ]
    ),
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "//t": [
        {"k": None, "u": 2**64 - 1, "s": b"", "j": {"a": [1, 2.5, "x", None], "b/c": True}},
        {"k": -7, "u": 0, "d": -1.5, "b": True, "s": "é", "t": "Éa", "j": -3},
        {"k": 1, "u": 2**63 + 5, "d": 2.0, "b": False, "s": b"ab\x00\xff", "t": "it's", "j": 1.75},
        {"k": 2, "d": None, "s": None, "t": None, "j": "text"},
    ],
    "//people": [
        {"name": "Ann", "city": "Köln", "age": 30},
        {"name": "Bob", "city": None, "age": 20},
        {"name": "Cid", "city": "Bonn", "age": 40},
        {"name": "Dan", "city": "Köln", "age": 50},
        {"name": None, "city": "Rome", "age": 60},
    ],
    "//cities": [
        {"city": None, "part": 1, "size": 7},
        {"city": "Bonn", "part": 1, "size": 1},
        {"city": "Köln", "part": 1, "size": 2},
        {"city": "Köln", "part": 2, "size": 2**63},
    ],
    "//any": [
        {
            "k": 1,
            "j": {
                "s": b"\xff",
                "t": "text",
                "e": b"",
                "o": {"$base64": "", "b": 1},
                "n": float("nan"),
                "i": float("-inf"),
                "d": 1.5,
            },
        },
        {"k": 2, "j": b"\xff"},
    ],
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    folder: Path = tmp_path_factory.mktemp("query")
    with dodona.open(str(folder / "data")) as db:
        for path, schema in SCHEMAS.items():
            db.create_table(path, schema, mount=True)
            db.insert_rows(path, ROWS[path])
        yield db


@pytest.fixture
def ask(db: dodona.Client) -> Callable[..., list[tuple[Any, ...]]]:
    """The rows of a query, whose columns have to be of the Arrow types that were promised."""

    def rows(text: str, **placeholders: Any) -> list[tuple[Any, ...]]:
        query = parse(text, placeholders)
        found = to_sql(query, {path: SCHEMAS[path] for path in query.paths})
        table = db.query(found.sql)
        arrow = {"string": "binary", "any": "string", "boolean": "bool"}
        types = [arrow.get(it.type, it.type) for it in found.columns]
        assert [str(it) for it in table.schema.types] == types
        return list(zip(*[it.to_pylist() for it in table.columns], strict=True))

    return rows
