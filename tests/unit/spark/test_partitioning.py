"""How a bulk write shares tablets out among tasks, without a Spark session.

That the expressions put rows where the client does is for test_spark_bulk to say.
"""

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column
from pyspark_dodona.bulk import option_text
from pyspark_dodona.partitioning import RANGES_MAX, KeyColumns, Partitioning, share_out

COLUMNS = (
    Column("k", "int64", "ascending"),
    Column("n", "utf8", "ascending"),
    Column("v", "int64"),
)


def pivots(count: int) -> list[tuple[int, ...]]:
    return [(), *((at,) for at in range(1, count))]


@pytest.mark.parametrize(
    ("tablets", "wanted", "parallelism", "partitions_max", "expected"),
    [
        (1, None, 1, 200, (0, 1)),
        (8, None, 2, 200, (7, 1)),
        (1, None, 4, 200, (0, 4)),  # no core idles
        (3, None, 8, 200, (2, 3)),
        (100, None, 4, 10, (9, 1)),  # neighbours share a partition
        (100, None, 16, 10, (15, 1)),
        (10_000, None, 16, 9999, (RANGES_MAX - 1, 1)),
        (10_000, None, 1000, 9999, (RANGES_MAX - 1, 4)),
        (8, 1, 16, 200, (0, 1)),
        (8, 5, 16, 200, (4, 1)),
        (8, 8, 16, 200, (7, 1)),
        (8, 25, 16, 200, (7, 3)),
        (10_000, 2000, 1, 200, (RANGES_MAX - 1, 7)),
    ],
)
def test_tablets_are_shared_out(
    tablets: int,
    wanted: int | None,
    parallelism: int,
    partitions_max: int,
    expected: tuple[int, int],
) -> None:
    shared = share_out(
        pivots(tablets), wanted, parallelism=parallelism, partitions_max=partitions_max
    )
    assert (len(shared.bounds), shared.splits) == expected
    assert shared.count == (expected[0] + 1) * expected[1]


def test_ranges_have_equally_many_tablets() -> None:
    shared = share_out(pivots(10), 4, parallelism=1, partitions_max=200)
    assert shared.bounds == ((2,), (5,), (7,))


@pytest.mark.parametrize("wanted", [0, -1, 100_001, 1.5, True, "4"])
def test_a_number_of_partitions_that_is_none_is_refused(wanted: object) -> None:
    with pytest.raises(InvalidRequest, match="`partitions` must be 1 to 100000, not"):
        share_out(pivots(2), wanted, parallelism=1, partitions_max=1)  # type: ignore[arg-type]


def frame(**types: LongType | StringType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_the_search_is_as_deep_as_the_logarithm() -> None:
    keys = KeyColumns(COLUMNS, frame(k=LongType(), n=StringType()), "//t")
    text = keys.partition(Partitioning(tuple((at,) for at in range(1, 256)), 1))
    depth = deepest = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        deepest = max(deepest, depth)
    assert deepest == 8
    assert text.count(">=") == 255


def test_names_are_quoted() -> None:
    strange = (Column("a`b.c", "int64", "ascending"), COLUMNS[2])
    keys = KeyColumns(strange, frame(**{"a`b.c": LongType()}), "//t")
    assert keys.order() == [("`a``b.c`", False)]
    assert keys.partition(Partitioning(((7,),), 1)) == "IF(`a``b.c` >= 7L, 1, 0)"


def test_a_descending_column_is_compared_the_other_way_round() -> None:
    columns = (Column("k", "int64", "descending"), Column("n", "utf8", "ascending"), COLUMNS[2])
    keys = KeyColumns(columns, frame(k=LongType(), n=StringType()), "//t")
    assert keys.order() == [("`k`", True), ("`n`", False)]

    def search(*bound: object) -> str:
        return keys.partition(Partitioning((bound,), 1))

    assert search(7) == "IF((`k` <= 7L OR `k` IS NULL), 1, 0)"
    assert search(None) == "IF(`k` IS NULL, 1, 0)"
    assert search(None, None) == "IF((FALSE OR (`k` IS NULL AND TRUE)), 1, 0)"
    below = "(`k` < 7L OR `k` IS NULL)"
    assert search(7, None) == f"IF(({below} OR (`k` = 7L AND TRUE)), 1, 0)"


def test_key_columns_that_do_not_fit_are_named() -> None:
    with pytest.raises(SchemaViolation, match="lacks the key column 'n' of table //t"):
        KeyColumns(COLUMNS, frame(k=LongType()), "//t")
    with pytest.raises(SchemaViolation, match="'k' of table //t is int64, which takes bigint"):
        KeyColumns(COLUMNS, frame(k=StringType(), n=StringType()), "//t")


def test_options_become_text() -> None:
    given = {"a": "x", "b": True, "c": False, "d": 17, "e": {"lower": [1, "ä"]}}
    texts = {name: option_text(name, value) for name, value in given.items()}
    assert texts == {
        "a": "x",
        "b": "true",
        "c": "false",
        "d": "17",
        "e": '{"lower": [1, "\\u00e4"]}',
    }
    with pytest.raises(InvalidRequest, match="the option 'f' takes text, a number"):
        option_text("f", 1.5)
