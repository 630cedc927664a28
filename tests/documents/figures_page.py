"""The figures that pages quote, taken from the results of the benchmarks.

Owns: which ones. A figure is found by the heading of its row, the callers and the system; one that
is not there any more is an error, so that nothing old is quoted.
"""

import re
from typing import Final

from documents.blocks import ROOT
from documents.tables import table

COMMITS: Final = {
    "one row by `insert_rows`, one cell": (
        "Atomic durable commits of one row: one node, one client process",
        "Dodona",
    ),
    "the same in a transaction that was begun": (
        "The same commits in three calls, from begin to commit: one node, one client process",
        "Dodona",
    ),
    "two rows in two cells": (
        "Atomic durable commits of two rows on two nodes: one client process",
        "Dodona",
    ),
}
"""What is said of a row of callers: its heading, and the system."""
EMBEDDED: Final = "Embedded durable commits of one row: threads of one process"
GROWTH: Final = "What a written row costs as the table grows: from 10,000 to 10,000,000 rows"
BULK: Final = "Arrow data in bulk into a table in use, durable: one client process"
SPARK: Final = "A DataFrame of Spark's into a table of eight tablets and back: one machine for all"


def figures_text() -> str:
    """Two tables: commits, by how many callers there are, and rows in bulk."""
    commits = [
        (what, *_commit(heading, "1", system), *_commit(heading, "64", system)[1:])
        for what, (heading, system) in COMMITS.items()
    ]
    commits.append(("one row, embedded", *_commit(EMBEDDED, "1", "Dodona embedded"), ""))
    header = ("a commit of", "one caller: p50", "a second", "64 callers: a second")
    micros = float(_cells(GROWTH, "non-atomic writes, 1,000,000 rows", "Dodona")[2])
    rows = [
        ("atomicity `none`, 100 rows in a call, 4 callers", _round(1e6 / micros)),
        ("`write_arrow`, rows among those there", _study(BULK, "rows among those there")),
        ("Spark, atomicity `none`", _study(SPARK, "written, durable, as it comes")),
        ("Spark, all at one timestamp", _study(SPARK, "written, durable, all at once")),
    ]
    return "\n\n".join([table(header, commits), table(("rows", "a second"), rows)])


def _commit(heading: str, callers: str, system: str) -> tuple[str, str]:
    """The time of one, and how many a second."""
    cells = _cells(heading, callers, system)
    return f"{float(cells[3]):.1f} ms", _round(float(cells[2].split()[0].replace(",", "")))


def _study(heading: str, measured: str) -> str:
    return _round(float(_cells(heading, measured, "Dodona")[2].replace(",", "")))


def _cells(heading: str, first: str, second: str) -> list[str]:
    text = (ROOT / "loadtest" / "RESULTS.md").read_text("utf-8")
    section = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    for line in section[1].splitlines() if section else []:
        cells = [it.strip() for it in line.strip("|").split("|")]
        if cells[:2] == [first, second]:
            return cells
    raise ValueError(f"RESULTS.md has no {first!r} of {second!r} under {heading!r}")


def _round(rate: float) -> str:
    """To two digits: figures of other runs differ by more."""
    digits = len(str(int(rate)))
    return f"{round(rate, 2 - digits):,.0f}"
