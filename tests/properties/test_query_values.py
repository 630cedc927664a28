"""A value of a query's parameter comes back as it was given, alone and in a list, or it is refused.

DuckDB unifies the values of a list. It would round decimals, and change times without a time zone.
"""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona
from dodona.errors import InvalidRequest
from suite.levels import examples

ZONES: st.SearchStrategy[Any] = st.none() | st.integers(-959, 959).map(
    lambda it: timezone(timedelta(minutes=it))
)
DECIMALS = st.builds(
    lambda digits, exponent: Decimal(digits).scaleb(exponent),
    st.integers(-(10**38), 10**38),
    st.integers(-40, 3),
) | st.integers(-40, 38).map(lambda it: Decimal(f"1E{it}"))
KINDS: list[st.SearchStrategy[Any]] = [
    DECIMALS,
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=9),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    st.datetimes(
        datetime.combine(date(1, 1, 3), time()),  # far enough from the ends for each zone
        datetime.combine(date(9999, 12, 29), time()),
        timezones=ZONES,
    ),
    st.times(timezones=ZONES),
    st.timedeltas(timedelta(-9999), timedelta(9999)),
    st.uuids(),
    st.dates(),
    st.booleans(),
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as client:
        yield client


def is_equal(db: dodona.Client, given: Any, others: list[Any]) -> bool | None:
    """Whether the value, as DuckDB got it in a list of all, is what it is alone. None: refused."""
    try:
        (row,) = db.query(
            "select $all[1] is not distinct from $one as same, typeof($one) as kind",
            {"all": [given, *others], "one": given},
        ).to_pylist()
    except InvalidRequest as error:
        if not error.message.startswith("Parameter "):  # which is by us, and not by DuckDB
            raise
        return None
    assert ("DOUBLE" in row["kind"]) == isinstance(given, float)
    return bool(row["same"])


@given(data=st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_value_is_the_same_alone_and_in_a_list(db: dodona.Client, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    value = data.draw(kind)
    others = data.draw(st.lists(kind, max_size=2))
    assert is_equal(db, value, others) is not False
