"""Tables as a whole: how they are cut into tablets, their life, and the waits for it."""

from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from dodona._core.catalog.tables import TABLETS_MAX, pivots_of
from dodona._core.protocol.steps import MASTER, Target
from dodona.errors import (
    DataCorrupted,
    InvalidRequest,
    SchemaViolation,
    TableExists,
    TableNotFound,
    Unavailable,
)
from dodona.keys import encode_key
from dodona.schema import Column, TableSchema
from dodona.types import Key, TableSettings
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import (
    AlterTable,
    Cluster,
    CreateTable,
    Done,
    FreezeTable,
    GetTable,
    ListTables,
    MountTable,
    RemountTable,
    ReshardTable,
    Table,
    TableList,
    UnfreezeTable,
    UnmountTable,
)
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.tree import RemoveNode
from dodona_wire.rows.key_prefixes import decode_prefix
from unit.client.protocols import (
    COLUMNS,
    LOST,
    NEVER_SENT,
    PATH,
    SCHEMA,
    Clock,
    Play,
    finish,
    key,
    new_session,
    nobody,
    play,
    table,
    tablet,
)

MISSING = Failure("table_not_found", "there is no table", {"path": PATH})


def keyed_by(column_type: str, order: str = "ascending") -> TableSchema:
    first = {"name": "k", "type": column_type, "sort_order": order}
    return TableSchema.parse([first, {"name": "v", "type": "int64"}])


# ---- how a table is cut


def test_a_table_has_one_tablet_unless_asked_otherwise() -> None:
    assert pivots_of(SCHEMA, None, None) == (b"",)


def test_pivot_keys_are_leading_key_values() -> None:
    assert pivots_of(SCHEMA, [[], [5], (7,)], None) == (b"", key(5), key(7))


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("column_type", ["int64", "uint64", "string", "int8", "date", "uuid"])
@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_a_tablet_count_cuts_all_values_evenly(column_type: str, count: int, order: str) -> None:
    pivots = pivots_of(keyed_by(column_type, order), None, count)
    assert len(pivots) == count
    assert pivots[0] == b""
    assert list(pivots) == sorted(set(pivots))


def test_halves_of_integers_meet_in_the_middle() -> None:
    assert pivots_of(keyed_by("int64"), None, 2)[1] == encode_key([0], ["int64"])
    assert pivots_of(keyed_by("uint64"), None, 2)[1] == encode_key([1 << 63], ["uint64"])
    assert pivots_of(keyed_by("string"), None, 2)[1] == encode_key([b"\x80\x00"], ["string"])


@pytest.mark.parametrize("count", [2, 3, 7, 256])
def test_tablets_of_descending_values_have_as_many_of_them(count: int) -> None:
    up, down = keyed_by("int8"), keyed_by("int8", "descending")
    sizes = []
    for schema in (up, down):
        pivots = pivots_of(schema, None, count)
        keys = [schema.key_of({"k": it}) for it in range(-128, 128)]
        sizes.append(Counter(bisect_right(pivots, it) for it in keys))
    assert sizes[0] == sizes[1]


def test_halves_of_descending_values_meet_in_the_middle() -> None:
    def middle(column_type: str) -> tuple[Any, ...]:
        schema = keyed_by(column_type, "descending")
        return schema.decode_prefix(pivots_of(schema, None, 2)[1])

    assert middle("int64") == (-1,)
    assert middle("uint64") == ((1 << 63) - 1,)
    assert middle("string") == (b"\x7f\xff",)


