"""The states of tablets: what each command and each word of a cell makes of them."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dodona.errors import DodonaError, InvalidRequest, InvalidTabletState, Unavailable
from dodona.types import KEY_MIN, CellId, Revision, TableSettings, TabletId
from dodona_oracle.core import mounting
from dodona_oracle.core.records import StoredTable, StoredTablet
from dodona_wire.messages.catalog import MountedTablet, TabletSource
from unit.oracle.realm import COLUMNS, pivot

CELL = CellId(3)
MOUNT, COMMAND = Revision(7), Revision(8)
STATES = [
    "unmounted",
    "mounting",
    "frozen_mounting",
    "mounted",
    "freezing",
    "frozen",
    "unfreezing",
    "unmounting",
]
SAME, REFUSED = "same", "refused"
Function = Callable[[StoredTable, int | None, int | None], StoredTable]


def table(*states: str) -> StoredTable:
    tablets = tuple(
        StoredTablet(
            TabletId(10 + at),
            pivot(at) if at else KEY_MIN,
            state,
            None if state == "unmounted" else CELL,
            Revision(0) if state == "unmounted" else MOUNT,
        )
        for at, state in enumerate(states)
    )
    return StoredTable(9, "//t", COLUMNS, "full", tablets)


def here(count: int) -> list[CellId]:
    return [CELL] * count


def nowhere(count: int) -> list[CellId]:
    raise Unavailable("no cell is alive")


def mount(it: StoredTable, first: int | None = None, last: int | None = None) -> StoredTable:
    return mounting.mount(it, first, last, is_frozen=False, revision=COMMAND, place=here)


def mount_frozen(it: StoredTable, first: int | None = None, last: int | None = None) -> StoredTable:
    return mounting.mount(it, first, last, is_frozen=True, revision=COMMAND, place=here)


COMMANDS: list[tuple[str, Function, list[str]]] = [
    ("mount", mount, ["mounting", SAME, REFUSED, SAME, REFUSED, REFUSED, SAME, REFUSED]),
    (
        "mount",
        mount_frozen,
        ["frozen_mounting", REFUSED, SAME, REFUSED, SAME, SAME, REFUSED, REFUSED],
    ),
    (
        "unmount",
        mounting.unmount,
        [SAME, REFUSED, REFUSED, "unmounting", REFUSED, "unmounting", REFUSED, SAME],
    ),
    ("freeze", mounting.freeze, [REFUSED, REFUSED, SAME, "freezing", SAME, SAME, REFUSED, REFUSED]),
    (
        "unfreeze",
        mounting.unfreeze,
        [REFUSED, REFUSED, REFUSED, SAME, REFUSED, "unfreezing", SAME, REFUSED],
    ),
]
PAIRS = [
    pytest.param(name, function, state, outcome, id=f"{function.__name__}-{state}")
    for name, function, outcomes in COMMANDS
    for state, outcome in zip(STATES, outcomes, strict=True)
]


@pytest.mark.parametrize(("name", "function", "state", "outcome"), PAIRS)
def test_each_command_in_each_state(
    name: str, function: Function, state: str, outcome: str
) -> None:
    before = table(state)
    if outcome == REFUSED:
        with pytest.raises(InvalidTabletState) as caught:
            function(before, None, None)
        assert caught.value.message == f'Cannot {name} tablet 10 in "{state}" state.'
        assert caught.value.attributes == {"table": "//t", "tablet": 10, "state": state}
    elif outcome == SAME:
        assert function(before, None, None) is before
    else:
        after = function(before, None, None).tablets[0]
        assert (after.state, after.cell) == (outcome, CELL)
        assert after.revision == (COMMAND if state == "unmounted" else MOUNT)


WORDS = {
    ("mounting", "mounted"): "mounted",
    ("frozen_mounting", "frozen"): "frozen",
    ("freezing", "frozen"): "frozen",
    ("unfreezing", "mounted"): "mounted",
    ("unmounting", "nothing"): "unmounted",
    ("unmounting", "unmounted"): "unmounted",
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("word", ["nothing", "unmounted", "mounted", "frozen"])
def test_each_reported_mode_in_each_state_gives_the_right_tablet_state(
    state: str, word: str
) -> None:
    before = table(state)
    said = {}
    if word != "nothing":
        said = {TabletId(10): MountedTablet(TabletId(10), before.tablets[0].revision, word)}
    after = mounting.take_heartbeat(before, CELL, said)
    assert after.tablets[0].state == WORDS.get((state, word), state)
    if (state, word) not in WORDS:
        assert after is before


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("word", ["mounted", "frozen"])
def test_a_report_of_another_mount_or_another_cell_changes_nothing(state: str, word: str) -> None:
    before = table(state)
    said = {TabletId(10): MountedTablet(TabletId(10), Revision(6), word)}
    assert mounting.take_heartbeat(before, CELL, said) is before
    right = {TabletId(10): MountedTablet(TabletId(10), MOUNT, word)}
    assert mounting.take_heartbeat(before, CellId(4), right) is before


@pytest.mark.parametrize(
    ("state", "mode"),
    [
        ("unmounted", None),
        ("mounting", "mounted"),
        ("frozen_mounting", "frozen"),
        ("mounted", "mounted"),
        ("freezing", "frozen"),
        ("frozen", "frozen"),
        ("unfreezing", "mounted"),
        ("unmounting", None),
    ],
)
def test_the_state_of_a_tablet_decides_the_mode_of_its_assignment(
    state: str, mode: str | None
) -> None:
    assert [it.mode for it in mounting.assignments(table(state), CELL)] == ([mode] if mode else [])
    assert mounting.assignments(table(state), CellId(4)) == []


@pytest.mark.parametrize("state", STATES)
def test_a_tablet_is_moving_unless_unmounted_mounted_or_frozen(state: str) -> None:
    is_stable = state in ("unmounted", "mounted", "frozen")
    assert mounting.is_moving(table(state).tablets[0]) != is_stable


@pytest.mark.parametrize(
    ("states", "together"),
    [
        *[((state, state), state) for state in STATES],
        (("mounted", "frozen"), "mixed"),
        (("mounted", "unmounted", "frozen"), "mixed"),
        (("mounted", "mounting"), "transient"),
        (("freezing", "frozen_mounting"), "transient"),
        (("unmounted", "unmounting", "frozen"), "transient"),
    ],
)
def test_the_state_of_a_table(states: tuple[str, ...], together: str) -> None:
    assert mounting.tablet_state(table(*states)) == together


# Ranges


def test_a_mount_command_changes_only_the_tablets_in_its_range() -> None:
    before = table("unmounted", "unmounted", "unmounted", "unmounted")
    after = mount(before, 1, 2)
    assert [it.state for it in after.tablets] == ["unmounted", "mounting", "mounting", "unmounted"]
    assert [it.revision for it in after.tablets] == [0, COMMAND, COMMAND, 0]
    assert [it.cell for it in after.tablets] == [None, CELL, CELL, None]
    assert [it.state for it in mount(before, 3).tablets] == ["unmounted"] * 3 + ["mounting"]
    assert [it.state for it in mount(before, None, 0).tablets] == ["mounting"] + ["unmounted"] * 3


def test_a_mount_asks_for_a_cell_only_for_a_tablet_that_has_none() -> None:
    counts: list[int] = []

    def place(count: int) -> list[CellId]:
        counts.append(count)
        return here(count)

    before = table("unmounted", "unmounted", "unmounted", "mounted")
    kept = replace(before.tablets[0], cell=CELL)
    it = replace(before, tablets=(kept, *before.tablets[1:]))
    mounting.mount(it, 0, 1, is_frozen=False, revision=COMMAND, place=place)
    assert counts == [1]


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (0, 2), (1, 0), (2, None), (None, 2), (2, 2)])
@pytest.mark.parametrize(
    "function",
    [mount, mount_frozen, mounting.unmount, mounting.freeze, mounting.unfreeze, mounting.remount],
    ids=lambda it: it.__name__,
)
def test_a_range_that_is_none_is_refused(
    function: Function, first: int | None, last: int | None
) -> None:
    with pytest.raises(
        InvalidRequest, match="not a valid range: the table has tablets 0 to 1"
    ) as it:
        function(table("mounted", "mounted"), first, last)
    end = 1 if last is None else last
    assert f"Tablets {first or 0} to {end} are" in it.value.message
    assert it.value.attributes["first_tablet"] == (first or 0)
    assert it.value.attributes["last_tablet"] == end


def test_one_tablet_in_the_wrong_state_refuses_the_whole_command() -> None:
    with pytest.raises(InvalidTabletState, match='Cannot freeze tablet 11 in "unmounted" state'):
        mounting.freeze(table("mounted", "unmounted"), None, None)
    assert mounting.freeze(table("mounted", "unmounted"), 0, 0).tablets[0].state == "freezing"


def test_a_freeze_of_mounted_and_frozen_mounting_tablets_ends_frozen() -> None:
    both = mounting.freeze(table("mounted", "frozen_mounting"), None, None)
    assert [it.state for it in both.tablets] == ["freezing", "frozen_mounting"]
    said = {TabletId(at): MountedTablet(TabletId(at), MOUNT, "frozen") for at in (10, 11)}
    after = mounting.take_heartbeat(both, CELL, said)
    assert [it.state for it in after.tablets] == ["frozen", "frozen"]


# Mounting


def test_a_mount_keeps_the_cell_of_a_tablet_and_places_only_new_tablets() -> None:
    before = table("unmounted", "unmounted", "unmounted")
    placed = replace(before.tablets[1], cell=CellId(1))
    before = replace(before, tablets=(before.tablets[0], placed, before.tablets[2]))
    after = mounting.mount(
        before,
        None,
        None,
        is_frozen=False,
        revision=COMMAND,
        place=lambda count: [CellId(20 + at) for at in range(count)],
    )
    assert [it.cell for it in after.tablets] == [20, 1, 21]


def test_without_a_cell_nothing_is_mounted_and_a_repeat_needs_none() -> None:
    with pytest.raises(Unavailable):
        mounting.mount(
            table("unmounted"), None, None, is_frozen=False, revision=COMMAND, place=nowhere
        )
    mounted = table("mounted")
    again = mounting.mount(mounted, None, None, is_frozen=False, revision=COMMAND, place=nowhere)
    assert again is mounted


def test_settings_reach_tablets_at_the_next_mount_or_remount() -> None:
    before = mounting.set_settings(table("unmounted"), {"max_data_versions": 5})
    mounted = mount(before)
    assert mounting.assignments(mounted, CELL)[0].settings == TableSettings(max_data_versions=5)
    changed = mounting.set_settings(mounted, {"max_data_versions": 6})
    assert mounting.assignments(changed, CELL)[0].settings == TableSettings(max_data_versions=5)
    remounted = mounting.remount(changed, None, None)
    (assigned,) = mounting.assignments(remounted, CELL)
    assert assigned.settings == TableSettings(max_data_versions=6)
    assert assigned.revision == COMMAND
    assert mounting.remount(remounted, None, None) is remounted


def test_a_remount_of_an_unmounted_table_changes_nothing() -> None:
    before = mounting.set_settings(table("unmounted"), {"min_data_ttl": 5})
    assert mounting.remount(before, None, None) is before


# Rows that are taken over


def copying() -> StoredTable:
    tablets = tuple(
        replace(it, cell=CELL, sources=(TabletSource(TabletId(1), CELL),))
        for it in table("unmounted").tablets
    )
    return replace(table("unmounted"), tablets=tablets)


def test_a_copied_tablet_stays_assigned_until_its_cell_has_the_rows() -> None:
    before = copying()
    (assigned,) = mounting.assignments(before, CELL)
    assert (assigned.mode, assigned.revision) == ("unmounted", 0)
    assert assigned.sources == (TabletSource(TabletId(1), CELL),)
    assert mounting.is_moving(before.tablets[0])
    assert mounting.take_heartbeat(before, CELL, {}) is before
    said = {TabletId(10): MountedTablet(TabletId(10), Revision(0), "unmounted")}
    after = mounting.take_heartbeat(before, CELL, said)
    assert (after.tablets[0].state, after.tablets[0].sources) == ("unmounted", ())
    assert mounting.assignments(after, CELL) == []
    assert not mounting.is_moving(after.tablets[0])


def test_a_copied_tablet_can_be_mounted_before_it_has_its_rows() -> None:
    copy = mount(copying())
    (assigned,) = mounting.assignments(copy, CELL)
    assert (assigned.mode, assigned.revision) == ("mounted", COMMAND)
    assert assigned.sources
    late = {TabletId(10): MountedTablet(TabletId(10), Revision(0), "unmounted")}
    assert mounting.take_heartbeat(copy, CELL, late) is copy
    said = {TabletId(10): MountedTablet(TabletId(10), COMMAND, "mounted")}
    after = mounting.take_heartbeat(copy, CELL, said).tablets[0]
    assert (after.state, after.sources) == ("mounted", ())


@pytest.mark.parametrize("change", [lambda it: it, mount, mount_frozen])
def test_a_tablet_that_has_yet_to_take_over_rows_is_assigned_first(change: Any) -> None:
    served = mounting.assignments(table("mounted", "frozen"), CELL)
    (copy,) = mounting.assignments(change(copying()), CELL)
    assert mounting.in_order([*served, copy]) == (copy, *served)


# The table as a whole


@pytest.mark.parametrize("state", STATES[1:])
def test_the_error_for_a_table_that_is_not_unmounted_names_the_operation(state: str) -> None:
    it = table("unmounted", state, "unmounted", "mounted" if state == "frozen" else "frozen")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: mounting.set_atomicity(it, "none"), "change table atomicity mode"),
        (
            lambda: mounting.set_settings(it, {"in_memory_mode": "compressed"}),
            "change table in-memory",
        ),
        (lambda: mounting.alter(it, (*COLUMNS, COLUMNS[-1])), "alter table"),
        (lambda: mounting.copied(it, "//u", 50), "copy table"),
        (lambda: mounting.check_all_unmounted(it, "move table"), "move table"),
    ]
    for call, what in refused:
        with pytest.raises(
            InvalidTabletState, match=f"Cannot {what}.*not all tablets are unm"
        ) as told:
            call()
        assert told.value.attributes == {
            "table": "//t",
            "tablet": 11,
            "state": state,
            "tablet_count": 2,
        }


def test_atomicity_and_settings_of_an_unmounted_table_change() -> None:
    it = table("unmounted")
    assert mounting.set_atomicity(it, "none").atomicity == "none"
    assert mounting.set_atomicity(it, "full") is it
    changed = mounting.set_settings(it, {"in_memory_mode": "uncompressed", "min_data_versions": 3})
    assert changed.settings == TableSettings(in_memory_mode="uncompressed", min_data_versions=3)
    assert (
        mounting.set_settings(changed, {"min_data_versions": None}).settings.min_data_versions == 1
    )
    assert mounting.set_settings(changed, {"min_data_versions": 3}) is changed
    assert mounting.set_atomicity(table("mounted"), "full").atomicity == "full"  # nothing changes


@pytest.mark.parametrize(
    "changes",
    [
        {"nothing": 1},
        {"max_data_ttl": "1"},
        {"max_data_ttl": -1},
        {"max_data_ttl": 1 << 63},
        {"max_data_versions": True},
        {"merge_rows_on_flush": 1},
        {"in_memory_mode": "sometimes"},
        {"in_memory_mode": True},
        {"isolation": "sometimes"},
        {"max_data_versions": 1.0},
    ],
)
def test_a_setting_that_is_none_is_refused(changes: dict[str, object]) -> None:
    name, *_ = changes
    with pytest.raises(InvalidRequest, match=r"setting|0 to|takes a value|must be") as caught:
        mounting.set_settings(table("unmounted"), changes)
    assert name in caught.value.message
    assert caught.value.attributes["table"] == "//t"


def test_an_atomicity_that_is_none_is_refused() -> None:
    wrong: object = "half"
    with pytest.raises(DodonaError, match="Atomicity must be"):
        mounting.set_atomicity(table("unmounted"), wrong)  # type: ignore[arg-type]
