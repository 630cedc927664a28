"""The route cache: key → tablet, and what becomes of routes that proved stale."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona._core.protocol.routing import (
    REFRESH_MS_MAX,
    Routing,
    TableRoute,
    is_served,
    is_soon_served,
)
from dodona.types import KEY_MAX, KEY_MIN, CellId, Key
from dodona_wire.messages.catalog import Cell, Cluster
from unit.client.protocols import COLUMNS, PATH, SCHEMA, key, table, tablet

PIVOTS = (10, 20, 30)
MANY = table((tablet(0, 0, None), *(tablet(n, 0, p) for n, p in enumerate(PIVOTS, start=1))))


def many() -> TableRoute:
    return TableRoute(MANY, SCHEMA)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(-1, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3), (1 << 62, 3)],
)
def test_a_key_belongs_to_the_tablet_with_the_largest_pivot_key_not_above(
    value: int, expected: int
) -> None:
    assert many().tablet_of(key(value)).tablet == expected


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (KEY_MIN, KEY_MAX, [0, 1, 2, 3]),
        (key(10), key(20), [1]),
        (key(10), key(21), [1, 2]),
        (key(9), key(10), [0]),
        (key(15), key(16), [1]),
        (key(30), KEY_MAX, [3]),
        (key(20), key(20), []),
        (key(20), key(10), []),
        (KEY_MIN, KEY_MIN, []),
    ],
)
def test_a_range_touches_these_tablets(lower: Key, upper: Key, expected: list[int]) -> None:
    assert [it.tablet for it, _, _ in many().parts_of(lower, upper)] == expected


@given(st.integers(-5, 45), st.integers(-5, 45))
def test_the_parts_of_a_range_join_up_and_stay_in_their_tablets(lower: int, upper: int) -> None:
    route = many()
    parts = route.parts_of(key(lower), key(upper))
    ends = [part[1] for part in parts] + [parts[-1][2]] if parts else []
    assert ends == sorted(set(ends))
    assert bool(parts) == (lower < upper)
    if parts:
        assert (ends[0], ends[-1]) == (key(lower), key(upper))
    for part, first, end in parts:
        assert route.tablet_of(first) is part
        assert first < end


@pytest.mark.parametrize(
    ("state", "is_read", "is_written", "is_soon_read", "is_soon_written"),
    [
        ("unmounted", False, False, False, False),
        ("mounting", False, False, True, True),
        ("frozen_mounting", False, False, True, False),
        ("mounted", True, True, True, True),
        ("freezing", True, False, True, False),
        ("frozen", True, False, True, False),
        ("unfreezing", True, False, True, True),
        ("unmounting", False, False, False, False),
    ],
)
def test_the_tablet_state_decides_whether_reads_and_writes_are_served(
    state: str, is_read: bool, is_written: bool, is_soon_read: bool, is_soon_written: bool
) -> None:
    it = tablet(1, 0, None, state=state)
    assert (is_served(it, is_write=False), is_served(it, is_write=True)) == (is_read, is_written)
    assert is_soon_served(it, is_write=False) == is_soon_read
    assert is_soon_served(it, is_write=True) == is_soon_written


def test_a_tablet_without_a_cell_is_not_served() -> None:
    assert not is_served(tablet(1, None, None), is_write=False)
    assert not is_served(tablet(1, None, None), is_write=True)


def test_a_stale_route_does_not_hide_a_newer_route() -> None:
    routing = Routing()
    old = routing.learn(table())
    new = routing.learn(table())
    old.mark_stale()
    assert routing.find(PATH) is new
    routing.forget(PATH)
    assert routing.find(PATH) is None
    routing.forget("//unknown")


def test_an_unchanged_schema_stays_the_same_object_even_if_the_route_was_stale() -> None:
    routing = Routing()
    first = routing.learn(table())
    first.mark_stale()
    second = routing.learn(table())
    assert second.schema is first.schema
    third = routing.learn(table(columns=COLUMNS[:2]))
    assert third.schema is not first.schema


def test_the_cache_is_bounded_and_drops_the_oldest() -> None:
    routing = Routing(tables_max=2)
    for path in ("//a", "//b", "//a", "//c"):
        routing.learn(table(path=path))
    assert [routing.find(it) is not None for it in ("//a", "//b", "//c")] == [True, False, True]


def test_addresses_come_from_tables_and_from_the_cluster() -> None:
    routing = Routing()
    routing.learn(table())
    cells = (Cell(CellId(1), "moved", True, 1), Cell(CellId(2), "dead", False, 0))
    routing.learn_cells(Cluster((), cells))
    assert routing.addresses == {0: "node0", 1: "moved"}


def test_one_asks_and_the_others_wait_but_not_for_ever() -> None:
    routing = Routing()
    assert routing.begin_refresh(PATH, 0)
    assert not routing.begin_refresh(PATH, 1)
    assert routing.begin_refresh("//other", 1)
    assert routing.begin_refresh(PATH, REFRESH_MS_MAX * 1000)
    routing.end_refresh(PATH)
    assert routing.begin_refresh(PATH, REFRESH_MS_MAX * 1000 + 1)
