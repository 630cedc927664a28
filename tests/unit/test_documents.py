"""The documents say what the code does, where that can be checked without running a server."""

import inspect
import re
from pathlib import Path
from typing import Final

import pytest

import dodona
from dodona._core.catalog.master_transaction import RowsRefused
from dodona.errors import ERRORS_BY_KIND, DodonaError

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"


def row_of(error: type[DodonaError]) -> str:
    is_retryable = error("").is_retryable
    cells = (
        f"`{error.__name__}`",
        error.kind,
        error.code,
        error.status,
        "yes" if is_retryable else "no",
        error.action,
    )
    return f"| {' | '.join(map(str, cells))} |"


def test_the_table_of_errors_is_the_code_s() -> None:
    text = (DOCS / "reference" / "errors.md").read_text()
    listed = re.findall(r"^\| `.*\|$", text, re.MULTILINE)
    assert sorted(listed) == sorted(row_of(error) for error in ERRORS_BY_KIND.values())


@pytest.mark.parametrize("kind", sorted(ERRORS_BY_KIND))
def test_every_error_is_explained(kind: str) -> None:
    error = ERRORS_BY_KIND[kind]
    text = (DOCS / "reference" / "errors.md").read_text()
    (_, action, *_) = text.split(f"(`{error.action}`)\n")
    explained = action.split("\n### ")[0]
    assert re.search(rf"\*\*[^*]*`{error.__name__}`", explained)


CLASSES: Final = {
    "client": dodona.Client,
    "transaction": dodona.Transaction,
    "master transaction": dodona.MasterTransaction,
    "snapshot": dodona.Snapshot,
    "leases": dodona.Leases,
    "loads": dodona.Loads,
    "load": dodona.Load,
}


def calls_of(kind: type) -> set[str]:
    refused = {name for name in vars(RowsRefused) if not name.startswith("_")}
    named = {
        name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")
    }
    return named - refused if issubclass(kind, RowsRefused) else named


def test_the_page_of_names_lists_each_public_call_with_its_classes() -> None:
    text = (DOCS / "reference" / "ytsaurus-names.md").read_text()
    listed: dict[str, set[str]] = {name: set() for name in CLASSES}
    for calls, owners in re.findall(r"^\| (`.*?`) \| ([a-z, ]+) \|", text, re.MULTILINE):
        for owner in owners.split(", "):
            listed[owner].update(re.findall(r"`(\w+)`", calls))
    assert listed == {name: calls_of(kind) for name, kind in CLASSES.items()}
    assert "`connect(url)`, `open(folder)`" in text
