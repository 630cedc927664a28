"""The calls of the tree, message by message: outside master transactions, and in one."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dodona._core.catalog.tree import MasterTransactionSession, TreeSession
from dodona._core.protocol.arguments import DEPTH_MAX
from dodona._core.protocol.steps import MASTER, Protocol
from dodona.errors import (
    InvalidRequest,
    NodeLocked,
    NodeNotFound,
    TableNotFound,
    Unavailable,
)
from dodona.types import Key, TreeTransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import CreateTable, Done, GetTable
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.tree import (
    CopyNode,
    CreateDirectory,
    GetNode,
    ListNodes,
    MoveNode,
    NodeExists,
    NodeNames,
    NodeValue,
    RemoveNode,
    SetNode,
)
from unit.client.protocols import (
    COLUMNS,
    LOST,
    NEVER_SENT,
    PATH,
    Clock,
    Play,
    begin_master,
    new_session,
    nobody,
    play,
    table,
)

GONE = Failure("transaction_not_found", "no such transaction")
LOCKED = Failure("node_locked", "somebody holds it")
MISSING = Failure("node_not_found", "nothing is there")
SEVEN = TreeTransactionId(7)
NONE = TreeTransactionId(0)


def pack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.fixture(params=[False, True], ids=["outside", "inside"])
def tree(request: pytest.FixtureRequest) -> TreeSession:
    """The same calls, under no master transaction and under one."""
    clock = Clock()
    catalog = new_session(clock).catalog
    return begin_master(clock, catalog) if request.param else catalog


def id_of(tree: TreeSession) -> TreeTransactionId:
    return SEVEN if isinstance(tree, MasterTransactionSession) else NONE


Call = Callable[[TreeSession], Protocol[Any]]
Wish = Callable[[TreeTransactionId], Request]
CALLS: list[tuple[Call, Wish, Reply, Any]] = [
    (
        lambda tree: tree.create_directory("//a", {"x": [1]}, True, True),
        lambda tx: CreateDirectory("//a", pack({"x": [1]}), True, True, tx),
        Done(),
        None,
    ),
    (
        lambda tree: tree.create_directory("//a"),
        lambda tx: CreateDirectory("//a", transaction=tx),
        Done(),
        None,
    ),
    (
        lambda tree: tree.create_table(PATH, COLUMNS, "none", attributes={"max_data_ttl": 5}),
        lambda tx: CreateTable(PATH, COLUMNS, "none", (Key(b""),), pack({"max_data_ttl": 5}), tx),
        table(),
        None,
    ),
    (
        lambda tree: tree.remove("//a", True, True),
        lambda tx: RemoveNode("//a", True, True, tx),
        Done(),
        None,
    ),
    (
        lambda tree: tree.remove("//t/@x"),
        lambda tx: RemoveNode("//t/@x", transaction=tx),
        Done(),
        None,
    ),
    (
        lambda tree: tree.move("//a", "//b/c", True),
        lambda tx: MoveNode("//a", "//b/c", True, tx),
        Done(),
        None,
    ),
    (
        lambda tree: tree.copy("//a", "//b"),
        lambda tx: CopyNode("//a", "//b", False, tx),
        Done(),
        None,
    ),
    (
        lambda tree: tree.list("//a"),
        lambda tx: ListNodes("//a", tx),
        NodeNames(("x", "y")),
        ["x", "y"],
    ),
    (
        lambda tree: tree.exists("//a/@x"),
        lambda tx: NodeExists("//a/@x", tx),
        NodeValue(pack(False)),
        False,
    ),
    (
        lambda tree: tree.get("//a"),
        lambda tx: GetNode("//a", tx),
        NodeValue(pack({"t": None, "d": {}})),
        {"t": None, "d": {}},
    ),
    (
        lambda tree: tree.set("//t/@x", {"a": [None, True, -1, 2**64 - 1, 0.5, "ü", (1,)]}),
        lambda tx: SetNode("//t/@x", pack({"a": [None, True, -1, 2**64 - 1, 0.5, "ü", [1]]}), tx),
        Done(),
        None,
    ),
]
READS = [it for it in CALLS if not isinstance(it[2], Done) and it[2] != table()]
CHANGES = [it for it in CALLS if it not in READS]


@pytest.mark.parametrize(("call", "wish", "reply", "result"), CALLS)
def test_a_tree_call_sends_one_message_with_its_transaction_id(
    tree: TreeSession, call: Call, wish: Wish, reply: Reply, result: Any
) -> None:
    asking = Play(Clock(), call(tree))
    assert asking.call == (MASTER, wish(id_of(tree)))
    asking.answer(reply)
    assert asking.result == result


@pytest.mark.parametrize(("call", "wish", "reply", "result"), READS)
def test_reads_outlast_an_absence_of_the_master(
    tree: TreeSession, call: Call, wish: Wish, reply: Reply, result: Any
) -> None:
    away = [LOST, NEVER_SENT, LOST]
    assert play(Clock(), call(tree), lambda target, body: away.pop() if away else reply) == result


@pytest.mark.parametrize(("call", "wish", "reply", "result"), CHANGES)
def test_changes_are_asked_for_once(
    tree: TreeSession, call: Call, wish: Wish, reply: Reply, result: Any
) -> None:
    with pytest.raises(Unavailable):
        Play(Clock(), call(tree)).answer(LOST)


def test_a_directory_that_may_be_there_is_asked_for_again(tree: TreeSession) -> None:
    making = Play(Clock(), tree.create_directory("//a", ignore_existing=True))
    making.answer(LOST)
    making.wait()
    making.answer(Done())
    assert making.step is None


@pytest.mark.parametrize(("call", "wish", "reply", "result"), CALLS)
def test_a_refusal_is_the_callers(
    tree: TreeSession, call: Call, wish: Wish, reply: Reply, result: Any
) -> None:
    for failure, error in ((MISSING, NodeNotFound), (LOCKED, NodeLocked)):
        with pytest.raises(error):
            Play(Clock(), call(tree)).answer(failure)


def test_only_a_table_is_removed_as_one(tree: TreeSession) -> None:
    removal = Play(Clock(), tree.remove_table(PATH))
    assert removal.call == (MASTER, GetTable(PATH, id_of(tree)))
    removal.answer(table())
    assert removal.calls == ((MASTER, RemoveNode(PATH, transaction=id_of(tree))),)
    removal.answer(Done())
    with pytest.raises(TableNotFound):
        Play(Clock(), tree.remove_table(PATH)).answer(Failure("table_not_found", "a directory"))


# ---- what is known of tables


def test_moving_a_directory_forgets_the_routes_of_tables_below() -> None:
    clock = Clock()
    session = new_session(clock, *[table(path=it) for it in ("//a/t", "//a", "//ab/t")])
    play(clock, session.catalog.move("//a", "//b"), lambda target, body: Done())
    assert [session.routing.find(it) is None for it in ("//a/t", "//a", "//ab/t")] == [
        True,
        True,
        False,
    ]


def test_tables_read_in_a_master_transaction_do_not_enter_the_route_cache() -> None:
    clock = Clock()
    session = new_session(clock)
    tx = begin_master(clock, session.catalog)
    play(clock, tx.create_table(PATH, COLUMNS), lambda target, body: table())
    play(clock, tx.get_table(PATH), lambda target, body: table())
    assert session.routing.find(PATH) is None
    play(clock, session.catalog.get_table(PATH), lambda target, body: table())
    assert session.routing.find(PATH) is not None
    play(clock, tx.commit(), lambda target, body: Done())
    assert session.routing.find(PATH) is None


def test_in_a_master_transaction_nothing_is_mounted() -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    with pytest.raises(InvalidRequest, match="after the commit"):
        play(clock, tx.create_table(PATH, COLUMNS, mount=True), nobody)


# ---- values


class Strange:
    """No value that JSON has."""


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (b"bytes", "value"),
        (Strange(), "value"),
        ([1, {"a": Strange()}], "value[1]['a']"),
        ({"a": {"b": [0, float("nan")]}}, "value['a']['b'][1]"),
        (float("inf"), "value"),
        ({"a": 2**64}, "value['a']"),
        ({"a": -(2**63) - 1}, "value['a']"),
        ({"a": {1: 2}}, "value['a']"),
        ({"\ud800": 2}, "value"),
        (["\ud800"], "value[0]"),
        ({1, 2}, "value"),
        (deep(DEPTH_MAX + 1), "value" + "[0]" * (DEPTH_MAX + 1)),
    ],
)
def test_an_invalid_value_is_refused_with_its_place_before_sending(
    tree: TreeSession, value: Any, place: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        play(Clock(), tree.set("//t/@x", value), nobody)
    assert caught.value.attributes["place"] == place
    assert place in caught.value.message


def test_the_deepest_value_passes(tree: TreeSession) -> None:
    play(Clock(), tree.set("//t/@x", deep(DEPTH_MAX)), lambda target, body: Done())


@pytest.mark.parametrize("value", [msgspec.msgpack.Ext(5, b""), {(): 1}])
def test_the_error_for_an_unsupported_value_names_its_type(tree: TreeSession, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"one (Ext|tuple) \("):
        play(Clock(), tree.set("//t/@x", [value]), nobody)


@pytest.mark.parametrize("attributes", [[1], "x", {"a": b"x"}, {1: 2}])
def test_bad_attributes_are_refused_before_they_are_sent(
    tree: TreeSession, attributes: Any
) -> None:
    for call in (
        tree.create_directory("//a", attributes),
        tree.create_table(PATH, COLUMNS, attributes=attributes),
    ):
        with pytest.raises(InvalidRequest, match="attributes"):
            play(Clock(), call, nobody)


def test_arguments_of_other_types_are_refused_before_they_are_sent(tree: TreeSession) -> None:
    five: Any = 5
    for call in (
        tree.get(five),
        tree.set(five, 1),
        tree.list(five),
        tree.exists(five),
        tree.get_table(five),
        tree.remove(five),
        tree.remove("//a", five),
        tree.remove("//a", force=five),
        tree.move("//a", five),
        tree.move(five, "//a"),
        tree.copy("//a", "//b", five),
        tree.create_directory("//a", recursive=five),
        tree.create_directory("//a", ignore_existing=five),
        tree.create_table(five, COLUMNS),
        tree.begin(title=five),
        tree.begin(-five),
        tree.get("//\ud800"),
    ):
        with pytest.raises(InvalidRequest):
            play(Clock(), call, nobody)
