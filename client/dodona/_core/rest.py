"""The catalog over REST: one table that the client and the master both go by. Pure.

Owns: message ↔ method, path, query and JSON, and Failure ↔ `application/problem+json`. On the data
plane a message is an array; here it is an object with named fields, for people and for other
languages. Bytes (keys) are base64. Whoever sends the bytes is no business of this module: it must
not import a network library.
"""

from collections.abc import Mapping
from types import UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin
from urllib.parse import urlencode

import msgspec

from dodona._core.messages import (
    Assignment,
    CatalogReply,
    CatalogRequest,
    Cluster,
    CreateTable,
    Done,
    Failure,
    GenerateTimestamps,
    GetCluster,
    GetTable,
    Heartbeat,
    ListTables,
    Message,
    MountTable,
    RegisterProxy,
    RemoveNode,
    Table,
    TableList,
    TimestampRange,
    UnmountTable,
)
from dodona.errors import ERRORS_BY_KIND, DodonaError, InvalidRequest, Unavailable
from dodona.types import KEY_MIN

BODY_BYTES_MAX: Final = 8 << 20
JSON_TYPE: Final = "application/json"
PROBLEM_TYPE: Final = "application/problem+json"

RestRequest = CatalogRequest | GenerateTimestamps
RestReply = CatalogReply | TimestampRange


class Operation(NamedTuple):
    """How one request travels. With `parameter`, its only field is that query parameter, and
    `default` stands for an absent one; without, the request is the JSON body (if it has fields)."""

    name: str
    method: str
    path: str
    request: type[Message]
    reply: type[Message]
    summary: str
    status: int = 200
    parameter: str | None = None
    default: str | None = None

    @property
    def has_body(self) -> bool:
        """Whether the request is a JSON body."""
        return self.parameter is None and self.method == "POST"


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "create_table", "POST", "/v1/tables", CreateTable, Table, "Make a table.", status=201
    ),
    Operation(
        "list_tables",
        "GET",
        "/v1/tables",
        ListTables,
        TableList,
        "The paths of all tables that begin with the prefix, sorted.",
        parameter="prefix",
        default="//",
    ),
    Operation(
        "get_table",
        "GET",
        "/v1/table",
        GetTable,
        Table,
        "A table with its tablets, and where they are served.",
        parameter="path",
    ),
    Operation(
        "remove_table",
        "DELETE",
        "/v1/table",
        RemoveNode,
        Done,
        "Remove a table that is not mounted, and all its rows.",
        parameter="path",
    ),
    Operation(
        "mount_table",
        "POST",
        "/v1/table/mount",
        MountTable,
        Table,
        "Have the table's tablets served; they are a moment later.",
        parameter="path",
    ),
    Operation(
        "unmount_table",
        "POST",
        "/v1/table/unmount",
        UnmountTable,
        Table,
        "Have the table's tablets served no more; so it is a moment later.",
        parameter="path",
    ),
    Operation(
        "get_cluster", "GET", "/v1/cluster", GetCluster, Cluster, "The cells and the proxies."
    ),
    Operation(
        "heartbeat",
        "POST",
        "/v1/cells/heartbeat",
        Heartbeat,
        Assignment,
        "From a cell: where it is and what it serves. Answered by what it is to serve.",
    ),
    Operation(
        "register_proxy",
        "POST",
        "/v1/proxies",
        RegisterProxy,
        Done,
        "From a proxy, again and again: where it is.",
    ),
    Operation(
        "generate_timestamps",
        "POST",
        "/v1/timestamps",
        GenerateTimestamps,
        TimestampRange,
        "Fresh timestamps: `first` to `first + count - 1`. For bulk, speak the data plane.",
    ),
)

OPERATIONS_BY_REQUEST: Final[dict[type[Any], Operation]] = {
    operation.request: operation for operation in OPERATIONS
}

_defaults: Final[dict[tuple[type[Any], str], Any]] = {
    (CreateTable, "atomicity"): "full",
    (CreateTable, "pivot_keys"): (KEY_MIN,),
}
"""What a request by hand may leave out."""


class Problem(msgspec.Struct, frozen=True):
    """An error as REST says it (RFC 9457), with what programs decide by: kind, code, retryable."""

    status: int
    detail: str
    kind: str
    code: int
    retryable: bool
    attributes: dict[str, Any] = {}
    type: str = "about:blank"
    title: str = ""


class HttpCall(NamedTuple):
    """A request ready to be sent: `target` is path and query, `content` the JSON body if any."""

    method: str
    target: str
    content: bytes | None


# The twins: for each array-like message a struct with the same fields that JSON shows as an object


_twins: Final[dict[type[Any], type[Any]]] = {}
_originals: Final[dict[type[Any], type[Any]]] = {}