@pytest.mark.parametrize(
    ("schema", "pivot_keys", "count", "error", "said"),
    [
        (SCHEMA, [[]], 2, InvalidRequest, "not both"),
        (SCHEMA, None, 0, InvalidRequest, "1 to 10000 tablets"),
        (SCHEMA, None, TABLETS_MAX + 1, InvalidRequest, "1 to 10000 tablets"),
        (keyed_by("utf8"), None, 2, InvalidRequest, "Pass pivot_keys"),
        (keyed_by("double"), None, 2, InvalidRequest, "Pass pivot_keys"),
        (SCHEMA, [[], ["x"]], None, SchemaViolation, "takes an int"),
        (SCHEMA, [[], [1, 2]], None, SchemaViolation, "more values"),
    ],
)
def test_a_bad_cut_is_refused(
    schema: TableSchema, pivot_keys: Any, count: int | None, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        pivots_of(schema, pivot_keys, count)


@pytest.mark.parametrize("values", [[], [1], [1, "a"], [None], [None, None]])
def test_a_pivot_key_decodes_to_the_values_of_the_caller(values: list[Any]) -> None:
    types = ("int64", "utf8")
    assert decode_prefix(encode_key(values, types), types) == tuple(values)


def test_a_pivot_that_is_none_is_damage() -> None:
    with pytest.raises(DataCorrupted):
        decode_prefix(Key(b"\x77"), ("int64", "utf8"))


# ---- calls


def test_create_table_parses_columns_and_encodes_pivot_keys() -> None:
    clock = Clock()
    session = new_session(clock)
    first = {"name": "id", "type": "int64", "sort_order": "ascending"}
    columns: list[Any] = [first, *COLUMNS[1:]]
    create = Play(clock, session.catalog.create_table(PATH, columns, "none", [[], [100]]))
    request = CreateTable(PATH, COLUMNS, "none", (Key(b""), key(100)))
    assert create.call == (MASTER, request)
    create.answer(table(atomicity="none"))
    assert create.step is None
    assert session.routing.find(PATH) is not None


def test_a_bad_table_is_refused_without_asking() -> None:
    clock = Clock()
    session = new_session(clock)
    half: Any = "half"
    with pytest.raises(InvalidRequest, match="Atomicity"):
        play(clock, session.catalog.create_table(PATH, COLUMNS, half), nobody)
    with pytest.raises(SchemaViolation):
        play(clock, session.catalog.create_table(PATH, COLUMNS[:1]), nobody)


def test_creating_is_not_repeated_by_itself() -> None:
    clock = Clock()
    session = new_session(clock)
    exists = Failure("table_exists", "there is a table already")
    for reply, error in ((exists, TableExists), (LOST, Unavailable)):
        create = Play(clock, session.catalog.create_table(PATH, COLUMNS))
        with pytest.raises(error):
            create.answer(reply)


class Master:
    """Serves one table of two tablets, of which the second gets to the wished state after some
    questions. The first is there at once."""

    def __init__(self, patience: int, state: str = "unmounted") -> None:
        self.questions_left = patience
        self.states = [state, state]
        self.wish = state
        self.away_count = 0
        self.requests: list[Request] = []

    def __call__(self, target: Target, body: Request) -> Reply:
        assert target == MASTER
        self.requests.append(body)
        if self.away_count:
            self.away_count -= 1
            return NEVER_SENT
        match body:
            case MountTable(is_frozen=True) | FreezeTable():
                self._wish("frozen", "freezing")
            case MountTable() | UnfreezeTable():
                self._wish("mounted", "mounting")
            case UnmountTable():
                self._wish("unmounted", "unmounting")
            case GetTable():
                self.questions_left -= 1
                if self.questions_left <= 0:
                    self.states[1] = self.wish
        return self.table()

    def _wish(self, state: str, meanwhile: str) -> None:
        self.wish = state
        self.states = [state, meanwhile]

    def table(self) -> Table:
        first, second = self.states
        return table((tablet(10, 0, None, state=first), tablet(11, 1, 100, state=second)))


def test_mounting_waits_until_all_tablets_are_served() -> None:
    clock, master = Clock(), Master(5)
    session = new_session(clock)
    play(clock, session.catalog.mount_table(PATH), master)
    assert master.states == ["mounted", "mounted"]
    assert master.questions_left == 0
    route = session.routing.find(PATH)
    assert route is not None
    assert [it.state for it in route.tablets] == ["mounted", "mounted"]


def test_create_table_can_mount_the_new_table() -> None:
    clock, master = Clock(), Master(3)
    play(clock, new_session(clock).catalog.create_table(PATH, COLUMNS, mount=True), master)
    assert master.states == ["mounted", "mounted"]


LIFE: list[tuple[str, Any, str]] = [
    ("mount_table", MountTable, "mounted"),
    ("unmount_table", UnmountTable, "unmounted"),
    ("freeze_table", FreezeTable, "frozen"),
    ("unfreeze_table", UnfreezeTable, "mounted"),
]


@pytest.mark.parametrize(("name", "kind", "state"), LIFE)
def test_a_call_that_changes_the_tablet_state_waits_for_the_new_state(
    name: str, kind: Any, state: str
) -> None:
    clock, master = Clock(), Master(4, state="mounted" if state != "mounted" else "frozen")
    session = new_session(clock, table())
    play(clock, getattr(session.catalog, name)(PATH), master)
    assert master.requests[0] == kind(PATH)
    assert master.requests[1:] == [GetTable(PATH)] * 4
    assert master.states == [state, state]


def test_a_table_can_be_mounted_for_reads_only() -> None:
    clock, master = Clock(), Master(2)
    play(clock, new_session(clock).catalog.mount_table(PATH, freeze=True), master)
    assert master.requests[0] == MountTable(PATH, True)
    assert master.states == ["frozen", "frozen"]


@pytest.mark.parametrize(("name", "kind", "state"), LIFE)
def test_only_the_tablets_concerned_are_waited_for(name: str, kind: Any, state: str) -> None:
    clock = Clock()
    change = getattr(new_session(clock).catalog, name)
    for first, last in ((0, 0), (None, 0)):  # the second tablet never gets there
        master = Master(10_000, state="mounting")
        play(clock, change(PATH, first_tablet_index=first, last_tablet_index=last), master)
        assert master.requests[0] == _ranged(kind, first, last)
    with pytest.raises(Unavailable):
        play(clock, change(PATH, first_tablet_index=1, timeout_ms=100), Master(10_000))


def _ranged(kind: Any, first: int | None, last: int | None) -> Request:
    request: Request = kind(PATH, first_tablet=first, last_tablet=last)
    return request


@pytest.mark.parametrize(("name", "kind", "state"), LIFE)
def test_a_change_of_life_outlasts_an_absence_of_the_master(
    name: str, kind: Any, state: str
) -> None:
    clock, master = Clock(), Master(2)
    master.away_count = 10
    play(clock, getattr(new_session(clock).catalog, name)(PATH), master)
    assert master.states == [state, state]


def test_a_mount_that_times_out_names_the_cell_that_the_master_waits_for() -> None:
    clock = Clock()
    began_us = clock.now_us
    told = "1 tablets of //t are not mounted after 2000 ms: the master waits for cell 1 at node1"
    with pytest.raises(Unavailable, match=told) as caught:
        play(clock, new_session(clock).catalog.mount_table(PATH, timeout_ms=2_000), Master(10_000))
    attributes = caught.value.attributes
    assert (attributes["table"], attributes["tablets"]) == (PATH, {11: "mounting"})
    assert (attributes["cell"], attributes["address"]) == (1, "node1")
    assert 1_900_000 <= clock.now_us - began_us <= 2_100_000


def test_remounting_waits_for_nothing() -> None:
    clock = Clock()
    session = new_session(clock, table())
    remount = Play(clock, session.catalog.remount_table(PATH, 0, 1))
    assert remount.call == (MASTER, RemountTable(PATH, 0, 1))
    remount.answer(NEVER_SENT)
    remount.wait()
    remount.answer(table())
    assert remount.step is None
    assert session.routing.find(PATH) is None


def test_reshard_table_encodes_pivot_keys_by_the_current_schema() -> None:
    clock = Clock()
    session = new_session(clock, table(columns=keyed_by("utf8").columns))
    reshard = Play(clock, session.catalog.reshard_table(PATH, [[100], [150]], None, 1, 1))
    assert reshard.call == (MASTER, GetTable(PATH))
    reshard.answer(table())
    assert reshard.calls == ((MASTER, ReshardTable(PATH, (key(100), key(150)), 1, 1)),)
    reshard.answer(table())
    assert reshard.step is None
    assert session.routing.find(PATH) is None


def test_a_whole_table_can_be_cut_evenly() -> None:
    clock, master = Clock(), Master(1)
    play(clock, new_session(clock).catalog.reshard_table(PATH, tablet_count=2), master)
    assert master.requests[1] == ReshardTable(PATH, (Key(b""), key(0)))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"pivot_keys": [[]], "tablet_count": 2},
        {"tablet_count": 2, "first_tablet_index": 0},
        {"tablet_count": 2, "last_tablet_index": 0},
        {"tablet_count": 0},
        {"pivot_keys": [["x"]]},
    ],
)
def test_a_bad_reshard_changes_nothing(arguments: Any) -> None:
    clock, master = Clock(), Master(1)
    with pytest.raises(InvalidRequest):
        play(clock, new_session(clock).catalog.reshard_table(PATH, **arguments), master)
    assert all(isinstance(it, GetTable) for it in master.requests)


