"""Data before its first request: which kinds are whole, and what is checked part by part."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy
import pandas
import polars
import pyarrow as pa
import pytest

from dodona._core.protocol.limits import TransactionLimits
from dodona._core.protocol.steps import Pause
from dodona._core.writing import bulk
from dodona._core.writing import whole as module
from dodona._core.writing.tabular import batches_of, converted, fields_of, is_rows, is_whole
from dodona._core.writing.whole import (
    Checked,
    check_all,
    check_at_once,
    check_short,
    check_short_write,
    writes_of,
)
from dodona.errors import DuplicateKey, InvalidRequest, LimitExceeded, SchemaViolation
from dodona.schema import TableSchema

SCHEMA = TableSchema.parse(
    [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": "int64", "required": True},
        {"name": "a", "type": "any"},
    ]
)
TABLE = pa.table({"k": [1, 2], "v": [3, 4]})
FRAME = pandas.DataFrame({"k": [1], "v": [2]})


class Foreign:
    """An object of another library that passes Arrow data on."""

    def __init__(self, *, has_stream: bool = False, has_array: bool = False) -> None:
        if has_stream:
            self.__arrow_c_stream__ = TABLE.__arrow_c_stream__
        if has_array:
            self.__arrow_c_array__ = TABLE.to_batches()[0].__arrow_c_array__


class Broken:
    """An object that promises Arrow data, and then has none."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise self._error


class Counted:
    num_rows = 5


# Kinds of data


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: FRAME, True),
        (lambda: polars.DataFrame({"k": [1]}), True),
        (lambda: {"k": [1]}, True),
        (list, True),
        (lambda: (TABLE,), True),
        (lambda: TABLE, True),
        (lambda: TABLE.to_batches()[0], True),
        (lambda: Foreign(has_array=True), True),
        (lambda: Foreign(has_stream=True), False),
        (lambda: Foreign(has_stream=True, has_array=True), False),
        (TABLE.to_reader, False),
        (lambda: iter([TABLE]), False),
        (lambda: {TABLE.to_batches()[0].num_rows}, False),
    ],
)
def test_data_is_whole_or_a_stream(make: Callable[[], Any], expected: bool) -> None:
    assert is_whole(make()) is expected


@pytest.mark.parametrize(
    "data",
    [
        5,
        "text",
        b"bytes",
        None,
        Counted(),
        numpy.array([1]),
        pandas.Series([1]),
        polars.Series([1]),
    ],
)
def test_other_objects_are_no_data(data: Any) -> None:
    with pytest.raises(InvalidRequest, match="rows in bulk are"):
        is_whole(data)


def test_rows_are_a_sequence_of_dicts() -> None:
    assert is_rows([{"k": 1}])
    assert is_rows(({"k": 1}, 5)), "the first one decides; the others are checked"
    for other in ([], [5], "text", b"x", {"k": [1]}, iter([{"k": 1}])):
        assert not is_rows(other)


def test_batches_come_from_each_kind_of_arrow_data() -> None:
    batch = TABLE.to_batches()[0]
    for data in (TABLE, batch, [TABLE], iter([batch]), Foreign(has_array=True)):
        assert [it for it in batches_of(data) if it.num_rows] == [batch]
    for data in (TABLE.to_reader(), Foreign(has_stream=True)):
        first, *others = batches_of(data)
        assert (first.num_rows, first.schema, others) == (0, TABLE.schema, [batch])
    (empty,) = batches_of(TABLE.slice(0, 0).schema.empty_table())
    assert (empty.num_rows, empty.schema) == (0, TABLE.schema)
    others_of_no_kind: list[Any] = [5, {}, {"k": [1]}, "text", [5], [{"k": 1}]]
    for wrong in others_of_no_kind:
        with pytest.raises(InvalidRequest, match="rows in bulk are"):
            [*batches_of(wrong)]


@pytest.mark.parametrize("error", [TypeError("no"), ValueError("no"), pa.ArrowInvalid("no")])
def test_data_that_arrow_can_not_read_is_refused(error: Exception) -> None:
    for call in (batches_of, fields_of):
        with pytest.raises(InvalidRequest, match="the columns of this Broken can't be read"):
            [*call(Broken(error))]


def test_rows_of_an_update_name_the_same_columns() -> None:
    """In others, a column that a row does not name is null."""
    unlike = [{"k": 1, "v": 1}, {"k": 2, "v": 2, "a": 5}]
    assert converted(SCHEMA, unlike).column_names == ["k", "v", "a"]
    assert check_at_once(SCHEMA, unlike, "write").row_count == 2
    for call in (
        lambda: converted(SCHEMA, unlike, is_update=True),
        lambda: check_at_once(SCHEMA, unlike, "update"),
    ):
        with pytest.raises(SchemaViolation, match="must name the same columns"):
            call()


def test_fields_come_from_each_kind_of_data() -> None:
    arrow = [("k", pa.int64(), True), ("v", pa.int64(), True)]
    foreign = Foreign(has_array=True)
    for data in (TABLE, TABLE.schema, TABLE.to_reader(), TABLE.to_batches()[0], [TABLE], foreign):
        assert fields_of(data) == arrow
    assert fields_of(FRAME) == arrow
    assert fields_of({"k": [1, None]}) == [("k", [1, None], True)]
    assert fields_of([{"k": 1}, {"v": 2}]) == [("k", [1, None], True), ("v", [None, 2], True)]
    required = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    assert fields_of(required) == [("k", pa.int64(), False)]
    others: list[Any] = [[], 5, iter([TABLE])]
    for wrong in others:
        with pytest.raises(InvalidRequest, match="rows in bulk are"):
            fields_of(wrong)


