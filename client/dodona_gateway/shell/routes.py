"""Run one operation of the REST API: from the bytes of its request to those of its answer.

Owns: the table's row (`Route`), the input of a handler (`Call`), and the one way in which bodies
are read, decoded, checked, answered and refused. The operations themselves are in `rest`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_type_hints

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.routing import Route as ServedRoute
from starlette.types import Receive, Scope, Send

from dodona._core.reading.versions import VersionedRow
from dodona_gateway.core.access.grants import Role
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.answer_budget import check_sent
from dodona_gateway.core.answers import Answer, RowsAnswer
from dodona_gateway.core.content import (
    TYPES,
    VALUE_FORMS,
    Form,
    decode_body,
    encode_body,
    form_of,
    wanted_form,
)
from dodona_gateway.core.json_values import (
    Convert,
    convert_history,
    convert_rows,
    converters,
    given_bound,
    given_rows,
    text_converters,
)
from dodona_gateway.core.requests import Body
from dodona_gateway.shell.bodies import whole_body
from dodona_gateway.shell.edge import BROKEN_OFF
from dodona_gateway.shell.service import Service
from dodona_wire.errors import DodonaError
from dodona_wire.messages.base import failure_of
from dodona_wire.messages.rest import PROBLEM_TYPE, decode_query, encode_problem, problem_of
from dodona_wire.preload import preload_decoder
from dodona_wire.rows.error_attributes import shown_attributes

HEADERS: Final[dict[int, dict[str, str]]] = {
    401: {"www-authenticate": "Bearer"},
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}
"""The headers of an error by its status: how to authenticate, and when to repeat the call."""


class Call(NamedTuple):
    """One request, as a handler sees it."""

    service: Service
    principal: Principal
    form: Form
    transaction: str
    """The id of the transaction in the path; empty if the path has none."""
    request: Request
    """The request itself, for handlers that stream."""

    @property
    def owner(self) -> str:
        """Return the owner of the caller's transactions: a token, or with `--insecure` all
        callers."""
        return self.principal.owner

    async def shown(
        self, table: str, rows: Iterable[Mapping[str, Any] | None]
    ) -> list[dict[str, Any] | None]:
        """Return rows of a table in the format of the answer."""
        return convert_rows(rows, await self._converters(table))

    async def _converters(self, table: str) -> Mapping[str, Convert]:
        columns = (await self.service.schema(table)).columns
        return converters(columns) if self.form == "json" else text_converters(columns)

    async def given(self, table: str, rows: Sequence[Any]) -> Sequence[Any]:
        """Return rows or keys of the body with the values that the client takes. Raises
        SchemaViolation."""
        form = form_of(self.request.headers.get("content-type"), VALUE_FORMS)
        schema = await self.service.schema(table)
        return given_rows(schema, rows, table, is_json=form == "json")

    async def given_values(
        self, table: str, values: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """Return values by column of the body in the same way. None stays None."""
        return None if values is None else (await self.given(table, [values]))[0]

    async def given_bounds(self, table: str, *bounds: Any) -> list[Any]:
        """Return leading key values of the body in the same way."""
        schema = await self.service.schema(table)
        return [given_bound(schema, it) for it in bounds]

    async def shown_key(self, table: str, key: Iterable[Any]) -> list[Any]:
        """Return values of key columns in the format of the answer."""
        names = (await self.service.schema(table)).key_names
        ((row,)) = await self.shown(table, [dict(zip(names, key, strict=True))])
        return [] if row is None else list(row.values())

    async def shown_versions(
        self, table: str, rows: Iterable[VersionedRow | None]
    ) -> list[VersionedRow | None]:
        """Return histories of rows of a table in the format of the answer."""
        convert = await self._converters(table)
        return [None if it is None else convert_history(it, convert) for it in rows]


Handler = Callable[[Call, Any], Awaitable[Any]]
"""Takes the decoded body. Returns an `Answer`, or a whole `Response` if it streams."""


class Route(NamedTuple):
    """How one operation is called. Its fields are query parameters if the request has no body for
    them."""

    name: str
    method: str
    path: str
    request: type[Body]
    answer: type[Answer]
    handle: Handler
    summary: str
    role: Role
    """The role that the operation needs at least, for people and for tests. Handlers check it, for
    the path of the call."""
    status: int
    gives: tuple[Form, ...]
    takes: tuple[Form, ...]
    """The formats of a body that is a stream, which the handler reads itself."""

    @property
    def is_query(self) -> bool:
        return self.method != "POST" or bool(self.takes)


def route(
    method: Literal["GET", "POST", "DELETE"],
    path: str,
    handle: Handler,
    role: Role,
    *,
    status: int = 200,
    gives: tuple[Form, ...] = VALUE_FORMS,
    takes: tuple[Form, ...] = (),
    answer: type[Answer] | None = None,
) -> Route:
    """Return a row of the table. The request, the answer and the summary come from the handler."""
    hints = get_type_hints(handle)
    summary = " ".join((handle.__doc__ or "").split())
    assert summary, f"{handle.__name__} has no docstring, which would be its summary"
    gets = answer or hints["return"]
    return Route(
        handle.__name__,
        method,
        path,
        preload_decoder(hints["asked"]),
        gets,
        handle,
        summary,
        role,
        status,
        gives,
        takes,
    )


def add_routes(
    application: FastAPI, routes: Iterable[Route], service: Callable[[], Service]
) -> None:
    """Serve the routes. Other methods of their paths are refused, even HEAD, which would read a
    whole stream for nothing."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    for path, by_method in by_path.items():
        served = ServedRoute(path, _Endpoint(by_method, service), methods=list(by_method))
        served.methods = set(by_method)
        application.router.routes.append(served)


