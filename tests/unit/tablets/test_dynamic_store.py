"""A store in memory by itself: counts, the order of keys, reads far down, and its end."""

from typing import Any, ClassVar

import pytest

from dodona.types import KEY_MAX, KEY_MIN, MAX_TIMESTAMP, NULL_TIMESTAMP, Key, Timestamp
from dodona_tablets.core.rows import store as module
from dodona_tablets.core.rows.store import (
    ROW_BYTES,
    RUNG_STEP,
    VERSION_BYTES,
    DynamicStore,
    Marks,
)
from dodona_tablets.core.rows.version import Version, chain_of, history, version_of
from dodona_wire.rows.sizes import write_bytes


def key(number: int) -> Key:
    return Key(number.to_bytes(4, "big"))


def put(store: DynamicStore, number: int, at: int, *, marks: Marks | None = None) -> None:
    store.apply([(key(number), 1, (at,))], Timestamp(at), 10, marks)


def filled(*numbers: int, number: int = 1) -> DynamicStore:
    store = DynamicStore(number)
    for it in numbers:
        put(store, it, 5)
    return store


def walked(store: DynamicStore, lower: Key = KEY_MIN, upper: Key = KEY_MAX) -> list[int]:
    return [int.from_bytes(it, "big") for it, _ in store.walk(lower, upper)]


def chain(*times: int) -> Version:
    made = chain_of(version_of(Timestamp(at), 1, (at,)) for at in times)
    assert made is not None
    return made


