"""Tables as a whole: how they are cut into tablets, and the waits for them to be served."""

from typing import Any

import pytest

from dodona._core.catalog import TABLETS_MAX, pivots_of
from dodona._core.messages import (
    Cluster,
    CreateTable,
    Done,
    Failure,
    GetTable,
    ListTables,
    MountTable,
    Reply,
    Request,
    Table,
    TableList,
    UnmountTable,
)
from dodona._core.steps import MASTER, Target
from dodona._core.tables import decode_prefix
from dodona.errors import (
    DataCorrupted,
    InvalidRequest,
    SchemaViolation,
    TableExists,
    TableNotFound,
    Unavailable,
)
from dodona.keys import encode_key
from dodona.schema import TableSchema
from dodona.types import Key
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


def keyed_by(column_type: str) -> TableSchema:
    first = {"name": "k", "type": column_type, "sort_order": "ascending"}
    return TableSchema.parse([first, {"name": "v", "type": "int64"}])


# ---- how a table is cut


def test_a_table_has_one_tablet_unless_asked_otherwise() -> None:
    assert pivots_of(SCHEMA, None, None) == (b"",)


def test_pivot_keys_are_leading_key_values() -> None:
    assert pivots_of(SCHEMA, [[], [5], (7,)], None) == (b"", key(5), key(7))


@pytest.mark.parametrize("column_type", ["int64", "uint64", "string"])
@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_a_tablet_count_cuts_all_values_evenly(column_type: str, count: int) -> None:
    pivots = pivots_of(keyed_by(column_type), None, count)
    assert len(pivots) == count
    assert pivots[0] == b""
    assert list(pivots) == sorted(set(pivots))


def test_halves_of_integers_meet_in_the_middle() -> None:
    assert pivots_of(keyed_by("int64"), None, 2)[1] == encode_key([0], ["int64"])
    assert pivots_of(keyed_by("uint64"), None, 2)[1] == encode_key([1 << 63], ["uint64"])
    assert pivots_of(keyed_by("string"), None, 2)[1] == encode_key([b"\x80\x00"], ["string"])