class _Endpoint:
    """Answers the requests to one path."""

    def __init__(self, by_method: Mapping[str, Route], service: Callable[[], Service]) -> None:
        self._by_method = by_method
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await _answer(self._by_method[request.method], self._service(), request)
        except DodonaError as error:
            response = problem(error)
        try:
            await response(scope, receive, send)
        except DodonaError as error:  # the answer has begun, so it can only break off
            scope["state"][BROKEN_OFF] = error.message


async def _answer(route: Route, service: Service, request: Request) -> Response:
    form = wanted_form(request.headers.get("accept"), route.gives)
    body = await _body(route, service, request)
    transaction = request.path_params.get("transaction", "")
    call = Call(service, request.state.principal, form, transaction, request)
    answer = await _carry_out(route, call, body, request)
    if isinstance(answer, Response):
        return answer
    content = encode_body(answer, form)
    if isinstance(answer, RowsAnswer):
        check_sent(content, service.settings.answer_bytes_max)
    return Response(content, route.status, media_type=TYPES[form])


async def _carry_out(route: Route, call: Call, body: Any, request: Request) -> Any:
    """Run the handler. A call of an administrator is written to the audit with its outcome."""
    if route.role != "admin":
        return await route.handle(call, body)
    path = getattr(body, "path", None) or getattr(body, "source", None)
    audited = call.service.audited(
        call.principal,
        request_id=request.state.request_id,
        operation=route.name,
        path=path,
        remote=None if request.client is None else request.client.host,
    )
    async with audited:
        answer = await route.handle(call, body)
        audited.status = route.status
        return answer


async def _body(route: Route, service: Service, request: Request) -> Any:
    if route.is_query:
        return decode_query(route.request, request.query_params.multi_items())
    content = await whole_body(request, service.settings.body_mib_max << 20)
    if not content and not any(it.required for it in msgspec.structs.fields(route.request)):
        return route.request()
    return decode_body(
        content, form_of(request.headers.get("content-type"), VALUE_FORMS), route.request
    )


def problem(error: DodonaError) -> Response:
    """Return an error as a response."""
    failure = failure_of(error)
    failure = msgspec.structs.replace(failure, attributes=shown_attributes(failure.attributes))
    found = problem_of(failure)
    headers = HEADERS.get(found.status, {})
    content = encode_problem(found)
    return Response(content, found.status, headers=headers, media_type=PROBLEM_TYPE)