def times_of(newest: Version | None) -> list[int]:
    return [it[0] for it in history(newest)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, tails and windows that a few keys fill."""
    monkeypatch.setattr(module, "TAIL_KEYS_MAX", 4)
    monkeypatch.setattr(module, "RUN_KEYS_MAX", 16)
    monkeypatch.setattr(module, "WINDOW_KEYS_FIRST", 2)
    monkeypatch.setattr(module, "WINDOW_KEYS", 8)


# Counts


def test_the_size_of_a_version_from_elsewhere_does_not_depend_on_its_time() -> None:
    early, late = DynamicStore(1), DynamicStore(2)
    early.put(key(1), chain(5))
    late.put(key(1), version_of(Timestamp(1 << 60), 1, (5,)))
    assert early.size_bytes == late.size_bytes


def test_a_new_store_is_empty_and_nothing_has_happened_to_it() -> None:
    store = DynamicStore(7)
    assert (store.number, len(store), store.size_bytes, store.version_count) == (7, 0, 0, 0)
    assert (store.min_timestamp, store.max_timestamp) == (MAX_TIMESTAMP, NULL_TIMESTAMP)
    assert (store.born_us, store.pin_count, store.bounds) == (None, 0, None)
    assert not store.is_flushed
    assert not store.is_retired
    assert not store.has_marks
    assert store.newest_at(key(1), MAX_TIMESTAMP) is None
    assert walked(store) == []


def test_writes_are_counted_with_their_bytes_and_times() -> None:
    store = DynamicStore(1)
    store.apply([(key(1), 1, (5,)), (key(2), 1, (5,))], Timestamp(5), 100)
    store.apply([(key(1), 1, (7,))], Timestamp(7), 30)
    store.apply([(key(3), 1, (3,))], Timestamp(3), 1)
    store.apply([], Timestamp(1), 1_000)
    assert (len(store), store.version_count) == (3, 4)
    assert store.size_bytes == 3 * ROW_BYTES + 4 * VERSION_BYTES + 131
    assert (store.min_timestamp, store.max_timestamp) == (3, 7)
    store.check()


def test_versions_from_elsewhere_are_counted_too() -> None:
    store = filled(1)
    store.put(key(2), None)
    assert len(store) == 1
    newest = chain(9, 4)
    store.put(key(2), newest)
    size_bytes = sum(write_bytes((key(2), it[1], it[2])) for it in history(newest))
    assert (len(store), store.version_count) == (2, 3)
    assert store.size_bytes == 2 * ROW_BYTES + 3 * VERSION_BYTES + 10 + size_bytes
    assert (store.min_timestamp, store.max_timestamp) == (4, 9)
    store.put(key(1), chain(8, 2))
    assert times_of(store.rows[key(1)]) == [8, 5, 2]
    assert (store.min_timestamp, store.max_timestamp) == (2, 9)
    assert walked(store) == [1, 2]
    store.check()


def test_a_ghost_takes_nothing() -> None:
    ghost = DynamicStore(1, is_ghost=True)
    put(ghost, 1, 5)
    ghost.put(key(1), chain(5))
    assert (len(ghost), ghost.version_count, ghost.size_bytes) == (0, 0, 0)


def test_marks_belong_to_the_keys_that_have_them() -> None:
    store = filled(1)
    put(store, 2, 6, marks={})
    assert not store.has_marks
    store.apply([(key(1), 1, (7,)), (key(2), 1, (7,))], Timestamp(7), 10, {key(2): (1, 2)})
    assert store.has_marks
    assert store.rows[key(1)] == (7, 1, (7,), (5, 1, (5,), None))
    assert store.rows[key(2)] == (7, 1, (7,), (6, 1, (6,), None), 1, 2)
    put(store, 3, 8)
    assert store.has_marks
    other = filled(1)
    other.put(key(2), chain(5))
    assert not other.has_marks
    other.put(key(2), version_of(Timestamp(9), 1, (1,), None, 1))
    other.put(key(3), chain(5))
    assert other.has_marks


def test_a_late_version_takes_its_place() -> None:
    store = filled(1)
    for at in (9, 7, 3):
        put(store, 1, at)
    assert times_of(store.rows[key(1)]) == [9, 7, 5, 3]
    store.apply([(key(1), 2, ("x",))], Timestamp(9), 10)
    assert store.rows[key(1)][:3] == (9, 3, (9, "x")), "one version for both changes"
    assert (store.min_timestamp, store.max_timestamp) == (3, 9)


# Reads far down


def seen(store: DynamicStore, at: int) -> int | None:
    newest = store.newest_at(key(1), Timestamp(at))
    return None if newest is None else newest[0]


def test_each_time_has_its_version_however_far_down() -> None:
    store = DynamicStore(1)
    expected: list[int] = []
    for last in (1, RUNG_STEP, RUNG_STEP + 1, 2 * RUNG_STEP + 1, 5 * RUNG_STEP):
        for at in range(len(expected) + 1, last + 1):
            put(store, 1, 2 * at)
            expected.append(2 * at)
        for at in range(1, 2 * last + 2):
            assert seen(store, at) == (at // 2 * 2 or None), (last, at)
    put(store, 1, 101)  # late, and far down
    assert (seen(store, 101), seen(store, 100), seen(store, 102)) == (101, 100, 102)
    store.put(key(1), chain(7))
    assert (seen(store, 7), seen(store, 6), seen(store, 8)) == (7, 6, 8)


def test_a_read_far_down_is_short_the_next_time() -> None:
    """It begins at a rung: the versions above are not visited."""
    store = DynamicStore(1)
    count = 10 * RUNG_STEP
    for at in range(1, count + 1):
        put(store, 1, at)
    assert seen(store, 1) == 1
    (rungs,) = store._rungs.values()
    assert [it[0] for it in rungs] == [RUNG_STEP * it for it in range(1, 11)]
    for at in range(count + 1, count + RUNG_STEP + 2):
        put(store, 1, at)
    assert seen(store, count) == count
    assert [it[0] for it in rungs] == [RUNG_STEP * it for it in range(1, 12)]
    assert seen(DynamicStore(1), 1) is None


class Looked(tuple[Any, ...]):
    """A version that counts how often a walk goes on from it."""

    __slots__ = ()
    steps: ClassVar = [0]

    def __getitem__(self, place: Any) -> Any:
        self.steps[0] += place == 3
        return super().__getitem__(place)


def test_a_walk_goes_from_the_next_rung_above() -> None:
    store = DynamicStore(1)
    newest: Any = None
    for at in range(1, 10 * RUNG_STEP + 1):
        newest = Looked((Timestamp(at), 1, (at,), newest))
    store.rows[key(1)] = newest
    for at in (1, 1, 100, 300):
        Looked.steps[0] = 0
        assert seen(store, at) == at
    assert Looked.steps[0] < 2 * RUNG_STEP


def test_a_short_row_has_no_rungs() -> None:
    store = DynamicStore(1)
    for at in range(1, RUNG_STEP + 1):
        put(store, 1, at)
    assert seen(store, 1) == 1
    assert store._rungs == {}
    put(store, 1, RUNG_STEP + 1)
    assert seen(store, 1) == 1
    assert [*store._rungs] == [key(1)]


# The order of keys

SHUFFLED = [7 * it % 101 for it in range(1, 101)]


@pytest.mark.usefixtures("small")
def test_a_walk_has_all_keys_of_its_range_in_order() -> None:
    store = DynamicStore(1)
    for count, number in enumerate(SHUFFLED, start=1):
        put(store, number, 5)
        if count % 9 == 0 or count == 100:
            known = sorted(SHUFFLED[:count])
            assert walked(store) == known
            assert walked(store, key(20), key(60)) == [it for it in known if 20 <= it < 60]
            assert store.count(key(20), key(60)) == sum(20 <= it < 60 for it in known)
            assert store.bounds == (key(known[0]), key(known[-1]))
            store.check()
    assert walked(store, key(20), key(20)) == []
    assert store.count(KEY_MIN, KEY_MAX) == 100
    assert len(store._runs) > 1


@pytest.mark.usefixtures("small")
def test_runs_are_merged_up_to_their_length() -> None:
    store = DynamicStore(1)
    lengths = []
    for number in range(48):
        put(store, number, 5)
        if number % 4 == 3:
            lengths.append([len(it) for it in store._runs])
    assert lengths[:5] == [[4], [8], [8, 4], [16], [16, 4]]
    assert lengths[-1] == [16, 16, 16]
    assert store._tail == []


def test_a_run_is_merged_with_one_of_more_than_half_its_length() -> None:
    store = DynamicStore(1)
    for first, count in ((0, 12), (20, 8)):
        writes = [(key(it), 1, (5,)) for it in range(first, first + count)]
        store.apply(writes, Timestamp(5), 10)
        store.sort()
    assert [len(it) for it in store._runs] == [20]


def test_a_check_finds_a_chain_that_is_out_of_order() -> None:
    store = filled(1)
    store.check()
    store.rows[key(1)] = chain(3, 9)
    with pytest.raises(AssertionError):
        store.check()


@pytest.mark.usefixtures("small")
def test_keys_are_sorted_once_the_tail_is_full() -> None:
    store = filled(3, 2, 1)
    assert store._runs == []
    put(store, 1, 6)
    assert store._runs == [], "the key is there"
    put(store, 0, 5)
    assert store._runs == [[key(0), key(1), key(2), key(3)]]


@pytest.mark.parametrize(
    ("most", "since", "found", "end"),
    [
        (9, 0, [1, 2, 3], key(9)),
        (3, 0, [1, 2, 3], key(9)),
        (2, 0, [1, 2], key(3)),
        (2, 5, [2], key(3)),
        (9, 6, [], key(9)),
        (9, 4, [1, 2, 3], key(9)),
        (0, 0, [], key(1)),
    ],
)
def test_newer_rows_of_a_range_come_with_the_end_of_what_was_looked_at(
    most: int, since: int, found: list[int], end: Any
) -> None:
    store = filled(3, 1, 9)
    put(store, 2, 6)
    rows, until = store.newer(key(0), key(9), Timestamp(since), most)
    assert [(it, newest[0]) for it, newest in rows] == [
        (key(it), 6 if it == 2 else 5) for it in found
    ]
    assert until == end


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("width", [1, 5, 20, 100])
def test_changed_keys_of_a_range_are_found_in_both_ways(width: int) -> None:
    store = DynamicStore(1)
    for number in range(100):
        store.apply(((_key(number), 1, (0,)),), Timestamp(1 + number % 2), 1)
    for number in range(0, 100, 3):
        store.apply(((_key(number), 1, (0,)),), Timestamp(10 + number), 1)
    end = min(40 + width, 100)
    found = store.changed_after(Timestamp(1), _key(40), _key(end))
    expected = [it for it in range(40, end) if it % 2 or it % 3 == 0]
    assert sorted(found) == [_key(it) for it in expected]
    assert store.changed_after(Timestamp(200), _key(0), _key(99)) == []


def test_samples_stand_for_all_keys_of_a_range() -> None:
    store = filled(*range(8))
    assert [*store.sample(key(1), key(7), 4)] == [(key(1), 4), (key(5), 2)]
    assert [*store.sample(KEY_MIN, KEY_MAX, 8)] == [(key(0), 8)]
    assert [*store.sample(KEY_MIN, KEY_MAX, 7)] == [(key(0), 7), (key(7), 1)]
    assert [*store.sample(key(3), key(3), 1)] == []


# The end


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_a_store_is_freed_in_steps_of_so_many_versions(step: int) -> None:
    store = filled(1, 2, 3)
    for at in (6, 7, 8):
        put(store, 2, at)
    store.newest_at(key(2), Timestamp(5))
    calls = 1
    while not store.shrink(step):
        calls += 1
        assert calls < 10
    assert calls == -(-6 // step)
    assert (len(store), walked(store), store.bounds) == (0, [], None)
    assert store.shrink(1)


def _key(number: int) -> Key:
    return Key(bytes([number]))