@pytest.mark.parametrize(
    ("schema", "pivot_keys", "count", "error", "said"),
    [
        (SCHEMA, [[]], 2, InvalidRequest, "not both"),
        (SCHEMA, None, 0, InvalidRequest, "1 to 10000 tablets"),
        (SCHEMA, None, TABLETS_MAX + 1, InvalidRequest, "1 to 10000 tablets"),
        (keyed_by("utf8"), None, 2, InvalidRequest, "give pivot_keys"),
        (keyed_by("double"), None, 2, InvalidRequest, "give pivot_keys"),
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
def test_a_pivot_is_told_in_the_users_words(values: list[Any]) -> None:
    types = ("int64", "utf8")
    assert decode_prefix(encode_key(values, types), types) == tuple(values)


def test_a_pivot_that_is_none_is_damage() -> None:
    with pytest.raises(DataCorrupted):
        decode_prefix(Key(b"\x77"), ("int64", "utf8"))


# ---- calls


def test_a_table_is_created_in_the_users_words() -> None:
    clock = Clock()
    session = new_session(clock)
    first = {"name": "id", "type": "int64", "sort_order": "ascending"}
    columns: list[Any] = [first, *COLUMNS[1:]]
    create = Play(clock, session.create_table(PATH, columns, "none", [[], [100]]))
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
        play(clock, session.create_table(PATH, COLUMNS, half), nobody)
    with pytest.raises(SchemaViolation):
        play(clock, session.create_table(PATH, COLUMNS[:1]), nobody)


def test_creating_is_not_repeated_by_itself() -> None:
    clock = Clock()
    session = new_session(clock)
    exists = Failure("table_exists", "there is a table already")
    for reply, error in ((exists, TableExists), (LOST, Unavailable)):
        create = Play(clock, session.create_table(PATH, COLUMNS))
        with pytest.raises(error):
            create.answer(reply)


class Master:
    """Serves one table, whose tablets get to the wished state after some questions."""

    def __init__(self, patience: int) -> None:
        self.questions_left = patience
        self.state = "unmounted"
        self.wish = "unmounted"
        self.away_count = 0

    def __call__(self, target: Target, body: Request) -> Reply:
        assert target == MASTER
        if self.away_count:
            self.away_count -= 1
            return NEVER_SENT
        match body:
            case MountTable() | UnmountTable():
                self.wish = "mounted" if isinstance(body, MountTable) else "unmounted"
                self.state = self.wish.replace("ed", "ing")
            case CreateTable():
                self.state = self.wish = "unmounted"
            case GetTable():
                self.questions_left -= 1
                if self.questions_left <= 0:
                    self.state = self.wish
        return self.table()

    def table(self) -> Table:
        return table((tablet(10, 0, None), tablet(11, 1, 100, state=self.state)))


def test_mounting_waits_until_all_tablets_are_served() -> None:
    clock, master = Clock(), Master(5)
    session = new_session(clock)
    play(clock, session.mount_table(PATH), master)
    assert master.state == "mounted"
    route = session.routing.find(PATH)
    assert route is not None
    assert [it.state for it in route.tablets] == ["mounted", "mounted"]


def test_a_new_table_can_be_mounted_at_once() -> None:
    clock, master = Clock(), Master(3)
    play(clock, new_session(clock).create_table(PATH, COLUMNS, mount=True), master)
    assert master.state == "mounted"


def test_mounting_outlasts_an_absence_of_the_master() -> None:
    clock, master = Clock(), Master(2)
    master.away_count = 10
    play(clock, new_session(clock).mount_table(PATH), master)
    assert master.state == "mounted"


def test_mounting_gives_up_when_told_to() -> None:
    clock = Clock()
    began_us = clock.now_us
    with pytest.raises(Unavailable, match="not mounted after 2000 ms") as caught:
        play(clock, new_session(clock).mount_table(PATH, 2_000), Master(10_000))
    assert caught.value.attributes == {"tablets": [11]}
    assert 1_900_000 <= clock.now_us - began_us <= 2_100_000


def test_unmounting_waits_for_all_tablets() -> None:
    clock = Clock()
    session = new_session(clock)
    unmount = Play(clock, session.unmount_table(PATH))
    assert unmount.call == (MASTER, UnmountTable(PATH))
    closing = table((tablet(10, 0, None, state="unmounting"),))
    unmount.answer(closing)
    unmount.answer(closing)
    unmount.wait()
    unmount.answer(table((tablet(10, 0, None, state="unmounted"),)))
    assert unmount.step is None


@pytest.mark.parametrize("timeout", [0, -1, 1.5, "1s", None])
def test_a_time_out_is_a_number_of_milliseconds(timeout: Any) -> None:
    clock = Clock()
    with pytest.raises(InvalidRequest, match="time-out"):
        play(clock, new_session(clock).mount_table(PATH, timeout), nobody)


def test_a_table_is_described() -> None:
    clock = Clock()
    info = play(clock, new_session(clock).get_table(PATH), lambda target, body: table())
    assert (info.path, info.atomicity, info.schema) == (PATH, "full", SCHEMA)
    assert [(it.pivot_key, it.cell) for it in info.tablets] == [((), 0), ((100,), 1)]
    assert info.is_mounted


def test_existence_is_asked_for() -> None:
    clock = Clock()
    session = new_session(clock)
    assert play(clock, session.exists(PATH), lambda target, body: table())
    assert not play(clock, session.exists(PATH), lambda target, body: MISSING)


def test_tables_are_listed_and_removed() -> None:
    clock = Clock()
    session = new_session(clock, table())
    listing = Play(clock, session.list_tables("//a"))
    assert listing.call == (MASTER, ListTables("//a"))
    listing.answer(TableList(("//a/1", "//a/2")))
    assert listing.result == ["//a/1", "//a/2"]
    play(clock, session.remove_table(PATH), lambda target, body: Done())
    assert session.routing.find(PATH) is None
    with pytest.raises(TableNotFound):
        play(clock, session.remove_table(PATH), lambda target, body: MISSING)


def test_connecting_waits_for_the_master_as_long_as_told() -> None:
    clock = Clock()
    session = new_session(clock)
    looking = Play(clock, session.get_cluster(500))
    looking.answer(NEVER_SENT)
    looking.wait()
    looking.answer(Cluster((), ()))
    assert looking.result == Cluster((), ())
    began_us = clock.now_us
    with pytest.raises(Unavailable):
        finish(Play(clock, session.get_cluster(500)), lambda target, body: LOST)
    assert clock.now_us - began_us <= 600_000


def test_an_answer_to_another_question_is_not_believed() -> None:
    clock = Clock()
    with pytest.raises(InvalidRequest):
        play(
            clock,
            new_session(clock).get_table(PATH),
            lambda target, body: Failure("invalid_request", "what?"),
        )
    with pytest.raises(Unavailable, match="Done"):
        finish(Play(clock, new_session(clock).get_table(PATH)), lambda target, body: Done())
