"""The catalog over REST: one table of operations for the client and the master. Pure.

Owns: message ↔ method, path and query, and Failure ↔ `application/problem+json`. On the data plane
a message is an array. Here it is an object with named fields (see `json_messages`), for people and
for other languages. Other modules send the bytes. Must not import: a network library.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from dodona_wire.errors import ERRORS_BY_KIND, DodonaError, InvalidRequest, Unavailable
from dodona_wire.messages.base import Failure, Message
from dodona_wire.messages.catalog import (
    AlterTable,
    Assignment,
    CatalogReply,
    CatalogRequest,
    Cluster,
    CreateTable,
    Done,
    FreezeTable,
    GetCluster,
    GetTable,
    Heartbeat,
    ListTables,
    MountTable,
    RegisterProxy,
    RemountTable,
    ReshardTable,
    Table,
    TableList,
    UnfreezeTable,
    UnmountTable,
)
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.json_messages import from_json_struct, json_struct_of, to_json_struct
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
from dodona_wire.preload import preload_decoder
from dodona_wire.rows.json_text import decode_json, without_mark
from dodona_wire.shown import shown

BODY_BYTES_MAX: Final = 8 << 20
JSON_TYPE: Final = "application/json"
PROBLEM_TYPE: Final = "application/problem+json"

RestRequest = CatalogRequest | GenerateTimestamps
RestReply = CatalogReply | TimestampRange
Query = Sequence[tuple[str, str]]
"""Names and values in the order of the address: a name may come again."""
Wanted = TypeVar("Wanted", bound=msgspec.Struct)


class Operation(NamedTuple):
    """How one request travels: as query parameters if `is_query`, else as a JSON body, if it has
    fields at all. A field with a default may be left out."""

    name: str
    method: str
    path: str
    request: type[Message]
    reply: type[Message]
    summary: str
    status: int = 200
    is_query: bool = False

    @property
    def has_body(self) -> bool:
        """Whether the request has a JSON body."""
        return not self.is_query and bool(self.request.__struct_fields__)


def _query(
    name: str, method: str, path: str, request: type[Message], reply: type[Message], summary: str
) -> Operation:
    return Operation(name, method, path, request, reply, summary, is_query=True)


def _body(
    name: str, path: str, request: type[Message], reply: type[Message], summary: str, status: int
) -> Operation:
    return Operation(name, "POST", path, request, reply, summary, status)


_TABLES: Final = (
    _body("create_table", "/v1/tables", CreateTable, Table, "Create a table.", 201),
    _query(
        "list_tables",
        "GET",
        "/v1/tables",
        ListTables,
        TableList,
        "List the paths of all tables that begin with the prefix, sorted.",
    ),
    _query(
        "get_table",
        "GET",
        "/v1/table",
        GetTable,
        Table,
        "Get a table, its tablets, and the cells that serve them.",
    ),
    _query(
        "mount_table",
        "POST",
        "/v1/table/mount",
        MountTable,
        Table,
        "Mount tablets. Takes effect shortly afterwards.",
    ),
    _query(
        "unmount_table",
        "POST",
        "/v1/table/unmount",
        UnmountTable,
        Table,
        "Unmount tablets. Takes effect shortly afterwards.",
    ),
    _query(
        "freeze_table",
        "POST",
        "/v1/table/freeze",
        FreezeTable,
        Table,
        "Freeze tablets: cells serve them for reads only. Takes effect shortly afterwards.",
    ),
    _query(
        "unfreeze_table",
        "POST",
        "/v1/table/unfreeze",
        UnfreezeTable,
        Table,
        "Unfreeze tablets, so that they take writes again. Takes effect shortly afterwards.",
    ),
    _query(
        "remount_table",
        "POST",
        "/v1/table/remount",
        RemountTable,
        Table,
        "Apply the current settings to mounted tablets.",
    ),
    _body(
        "reshard_table",
        "/v1/table/reshard",
        ReshardTable,
        Table,
        "Divide unmounted tablets at other keys.",
        200,
    ),
    _body(
        "alter_table",
        "/v1/table/alter",
        AlterTable,
        Table,
        "Change the schema of an unmounted table.",
        200,
    ),
)
_NODES: Final = (
    _body("create_directory", "/v1/directories", CreateDirectory, Done, "Create a directory.", 201),
    _query(
        "get_node",
        "GET",
        "/v1/node",
        GetNode,
        NodeValue,
        "Get an attribute, all attributes, or a directory's content as nested maps.",
    ),
    _body("set_node", "/v1/node", SetNode, Done, "Set one attribute, or all.", 200),
    _query(
        "remove_node",
        "DELETE",
        "/v1/node",
        RemoveNode,
        Done,
        "Remove a table with all its rows, a directory, or an attribute.",
    ),
    _query(
        "list_nodes",
        "GET",
        "/v1/node/list",
        ListNodes,
        NodeNames,
        "List the names in a directory.",
    ),
    _query(
        "node_exists",
        "GET",
        "/v1/node/exists",
        NodeExists,
        NodeValue,
        "Check whether a node or attribute exists.",
    ),
    _body("move_node", "/v1/node/move", MoveNode, Done, "Move a node to another path.", 200),
    _body("copy_node", "/v1/node/copy", CopyNode, Done, "Copy a node with its content.", 200),
    _body(
        "lock_node",
        "/v1/node/lock",
        LockNode,
        NodeLock,
        "Lock a node until a transaction ends.",
        200,
    ),
)
_TRANSACTIONS: Final = (
    _body(
        "begin_transaction",
        "/v1/master-transactions",
        BeginTreeTransaction,
        TreeTransaction,
        "Begin a master transaction. The master aborts it if no ping arrives in time.",
        201,
    ),
    _query(
        "ping_transaction",
        "POST",
        "/v1/master-transaction/ping",
        PingTreeTransaction,
        Done,
        "Renew the lease of a master transaction, and of the transactions around it.",
    ),
    _query(
        "commit_transaction",
        "POST",
        "/v1/master-transaction/commit",
        CommitTreeTransaction,
        Done,
        "Commit a master transaction: its changes go to its parent, or become visible to all.",
    ),
    _query(
        "abort_transaction",
        "POST",
        "/v1/master-transaction/abort",
        AbortTreeTransaction,
        Done,
        "Abort a master transaction and drop its changes.",
    ),
)
_PROCESSES: Final = (
    _query(
        "get_cluster",
        "GET",
        "/v1/cluster",
        GetCluster,
        Cluster,
        "Get the cells and the proxies.",
    ),
    _body(
        "heartbeat",
        "/v1/cells/heartbeat",
        Heartbeat,
        Assignment,
        "A cell reports its address and its tablets. The answer names the tablets to serve.",
        200,
    ),
    _body(
        "register_proxy",
        "/v1/proxies",
        RegisterProxy,
        Done,
        "A proxy reports its address, as a heartbeat.",
        200,
    ),
    _body(
        "generate_timestamps",
        "/v1/timestamps",
        GenerateTimestamps,
        TimestampRange,
        "Get fresh timestamps, `first` to `first + count - 1`. For many, use the data plane.",
        200,
    ),
)
OPERATIONS: Final[tuple[Operation, ...]] = (*_TABLES, *_NODES, *_TRANSACTIONS, *_PROCESSES)

OPERATIONS_BY_REQUEST: Final[dict[type[Any], Operation]] = {
    operation.request: operation for operation in OPERATIONS
}
for _operation in OPERATIONS:
    preload_decoder(json_struct_of(_operation.request))
    preload_decoder(json_struct_of(_operation.reply))


@preload_decoder
class Problem(msgspec.Struct, frozen=True):
    """An error as REST sends it (RFC 9457), with the fields for programs: kind, code, retryable."""

    status: int
    detail: str
    kind: str
    code: int
    retryable: bool
    attributes: dict[str, Any] = {}
    type: str = "about:blank"
    title: str = ""


class HttpCall(NamedTuple):
    """A request ready to be sent: `target` is path and query, `content` the JSON body, if any."""

    method: str
    target: str
    content: bytes | None


# The client's side


def encode_call(request: RestRequest) -> HttpCall:
    """Return the HTTP call of this request. Raises InvalidRequest on text that is not Unicode."""
    operation = OPERATIONS_BY_REQUEST[type(request)]
    try:
        if operation.has_body:
            return HttpCall(operation.method, operation.path, encode_json(request))
        query = urlencode(_query_of(request))
    except UnicodeEncodeError as error:
        text = f"{operation.name} can't be sent: {error}"
        raise InvalidRequest(text) from error
    return HttpCall(operation.method, operation.path + ("?" + query if query else ""), None)


def _query_of(request: RestRequest) -> dict[str, str]:
    """Return the parameters of a request, without those that have their default."""
    struct = to_json_struct(request)
    values = {field.name: getattr(struct, field.name) for field in msgspec.structs.fields(struct)}
    return {
        field.name: _parameter(values[field.name])
        for field in msgspec.structs.fields(struct)
        if values[field.name] != field.default
    }


def _parameter(value: str | bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def decode_reply(request: type[Any], status: int, content: bytes) -> RestReply:
    """Return the reply to a request of this type. Anything else becomes a Failure."""
    if not 200 <= status < 300:
        return _decode_problem(status, content)
    struct = json_struct_of(OPERATIONS_BY_REQUEST[request].reply)
    try:
        reply: RestReply = from_json_struct(msgspec.json.decode(content, type=struct))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Failure("unavailable", f"the answer does not come from a Dodona master: {error}")
    return reply


def _decode_problem(status: int, content: bytes) -> Failure:
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Another form: from a proxy on the way, a server that starts or stops, another service.
        kind = Unavailable.kind if status >= 500 or status == 429 else InvalidRequest.kind
        return Failure(kind, f"the server answered with HTTP status {status}", {"status": status})
    return Failure(problem.kind, problem.detail, problem.attributes)


# The server's side


def decode_request(operation: Operation, query: Query, content: bytes) -> RestRequest:
    """Return the request that came in. Raises InvalidRequest, and SchemaViolation if the body names
    one thing twice."""
    struct = json_struct_of(operation.request)
    try:
        if operation.has_body:
            body = without_mark(content)
            found = from_json_struct(msgspec.json.decode(body, type=struct))
            decode_json(body)  # it finds what reading loses
            return found  # type: ignore[no-any-return]
        return from_json_struct(decode_query(struct, query))  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise InvalidRequest(f"the body is not valid: {error}") from error


def decode_query(wanted: type[Wanted], query: Query) -> Wanted:
    """Read the query of an address. Each parameter comes at most once, and has a value. Raises
    InvalidRequest, which names the parameter."""
    given = dict(query)
    if len(given) < len(query):
        (name, count), *_ = Counter(name for name, _ in query).most_common(1)
        raise _parameter_error(name, f"is given {count} times")
    for field in msgspec.structs.fields(wanted):
        if field.required and field.name not in given:
            raise _parameter_error(field.name, "is missing")
    try:
        found = msgspec.convert(given, wanted, strict=False)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidRequest(f"the query parameters are not valid: {error}") from error
    for name in given:
        if getattr(found, name) is None:  # msgspec reads the word null so
            raise _parameter_error(name, "is null: leave it out instead")
    return found


def _parameter_error(name: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"the query parameter {shown(name)} {reason}", parameter=shown(name))


def encode_json(message: Message) -> bytes:
    """Return a message as a JSON object."""
    return msgspec.json.encode(to_json_struct(message))


def problem_of(failure: Failure) -> Problem:
    """Return a Failure in the form of REST; `status` is the HTTP status of the answer."""
    error = ERRORS_BY_KIND.get(failure.kind, DodonaError)
    return Problem(
        status=error.status,
        detail=failure.message,
        kind=failure.kind,
        code=error.code,
        retryable=error.action in ("rerun", "begin_again", "repeat"),
        attributes=failure.attributes,
        title=failure.kind.replace("_", " "),
    )


def encode_problem(problem: Problem) -> bytes:
    """Return a problem as JSON."""
    return msgspec.json.encode(problem)


def json_schemas(template: str) -> tuple[dict[type[Any], dict[str, Any]], dict[str, Any]]:
    """Return parts of an OpenAPI document: the schema of each request, each reply and `Problem`,
    and their named components. They refer to these by `template` (such as
    `#/components/schemas/{name}`)."""
    kinds: list[type[Any]] = [Problem]
    for operation in OPERATIONS:
        kinds += [operation.request, operation.reply]
    kinds = list(dict.fromkeys(kinds))
    structs = [kind if kind is Problem else json_struct_of(kind) for kind in kinds]
    schemas, components = msgspec.json.schema_components(structs, ref_template=template)
    return dict(zip(kinds, schemas, strict=True)), components