def test_alter_table_sends_the_new_columns_to_the_master() -> None:
    clock = Clock()
    session = new_session(clock, table())
    wider = (*COLUMNS, Column("more", "double"))
    alter = Play(clock, session.catalog.alter_table(PATH, wider))
    assert alter.call == (MASTER, AlterTable(PATH, wider))
    alter.answer(table(columns=wider))
    assert alter.step is None
    assert session.routing.find(PATH) is None
    with pytest.raises(SchemaViolation):
        play(clock, session.catalog.alter_table(PATH, COLUMNS[:1]), nobody)


@pytest.mark.parametrize("reply", [LOST, NEVER_SENT])
@pytest.mark.parametrize("change", ["reshard", "alter"])
def test_alter_and_reshard_are_not_retried_after_a_missing_reply(
    change: str, reply: Failure
) -> None:
    clock = Clock()
    session = new_session(clock, table())
    catalog = session.catalog
    if change == "alter":
        changing = Play(clock, catalog.alter_table(PATH, COLUMNS))
    else:
        changing = Play(clock, catalog.reshard_table(PATH, tablet_count=2))
        changing.answer(table())
    with pytest.raises(Unavailable):
        changing.answer(reply)
    assert session.routing.find(PATH) is None, "it may have happened"


@pytest.mark.parametrize("timeout", [0, -1, 1.5, "1s", None])
def test_a_time_out_is_a_number_of_milliseconds(timeout: Any) -> None:
    clock = Clock()
    with pytest.raises(InvalidRequest, match="timeout is a positive"):
        play(clock, new_session(clock).catalog.mount_table(PATH, timeout_ms=timeout), nobody)


