"""The REST table: every catalog message there and back, and every wrong body."""

import json
from typing import Any

import msgspec
import pytest

from dodona.errors import ERRORS_BY_KIND, InvalidRequest, SchemaViolation
from dodona.schema import Column
from dodona.types import CellId, Key, Revision, TabletId, Timestamp, TreeTransactionId
from dodona_wire.messages.base import Failure, Message
from dodona_wire.messages.catalog import (
    AlterTable,
    Assignment,
    Cell,
    Cluster,
    CreateTable,
    Done,
    FreezeTable,
    GetCluster,
    GetTable,
    Heartbeat,
    ListTables,
    MountedTablet,
    MountTable,
    RegisterProxy,
    RemountTable,
    ReshardTable,
    Table,
    TableList,
    Tablet,
    TabletAssignment,
    UnfreezeTable,
    UnmountTable,
)
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.rest import (
    OPERATIONS,
    OPERATIONS_BY_REQUEST,
    RestRequest,
    decode_reply,
    decode_request,
    encode_call,
    encode_json,
    encode_problem,
    json_schemas,
    problem_of,
)
from dodona_wire.messages.tree import (
    AbortTreeTransaction,
    BeginTreeTransaction,
    CommitTreeTransaction,
    CopyNode,
    CreateDirectory,
    GetNode,
    ListNodes,
    LockNode,
    MoveNode,
    NodeExists,
    NodeLock,
    NodeNames,
    NodeValue,
    PingTreeTransaction,
    RemoveNode,
    SetNode,
    TreeTransaction,
)

COLUMNS = (
    Column("k", "int64", sort_order="ascending"),
    Column("v", "any", lock="group", aggregate="first", required=True),
)
KEY = Key(bytes(range(256)))
TRANSACTION = TreeTransactionId(7)
ATTRIBUTES = msgspec.msgpack.encode({"owner": "ä", "parts": [1, 2.0, None, {"a": True}]})
REQUESTS: list[RestRequest] = [
    CreateTable("//a", COLUMNS, "none", (Key(b""), KEY)),
    CreateTable("//a", COLUMNS, "full", (Key(b""),), ATTRIBUTES, TRANSACTION),
    GetTable("//a/ä &?=+%"),
    GetTable("//a", TRANSACTION),
    ListTables("//a"),
    MountTable("//a"),
    MountTable("//a", True, 0, 3),
    UnmountTable("//a", 1),
    FreezeTable("//a", None, 0),
    UnfreezeTable("//a"),
    RemountTable("//a"),
    ReshardTable("//a", (Key(b""), KEY), 1, 2),
    AlterTable("//a", COLUMNS),
    CreateDirectory("//a"),
    CreateDirectory("//a/b", ATTRIBUTES, True, True, TRANSACTION),
    RemoveNode("//a"),
    RemoveNode("//a/@x", True, True, TRANSACTION),
    MoveNode("//a", "//b", True, TRANSACTION),
    CopyNode("//a", "//b"),
    ListNodes("//a/@", TRANSACTION),
    NodeExists("//a"),
    GetNode("//a/@x"),
    SetNode("//a/@x", msgspec.msgpack.encode([1, 1.0, (1 << 64) - 1, -(1 << 63), "ä", None])),
    BeginTreeTransaction(5000, TRANSACTION, "ä"),
    PingTreeTransaction(TRANSACTION),
    CommitTreeTransaction(TRANSACTION),
    AbortTreeTransaction(TRANSACTION),
    LockNode("//a", "shared", TRANSACTION, child="b"),
    LockNode("//a", "shared", TRANSACTION, attribute="x"),
    Heartbeat(CellId(3), "http://x", (MountedTablet(TabletId(1), Revision(2)),), 9),
    RegisterProxy("http://x"),
    GetCluster(),
    GenerateTimestamps(1_000_000),
]
TABLE = Table(
    "//a",
    COLUMNS,
    "full",
    (
        Tablet(TabletId(1), Key(b""), "mounted", CellId(0), Revision(4)),
        Tablet(TabletId(2), KEY, "unmounted", None, Revision(0)),
    ),
    {CellId(0): "http://x"},
)
ASSIGNMENT = Assignment(
    (TabletAssignment(TabletId(1), Revision(2), "//a", COLUMNS, "full", Key(b""), KEY),),
    {CellId(0): "http://x", CellId(1): "http://y"},
    9,
)
REPLIES: list[tuple[type[Message], Any]] = [
    (GetTable, TABLE),
    (ListTables, TableList(("//a", "//b"))),
    (RemoveNode, Done()),
    (ListNodes, NodeNames(("a", "b"))),
    (GetNode, NodeValue(ATTRIBUTES)),
    (NodeExists, NodeValue(b"\xc3")),
    (BeginTreeTransaction, TreeTransaction(TRANSACTION, 5000)),
    (LockNode, NodeLock(3)),
    (Heartbeat, ASSIGNMENT),
    (GetCluster, Cluster(("http://p",), (Cell(CellId(1), "http://x", True, 3),))),
    (GenerateTimestamps, TimestampRange(Timestamp(0x3FFF_FFFF_FFFF_FF00), 1)),
]