def twin_of(message: type[Any]) -> type[Any]:
    """The struct that JSON is made from, and that its schema describes."""
    if message not in _twins:
        fields: list[Any] = []
        for field in msgspec.structs.fields(message):
            default = _defaults.get((message, field.name), field.default)
            if field.default_factory is not msgspec.NODEFAULT:
                default = msgspec.field(default_factory=field.default_factory)
            required = default is msgspec.NODEFAULT
            annotation = _twin_annotation(field.type)
            fields.append((field.name, annotation, *(() if required else (default,))))
        is_request = message in OPERATIONS_BY_REQUEST
        twin = msgspec.defstruct(
            message.__name__, fields, frozen=True, forbid_unknown_fields=is_request
        )
        twin.__doc__ = message.__doc__
        _twins[message] = twin
        _originals[twin] = message
    return _twins[message]


def _twin_annotation(annotation: Any) -> Any:
    """The annotation with every message in it replaced by its twin."""
    if isinstance(annotation, type) and issubclass(annotation, Message):
        return twin_of(annotation)
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if not arguments or origin is None or not any(map(_mentions_message, arguments)):
        return annotation
    replaced = tuple(_twin_annotation(argument) for argument in arguments)
    return Union[replaced] if origin in (Union, UnionType) else origin[replaced]  # noqa: UP007


def _mentions_message(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Message):
        return True
    return any(map(_mentions_message, get_args(annotation)))


def _to_twin(value: Any) -> Any:
    if isinstance(value, Message):
        names = value.__struct_fields__
        return twin_of(type(value))(*[_to_twin(getattr(value, name)) for name in names])
    if isinstance(value, tuple):
        return tuple(map(_to_twin, value))
    return value


def _from_twin(value: Any) -> Any:
    original = _originals.get(type(value))
    if original is not None:
        names = original.__struct_fields__
        return original(*[_from_twin(getattr(value, name)) for name in names])
    if isinstance(value, tuple):
        return tuple(map(_from_twin, value))
    return value


# The client's side


def encode_call(request: RestRequest) -> HttpCall:
    """The HTTP call that makes this request."""
    operation = OPERATIONS_BY_REQUEST[type(request)]
    if operation.parameter is not None:
        query = urlencode({operation.parameter: getattr(request, operation.parameter)})
        return HttpCall(operation.method, f"{operation.path}?{query}", None)
    content = encode_json(request) if operation.has_body else None
    return HttpCall(operation.method, operation.path, content)


def decode_reply(request: type[Any], status: int, content: bytes) -> RestReply:
    """The reply to a request of this type; whatever is not one becomes a Failure."""
    if not 200 <= status < 300:
        return _decode_problem(status, content)
    twin = twin_of(OPERATIONS_BY_REQUEST[request].reply)
    try:
        reply: RestReply = _from_twin(msgspec.json.decode(content, type=twin))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Failure("unavailable", f"the answer is not one of a Dodona master: {error}")
    return reply


def _decode_problem(status: int, content: bytes) -> Failure:
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not ours: a proxy on the way, a server that is starting or stopping, another service.
        kind = Unavailable.kind if status >= 500 or status == 429 else InvalidRequest.kind
        return Failure(kind, f"the server answered with HTTP status {status}", {"status": status})
    return Failure(problem.kind, problem.detail, problem.attributes)


# The server's side


def decode_request(operation: Operation, query: Mapping[str, str], content: bytes) -> RestRequest:
    """The request that came in. Raises InvalidRequest."""
    if operation.parameter is not None:
        value = query.get(operation.parameter, operation.default)
        if value is None:
            name = operation.parameter
            raise InvalidRequest(f"the query parameter {name!r} is missing", parameter=name)
        return operation.request(value)  # type: ignore[return-value]
    if not operation.has_body:
        return operation.request()  # type: ignore[return-value]
    try:
        request: RestRequest = _from_twin(
            msgspec.json.decode(content, type=twin_of(operation.request))
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not as it must be: {error}") from error
    return request


def encode_json(message: Message) -> bytes:
    """A message as a JSON object."""
    return msgspec.json.encode(_to_twin(message))


def problem_of(failure: Failure) -> Problem:
    """A Failure as REST says it; `status` is the HTTP status to answer with."""
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
    """A problem as JSON."""
    return msgspec.json.encode(problem)


def json_schemas(template: str) -> tuple[dict[type[Any], dict[str, Any]], dict[str, Any]]:
    """For an OpenAPI document: the schema of each request, each reply and `Problem`, and the named
    components that they refer to by `template` (such as `#/components/schemas/{name}`)."""
    kinds: list[type[Any]] = [Problem]
    for operation in OPERATIONS:
        kinds += [operation.request, operation.reply]
    kinds = list(dict.fromkeys(kinds))
    twins = [kind if kind is Problem else twin_of(kind) for kind in kinds]
    schemas, components = msgspec.json.schema_components(twins, ref_template=template)
    return dict(zip(kinds, schemas, strict=True)), components
