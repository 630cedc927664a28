"""The figures of the model that its page has.

Owns: where the page is, and its rows by title. Must not import: tests.
"""

from typing import Final

from documents.blocks import DOCS
from replication_model import report

PAGE: Final = DOCS / "explanation" / "replication.md"


def configuration_rows() -> dict[str, report.Row]:
    return {row[0]: row for row in report.rows_on(PAGE, report.CONFIGURATIONS_SECTION)}


def planted_rows() -> dict[str, report.Row]:
    return {row[1]: row for row in report.rows_on(PAGE, report.PLANTED_SECTION)}