def test_every_operation_is_tried_here() -> None:
    assert {type(request) for request in REQUESTS} == set(OPERATIONS_BY_REQUEST)
    assert {reply for _, reply in REPLIES if isinstance(reply, Done)}
    assert {type(reply) for _, reply in REPLIES} == {operation.reply for operation in OPERATIONS}


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_requests_travel_unchanged(request_: RestRequest) -> None:
    from starlette.datastructures import QueryParams

    operation = OPERATIONS_BY_REQUEST[type(request_)]
    call = encode_call(request_)
    path, _, query = call.target.partition("?")
    assert (call.method, path) == (operation.method, operation.path)
    assert (
        decode_request(operation, QueryParams(query).multi_items(), call.content or b"") == request_
    )


@pytest.mark.parametrize(("kind", "reply"), REPLIES, ids=lambda it: type(it).__name__)
def test_replies_travel_unchanged(kind: type[Message], reply: Any) -> None:
    assert decode_reply(kind, 200, encode_json(reply)) == reply


def test_json_has_names_for_people() -> None:
    document = json.loads(encode_json(TABLE))
    assert document["path"] == "//a"
    assert document["columns"][0] == {"name": "k", "type": "int64", "sort_order": "ascending"}
    assert document["tablets"][0]["state"] == "mounted"
    assert document["addresses"] == {"0": "http://x"}


@pytest.mark.parametrize("kind", sorted(ERRORS_BY_KIND))
def test_failures_travel_unchanged_and_with_their_status(kind: str) -> None:
    failure = Failure(kind, "what happened", {"path": "//a", "count": 3})
    problem = problem_of(failure)
    assert problem.status == ERRORS_BY_KIND[kind].status
    assert problem.code == ERRORS_BY_KIND[kind].code
    assert decode_reply(GetTable, problem.status, encode_problem(problem)) == failure


def test_a_failure_of_unknown_kind_is_internal() -> None:
    assert problem_of(Failure("from the future", "text")).status == 500


@pytest.mark.parametrize(
    ("status", "kind"),
    [(502, "unavailable"), (503, "unavailable"), (429, "unavailable"), (404, "invalid_request")],
)
@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_not_ours_is_a_failure(status: int, kind: str, content: bytes) -> None:
    reply = decode_reply(GetTable, status, content)
    assert isinstance(reply, Failure)
    assert reply.kind == kind
    assert str(status) in reply.message


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b"null", b"\xff"])
def test_a_success_that_is_not_ours_is_a_failure(content: bytes) -> None:
    reply = decode_reply(GetTable, 200, content)
    assert isinstance(reply, Failure)
    assert reply.kind == "unavailable"


