"""The page about the query language says what the code does."""

import re
from pathlib import Path
from typing import Final

from dodona_wire.expressions.parser import NESTING_MAX
from dodona_wire.expressions.source import TEXT_LENGTH_MAX
from dodona_wire.expressions.tokens import TOKENS_MAX
from dodona_ytsaurus.query.functions import AGGREGATES, FUNCTIONS, NOT_TAKEN
from dodona_ytsaurus.query.parser import JOINS_MAX
from dodona_ytsaurus.query.translation import COLUMNS_MAX

PAGE: Final = (
    Path(__file__).resolve().parents[4] / "docs" / "reference" / "query-language.md"
).read_text()
TAKEN, _, MISSING = PAGE.partition("## What is not taken")


def test_every_function_is_on_the_page() -> None:
    words = set(re.findall(r"\w+", TAKEN))
    spelled = {it for it in [*FUNCTIONS, *AGGREGATES] if it in words}
    # Families of which the page names one.
    others = {it for it in FUNCTIONS if it.startswith(("get_", "try_get_", "timestamp_floor_"))}
    assert sorted(spelled | others) == sorted([*FUNCTIONS, *AGGREGATES])
    assert {f"_{it}" for it in ["day", "week", "month", "quarter", "year"]} <= words


def test_no_function_is_promised_that_is_missing() -> None:
    said = re.sub(r"```.*?```", "", TAKEN, flags=re.DOTALL)
    assert not NOT_TAKEN.intersection(re.findall(r"\w+", said))
    for name in re.findall(r"`(\w+_\w+)`", MISSING):
        assert name in NOT_TAKEN


def test_the_query_language_page_lists_the_limits() -> None:
    bounds = (
        f"{TEXT_LENGTH_MAX >> 20} MiB of text",
        f"{TOKENS_MAX:,} words",
        f"{NESTING_MAX} operators",
        f"{JOINS_MAX} joins",
        f"{COLUMNS_MAX:,} columns",
    )
    for bound in bounds:
        assert bound in PAGE
