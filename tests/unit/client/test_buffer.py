"""Several modifications of one row in one transaction: values, changes, lock types."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona._core.protocol.limits import TransactionLimits
from dodona._core.reading.own_writes import overlay_found
from dodona._core.writing.buffer import TableBuffer
from dodona._core.writing.transaction import TransactionBuffer
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import TableSchema
from dodona.types import Timestamp
from unit.client.protocols import PATH, key

SCHEMA = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "sum", "type": "int64", "aggregate": "sum", "lock": "s"},
        {"name": "min", "type": "utf8", "aggregate": "min"},
        {"name": "first", "type": "any", "aggregate": "first", "lock": "f"},
    ]
)
A, SUM, MIN, FIRST = 1, 2, 4, 8
MAIN_GROUP, S_GROUP, F_GROUP = 1, 2, 4


class Bench:
    """A transaction that modifies row 1."""

    def __init__(self) -> None:
        self.transaction = TransactionBuffer(
            Timestamp(50),
            atomicity="full",
            durability="sync",
            begun_us=0,
            limits=TransactionLimits(),
        )

    def put(self, *, update: bool = False, lock_type: Any = "exclusive", **values: Any) -> None:
        row = {"id": 1, **values}
        self.transaction.insert(PATH, SCHEMA, [row], is_update=update, lock_type=lock_type)

    def change(self, *, update: bool = True, lock_type: Any = "exclusive", **values: Any) -> None:
        row = {"id": 1, **values}
        self.transaction.insert(
            PATH, SCHEMA, [row], is_update=update, is_aggregate=True, lock_type=lock_type
        )

    def delete(self) -> None:
        self.transaction.delete(PATH, SCHEMA, [{"id": 1}])

    def lock(self, locks: list[str] | None, lock_type: Any = "shared_strong") -> None:
        self.transaction.lock(PATH, SCHEMA, [{"id": 1}], locks, lock_type)

    @property
    def table(self) -> TableBuffer:
        return self.transaction.tables[PATH]

    @property
    def write(self) -> tuple[int, tuple[Any, ...]]:
        return self.table.writes[key(1)][1:]

    @property
    def special(self) -> tuple[int, int] | None:
        return self.table.special.get(key(1))


# ---- what one call means


def test_an_aggregate_column_gets_a_change_only_if_the_call_requests_one() -> None:
    it = Bench()
    it.put(update=True, sum=5)
    assert (it.write, it.special) == ((SUM, (5,)), None)
    it = Bench()
    it.change(sum=5)
    assert (it.write, it.special) == ((SUM, (5,)), (SUM, 0))


def test_an_aggregating_insert_overwrites_only_columns_without_aggregate() -> None:
    it = Bench()
    it.change(update=False, sum=5)
    assert (it.write, it.special) == ((A | SUM, (None, 5)), (SUM, 0))


def test_null_is_no_change() -> None:
    it = Bench()
    it.change(a=1, sum=None, min="x")
    assert (it.write, it.special) == ((A | MIN, (1, "x")), (MIN, 0))


def test_a_row_that_changes_nothing_is_no_deletion() -> None:
    it = Bench()
    it.change(sum=None)
    assert (it.write, it.special) == ((SUM, (None,)), (SUM, 0))


def test_in_a_table_without_aggregates_a_change_is_a_write() -> None:
    plain = TableSchema.parse(
        [
            {"name": "id", "type": "int64", "sort_order": "ascending"},
            {"name": "a", "type": "int64"},
        ]
    )
    it = Bench().transaction
    it.insert(PATH, plain, [{"id": 1, "a": 5}], is_update=False, is_aggregate=True)
    assert it.tables[PATH].special == {}


def test_a_required_aggregate_must_be_given() -> None:
    schema = TableSchema.parse(
        [
            {"name": "id", "type": "int64", "sort_order": "ascending"},
            {"name": "sum", "type": "int64", "aggregate": "sum", "required": True},
            {"name": "a", "type": "int64"},
        ]
    )
    it = Bench().transaction
    for row, said in (({"id": 1, "a": 1}, "missing"), ({"id": 1, "sum": None}, "is null")):
        with pytest.raises(SchemaViolation, match=said):
            it.insert(PATH, schema, [row], is_update=True, is_aggregate=True)


# ---- several calls


def test_changes_are_combined() -> None:
    it = Bench()
    it.change(sum=5, min="b", first=[1])
    it.change(sum=-7, min="a", first=[2])
    assert it.write == (SUM | MIN | FIRST, (-2, "a", [1]))
    assert it.special == (SUM | MIN | FIRST, 0)


def test_a_sum_of_changes_wraps_around() -> None:
    it = Bench()
    it.change(sum=(1 << 63) - 1)
    it.change(sum=1)
    assert it.write == (SUM, (-(1 << 63),))


def test_a_change_of_a_plain_value_is_a_plain_value() -> None:
    it = Bench()
    it.put(sum=5)
    it.change(sum=2, min="x")
    assert (it.write, it.special) == ((A | SUM | MIN | FIRST, (None, 7, "x", None)), None)


def test_a_plain_value_takes_the_place_of_a_change() -> None:
    it = Bench()
    it.change(sum=5, min="x")
    it.put(update=True, sum=2)
    assert (it.write, it.special) == ((SUM | MIN, (2, "x")), (MIN, 0))
    it.put(a=1)
    assert (it.write, it.special) == ((15, (1, None, None, None)), None)


def test_a_deletion_drops_changes_and_turns_a_later_change_into_the_value() -> None:
    it = Bench()
    it.change(sum=5, lock_type="shared_write")
    it.delete()
    assert (it.write, it.special) == ((0, ()), None)
    it.change(sum=3)
    assert (it.write, it.special) == ((15, (None, 3, None, None)), None)


def test_one_call_may_modify_a_row_several_times() -> None:
    it = Bench()
    rows = [{"id": 1, "sum": 1}, {"id": 2, "sum": 9}, {"id": 1, "sum": 2}]
    it.transaction.insert(PATH, SCHEMA, rows, is_update=True, is_aggregate=True)
    assert it.write == (SUM, (3,))
    assert it.transaction.row_count == 2


# ---- lock types


def test_a_shared_write_takes_shared_locks_on_the_lock_groups_of_its_columns() -> None:
    it = Bench()
    it.put(update=True, sum=1, lock_type="shared_write")
    assert it.special == (0, S_GROUP)
    it.put(update=True, a=1, lock_type="shared_write")
    assert it.special == (0, MAIN_GROUP | S_GROUP)


def test_exclusive_beats_shared_write_in_either_order() -> None:
    it = Bench()
    it.put(update=True, sum=1, a=1, lock_type="shared_write")
    it.put(update=True, a=2)
    assert it.special == (0, S_GROUP)
    it.put(update=True, a=3, lock_type="shared_write")
    assert (it.write, it.special) == ((A | SUM, (3, 1)), (0, S_GROUP))
    it.put(a=1)
    assert it.special is None


def test_a_shared_write_after_a_deletion_takes_an_exclusive_lock() -> None:
    it = Bench()
    it.delete()
    it.put(lock_type="shared_write", a=1)
    assert (it.write, it.special) == ((15, (1, None, None, None)), None)


@pytest.mark.parametrize("lock_type", ["shared_weak", "shared_strong", "none", "", None])
def test_rows_are_not_written_under_a_read_lock(lock_type: Any) -> None:
    said = f'Inappropriate lock type "{lock_type}" given for write modification'
    with pytest.raises(InvalidRequest, match=said):
        Bench().put(a=1, lock_type=lock_type)


# ---- locks without data


def test_locks_gather_by_type() -> None:
    it = Bench()
    it.lock(None)
    it.lock(["s"])
    it.lock(["f", "s"], "shared_weak")
    assert it.table.locks == {
        key(1): {"shared_strong": MAIN_GROUP | S_GROUP, "shared_weak": F_GROUP | S_GROUP}
    }
    assert it.table.writes == {}


def test_no_locks_are_nothing_to_do() -> None:
    it = Bench()
    it.lock([])
    assert it.transaction.tables == {}


def test_a_deletion_leaves_locks_alone() -> None:
    it = Bench()
    it.lock(["s"])
    it.put(a=1, lock_type="shared_write")
    it.delete()
    assert it.table.locks == {key(1): {"shared_strong": S_GROUP}}
    assert it.special is None


@pytest.mark.parametrize("name", ["x", "<primary>", "a", ""])
def test_an_unknown_lock_group_is_named(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f'Lock group "{name}" not found in schema'):
        Bench().lock(["s", name])


def test_a_lock_of_no_known_type_is_refused() -> None:
    with pytest.raises(InvalidRequest, match='lock type "none" given for row lock'):
        Bench().lock(None, "none")


def test_a_lone_lock_name_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="list of names"):
        Bench().lock("s")  # type: ignore[arg-type]


def test_one_bad_key_leaves_none_of_the_locks_behind() -> None:
    it = Bench().transaction
    with pytest.raises(SchemaViolation) as caught:
        it.lock(PATH, SCHEMA, [{"id": 1}, {"id": "x"}], None, "exclusive")
    assert caught.value.attributes["row_index"] == 1
    assert (it.row_count, it.size_bytes, it.tables) == (0, 0, {})


# ---- any sequence, against the meaning of each step


steps = st.lists(
    st.one_of(
        st.just(("delete",)),
        st.tuples(
            st.sampled_from(["overwrite", "update", "change", "overwriting change"]),
            st.dictionaries(st.sampled_from(["a", "sum"]), st.integers(-3, 3), min_size=1),
        ),
    ),
    max_size=8,
)
bases = st.none() | st.fixed_dictionaries(
    {"a": st.none() | st.integers(-3, 3), "sum": st.none() | st.integers(-3, 3)}
)
Model = dict[str, Any] | None


def step_on(row: Model, step: Any) -> Model:
    """What one modification, committed alone, makes of a row."""
    kind, *rest = step
    if kind == "delete":
        return None
    (values,) = rest
    before = row or {"a": None, "sum": None}
    kept = before if kind in ("update", "change") else {"a": None, "sum": None}
    after = {**kept, **values}
    if "change" in kind:
        changes = [it for it in (before["sum"], values.get("sum")) if it is not None]
        after["sum"] = sum(changes) if changes else None
    return after


def commit_on(row: Model, it: Bench) -> Model:
    """What the buffer makes of a row: one write, some of whose values may be changes."""
    if PATH not in it.transaction.tables:
        return row
    mask, values = it.write
    if not mask:
        return None
    deltas, _ = it.special or (0, 0)
    after = dict(row or {"a": None, "sum": None})
    bits = [bit for bit in range(4) if mask >> bit & 1]
    for bit, value in zip(bits, values, strict=True):
        name = SCHEMA.value_names[bit]
        if name not in after:
            continue
        is_change = deltas >> bit & 1 and after[name] is not None
        after[name] = after[name] + value if is_change else value
    return after


@given(bases, steps)
def test_a_committed_buffer_equals_its_steps_applied_one_by_one(base: Model, taken: Any) -> None:
    it, expected = Bench(), base
    for step in taken:
        expected = step_on(expected, step)
        take(it, step)
    assert commit_on(base, it) == expected


@given(bases, steps, st.sets(st.sampled_from(["a", "sum"])))
def test_a_read_of_own_writes_equals_the_steps_applied_one_by_one(
    base: Model, taken: Any, columns: set[str]
) -> None:
    it, expected = Bench(), base
    it.lock(None)
    for step in taken:
        expected = step_on(expected, step)
        take(it, step)
    wanted = SCHEMA.column_mask(sorted(columns))
    found = [None if base is None else tuple(base[name] for name in sorted(columns))]
    overlay_found(it.table, wanted, [key(1)], found)
    assert found == [
        None if expected is None else tuple(expected[name] for name in sorted(columns))
    ]


def take(it: Bench, step: Any) -> None:
    match step:
        case ("delete",):
            it.delete()
        case ("overwrite", values):
            it.put(**values)
        case ("update", values):
            it.put(update=True, **values)
        case (kind, values):
            it.change(update=kind == "change", **values)


def test_a_special_key_may_become_ordinary_again() -> None:
    it = Bench()
    it.change(sum=1)
    it.delete()
    assert it.table.special == {}