# Checks


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of two rows."""
    monkeypatch.setattr(bulk, "PART_ROWS_MAX", 2)


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": keys, "v": keys})


def repeated(*keys: int) -> tuple[int, int] | None:
    """The first two rows with the same key."""
    try:
        checked = check_at_once(SCHEMA, rows(*keys), "write")
    except DuplicateKey as error:
        return error.attributes["first_row_index"], error.attributes["row_index"]
    assert checked.row_count == len(keys)
    assert len(checked.parts) == len(checked.keys) == -(-len(keys) // 2)
    return None


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ((1, 2, 3, 4, 5), None),
        ((1, 2, 2, 3), (1, 2)),
        ((1, 4, 2, 3), None),
        ((1, 4, 2, 4), (1, 3)),
        ((1, 3, 2, 5), None),
        ((1, 3, 2, 3, 4), (1, 3)),
        ((3, 4, 1, 2, 3), (0, 4)),
        ((2, 1), None),
        ((1, 1), (0, 1)),
        ((), None),
    ],
)
def test_a_key_that_comes_twice_is_found_across_parts(
    keys: tuple[int, ...], found: tuple[int, int] | None
) -> None:
    assert repeated(*keys) == found


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("place", range(5))
def test_a_mistake_names_its_row_in_the_whole_data(place: int) -> None:
    packed = [msgspec.msgpack.encode(1)] * 5
    packed[place] = b"\xc1"
    with pytest.raises(SchemaViolation) as caught:
        check_at_once(SCHEMA, pa.table({"k": range(5), "v": range(5), "a": packed}), "write")
    assert (caught.value.attributes["column"], caught.value.attributes["row_index"]) == ("a", place)


@pytest.mark.usefixtures("short_parts")
def test_other_tasks_run_between_two_parts() -> None:
    checking = check_all(SCHEMA, rows(1, 2, 3), "write")
    steps: list[Any] = []
    while True:
        try:
            steps.append(next(checking))
        except StopIteration as stop:
            checked = stop.value
            break
    assert steps == [Pause(0), Pause(0)]
    assert [it.num_rows for it in checked.parts] == [2, 1]
    assert checked.size_bytes == sum(it.nbytes for it in checked.parts)


def test_keys_out_of_order_have_so_many_bytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    size = check_at_once(SCHEMA, rows(1, 2), "write").keys[0].nbytes
    monkeypatch.setattr(module, "KEYS_BYTES_MAX", size)
    check_at_once(SCHEMA, rows(2, 1), "write")
    monkeypatch.setattr(module, "KEYS_BYTES_MAX", size - 1)
    check_at_once(SCHEMA, rows(1, 2), "write")
    with pytest.raises(LimitExceeded, match="Sort the rows by key") as caught:
        check_at_once(SCHEMA, rows(2, 1), "write")
    assert caught.value.attributes["size_bytes"] == size


def test_a_transaction_takes_exactly_the_rows_and_bytes_of_its_limits() -> None:
    checked = check_at_once(SCHEMA, rows(1, 2, 3), "write")
    count, size = checked.row_count, checked.size_bytes
    assert (count, size > 0) == (3, True)
    for rows_max, bytes_max, is_good in (
        (count, size, True),
        (count - 1, size, False),
        (count, size - 1, False),
    ):
        limits = TransactionLimits(rows_max=rows_max, bytes_max=bytes_max)
        if is_good:
            check_short(checked, "//t", limits)
        else:
            with pytest.raises(LimitExceeded) as caught:
                check_short(checked, "//t", limits)
            attributes = {"table": "//t", "row_count": count, "size_bytes": size}
            assert caught.value.attributes == attributes


def test_a_write_in_a_transaction_is_whole_and_has_one_of_two_modes() -> None:
    check_short_write(TABLE, "upsert")
    check_short_write(TABLE, "delete")
    with pytest.raises(InvalidRequest, match="'upsert' or 'delete', not 'insert'"):
        check_short_write(TABLE, "insert")
    with pytest.raises(InvalidRequest, match="takes no stream"):
        check_short_write(TABLE.to_reader(), "upsert")


@pytest.mark.usefixtures("short_parts")
def test_checked_rows_become_writes_or_deletions_in_their_order() -> None:
    checked = check_at_once(SCHEMA, rows(5, 3, 4), "write")
    keys = [SCHEMA.key_of({"k": it}) for it in (5, 3, 4)]
    assert writes_of(SCHEMA, checked, "write") == [
        (key, SCHEMA.full_mask, (it, None)) for key, it in zip(keys, (5, 3, 4), strict=True)
    ]
    assert writes_of(SCHEMA, checked, "delete") == [(key, 0, ()) for key in keys]
    assert writes_of(SCHEMA, Checked([], []), "write") == []


def test_a_stream_is_read_once() -> None:
    def batches() -> Iterator[Any]:
        yield rows(1)
        yield rows(2)

    assert check_at_once(SCHEMA, batches(), "write").row_count == 2