@pytest.mark.parametrize(("first", "last"), [(-1, None), (None, -1), ("0", 1), (True, 1), (2, 1)])
def test_a_range_of_tablets_is_two_places_in_order(first: Any, last: Any) -> None:
    clock = Clock()
    catalog = new_session(clock).catalog
    for change in (catalog.mount_table, catalog.unmount_table, catalog.remount_table):
        with pytest.raises(InvalidRequest, match="tablet"):
            play(clock, change(PATH, first_tablet_index=first, last_tablet_index=last), nobody)


def test_arguments_of_other_types_are_refused_without_asking() -> None:
    clock = Clock()
    catalog = new_session(clock).catalog
    five: Any = 5
    for call in (
        catalog.mount_table(five),
        catalog.mount_table(PATH, five),
        catalog.alter_table(five, COLUMNS),
        catalog.list_tables(five),
        catalog.create_table(PATH, COLUMNS, mount=five),
    ):
        with pytest.raises(InvalidRequest, match="not int"):
            play(clock, call, nobody)


def test_a_table_is_described() -> None:
    clock = Clock()
    info = play(clock, new_session(clock).catalog.get_table(PATH), lambda target, body: table())
    assert (info.path, info.atomicity, info.schema) == (PATH, "full", SCHEMA)
    assert [(it.pivot_key, it.cell) for it in info.tablets] == [((), 0), ((100,), 1)]
    assert info.is_mounted
    assert info.settings == TableSettings()


@pytest.mark.parametrize("reply", [Done(), LOST, Failure("invalid_request", "no")])
@pytest.mark.parametrize("attribute", ["@isolation", "@"])
def test_a_client_that_sets_attributes_of_a_table_looks_the_table_up_again(
    attribute: str, reply: Reply
) -> None:
    clock = Clock()
    session = new_session(clock, table())
    below = session.routing.learn(replace(table(), path=f"{PATH}/below"))
    for path in ("//", PATH.rpartition("/")[0], f"{PATH}x"):
        play(clock, session.catalog.set(f"{path}/{attribute}", {}), lambda target, body: Done())
    assert session.routing.find(PATH) is not None
    with suppress(Unavailable, InvalidRequest):
        value = {"isolation": "snapshot"}
        play(clock, session.catalog.set(f"{PATH}/{attribute}", value), lambda target, body: reply)
    assert session.routing.find(PATH) is None
    assert session.routing.find(f"{PATH}/below") is below


def test_tables_are_listed_and_removed() -> None:
    clock = Clock()
    session = new_session(clock, table())
    listing = Play(clock, session.catalog.list_tables("//a"))
    assert listing.call == (MASTER, ListTables("//a"))
    listing.answer(TableList(("//a/1", "//a/2")))
    assert listing.result == ["//a/1", "//a/2"]
    removal = Play(clock, session.catalog.remove_table(PATH))
    removal.answer(table())  # a directory is none, and stays
    assert removal.call == (MASTER, RemoveNode(PATH))
    removal.answer(Done())
    assert session.routing.find(PATH) is None
    with pytest.raises(TableNotFound):
        play(clock, session.catalog.remove_table(PATH), lambda target, body: MISSING)


def test_connecting_waits_for_the_master_until_the_given_timeout() -> None:
    clock = Clock()
    session = new_session(clock)
    looking = Play(clock, session.catalog.get_cluster(500))
    looking.answer(NEVER_SENT)
    looking.wait()
    looking.answer(Cluster((), ()))
    assert looking.result == Cluster((), ())
    began_us = clock.now_us
    with pytest.raises(Unavailable):
        finish(Play(clock, session.catalog.get_cluster(500)), lambda target, body: LOST)
    assert clock.now_us - began_us <= 600_000


def test_an_answer_to_another_question_is_not_believed() -> None:
    clock = Clock()
    with pytest.raises(InvalidRequest):
        play(
            clock,
            new_session(clock).catalog.get_table(PATH),
            lambda target, body: Failure("invalid_request", "what?"),
        )
    with pytest.raises(Unavailable, match="Done"):
        finish(Play(clock, new_session(clock).catalog.get_table(PATH)), lambda target, body: Done())