def test_omitted_fields_of_a_request_have_defaults() -> None:
    content = b'{"path":"//a","columns":[]}'
    operation = OPERATIONS_BY_REQUEST[CreateTable]
    assert decode_request(operation, (), content) == CreateTable("//a", (), "full", (Key(b""),))
    assert decode_request(OPERATIONS_BY_REQUEST[ListTables], (), b"") == ListTables("//")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "object"),
        (b"{}", "path"),
        (b'{"path":1,"columns":[]}', "path"),
        (b'{"path":"//a","columns":[],"atomicty":"none"}', "atomicty"),
        (b'{"path":"//a","columns":[],"atomicity":"half"}', "half"),
        (b'{"path":"//a","columns":[],"pivot_keys":["not base64!"]}', "base64"),
        (b'{"path":"//a","columns":[{"name":"k","type":65}]}', "type"),
        (b'{"path":"//a\xff","columns":[]}', "body"),
        (b'{"path":"//a","columns":' + b"[" * 100_000, "body"),
    ],
)
def test_an_invalid_body_is_refused_with_the_place_of_the_error(
    content: bytes, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        decode_request(OPERATIONS_BY_REQUEST[CreateTable], (), content)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b'{"path":"//a","path":"//b","columns":[]}', "path"),
        (b'{"path":"//a","columns":[{"name":"k","type":"int64","name":"l"}]}', "name"),
        (b'{"path":"//a","columns":[],"attributes":{"owner":{"x":1,"x":2}}}', "x"),
    ],
)
def test_a_body_with_the_same_name_twice_in_one_object_is_refused(
    content: bytes, name: str
) -> None:
    """Of two, the reader keeps the last without a word."""
    with pytest.raises(SchemaViolation, match=f"'{name}' is named twice in one object"):
        decode_request(OPERATIONS_BY_REQUEST[CreateTable], (), content)


def test_attributes_are_json_values() -> None:
    call = encode_call(SetNode("//a/@x", ATTRIBUTES))
    assert call.content is not None
    assert json.loads(call.content)["value"] == {"owner": "ä", "parts": [1, 2.0, None, {"a": True}]}
    assert json.loads(encode_json(NodeValue(ATTRIBUTES)))["value"]["owner"] == "ä"


@pytest.mark.parametrize("value", [b"1" + b"0" * 30, b"{", b"[" * 5000])
def test_an_attribute_that_can_not_be_kept_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidRequest, match="body"):
        decode_request(
            OPERATIONS_BY_REQUEST[SetNode], (), b'{"path":"//a/@x","value":' + value + b"}"
        )


@pytest.mark.parametrize(
    ("request_", "query", "reason"),
    [
        (MountTable, {"path": "//a", "is_frozen": "perhaps"}, "is_frozen"),
        (MountTable, {"path": "//a", "first_tablet": "1.5"}, "first_tablet"),
        (MountTable, {"path": "//a", "mode": "frozen"}, "mode"),
        (PingTreeTransaction, {"transaction": "x"}, "transaction"),
    ],
)
def test_an_invalid_query_is_refused_with_the_name_of_the_parameter(
    request_: type[Message], query: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        decode_request(OPERATIONS_BY_REQUEST[request_], list(query.items()), b"")


def test_a_missing_query_parameter_is_named() -> None:
    with pytest.raises(InvalidRequest, match="'path'"):
        decode_request(OPERATIONS_BY_REQUEST[GetTable], [("pfad", "//a")], b"")


def test_a_query_parameter_is_given_once_and_has_a_value() -> None:
    once, index = ("path", "//a"), ("first_tablet", "null")
    with pytest.raises(InvalidRequest, match="'path' is given 2 times"):
        decode_request(OPERATIONS_BY_REQUEST[GetTable], [once, once], b"")
    with pytest.raises(InvalidRequest, match="'first_tablet' is null: leave it out"):
        decode_request(OPERATIONS_BY_REQUEST[MountTable], [once, index], b"")


def test_the_schemas_refer_only_to_components_that_are_there() -> None:
    schemas, components = json_schemas("#/components/schemas/{name}")
    text = json.dumps([*schemas.values(), components])
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.split('"')[0] in components
    assert "CreateTable" in components
    assert components["CreateTable"]["required"] == ["path", "columns"]
