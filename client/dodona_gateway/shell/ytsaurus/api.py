"""YTsaurus's HTTP API, version 4: what is common to all commands.

Owns: the table of commands, how one is found and carried out, where its parameters, rows and
formats are in a request, and how its answer, or its error, travels. Source: the behaviour of
`ytsaurus-client` 0.13 on the wire.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from dodona._core.rest import JSON_TYPE
from dodona._io.pages import read_body
from dodona.errors import DodonaError, InvalidRequest
from dodona_gateway.core.ytsaurus.bodies import check_size, unpacker_of
from dodona_gateway.core.ytsaurus.errors import error_headers, error_status, yt_error
from dodona_gateway.core.ytsaurus.formats import DEFAULT_ROWS, DEFAULT_VALUE, parse_format
from dodona_gateway.core.ytsaurus.parameters import Parameters, decode_parameters, plain
from dodona_gateway.shell.service import Service
from dodona_gateway.shell.ytsaurus import batch, cypress, rows, select, tablets, transactions
from dodona_gateway.shell.ytsaurus.commands import Command, RowsOut, YtCall, command

API: Final = "/api/v4"
PARAMETERS_HEADER: Final = "x-yt-parameters"
FORMAT_HEADER: Final = "x-yt-header-format"


async def execute_batch(call: YtCall) -> Any:
    return await batch.execute_batch(call, find_command)


COMMANDS: Final[dict[str, Command]] = {
    it.name: it
    for it in (
        *cypress.COMMANDS,
        *tablets.COMMANDS,
        *rows.COMMANDS,
        *select.COMMANDS,
        *transactions.COMMANDS,
        command(execute_batch, "read", is_volatile=True),
    )
}
"""By name. What the client asks for first is made of it."""


def find_command(name: str) -> Command:
    """Raises InvalidRequest."""
    found = COMMANDS.get(name)
    if found is None:
        raise InvalidRequest(f"Command {name[:40]!r} is not supported", command=name[:40])
    return found


def add_ytsaurus_api(application: FastAPI, service: Callable[[], Service]) -> None:
    """Serve it."""

    async def versions(request: Request) -> Response:
        return _json(["v4"])

    async def descriptions(request: Request) -> Response:
        return _json([_description(it) for it in COMMANDS.values()])

    async def hosts(request: Request) -> Response:
        """The address that the caller used: transactions are held by this very gateway."""
        return _json([request.headers.get("host", "")])

    async def who_am_i(request: Request) -> Response:
        return _json({"login": request.state.principal.name, "realm": "dodona"})

    async def carry_out(request: Request) -> Response:
        try:
            return await _carry_out(service(), request)
        except DodonaError as error:
            return error_response(error)

    def add(path: str, handler: Any, *methods: str) -> None:
        application.add_route(path, handler, methods=list(methods), include_in_schema=False)

    add("/api", versions, "GET")
    add(API, descriptions, "GET")
    add("/hosts", hosts, "GET")
    add("/auth/whoami", who_am_i, "GET", "POST")
    add(API + "/{command}", carry_out, "GET", "POST", "PUT")


def error_response(error: DodonaError) -> Response:
    """An error as YTsaurus's clients know it."""
    described = yt_error(error)
    content = msgspec.json.encode(described)
    headers = dict(error_headers(described))
    return Response(content, error_status(error), headers=headers, media_type=JSON_TYPE)


def _description(it: Command) -> dict[str, Any]:
    return {
        "name": it.name,
        "input_type": it.input_type,
        "output_type": it.output_type,
        "is_volatile": it.is_volatile,
        "is_heavy": it.is_heavy,
    }


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type=JSON_TYPE)


async def _carry_out(service: Service, request: Request) -> Response:
    found = find_command(request.path_params["command"])
    if request.method != found.method:
        raise InvalidRequest(f"Command {found.name} is a {found.method}, not a {request.method}")
    parameters = await _parameters(service, request, found)
    output = parse_format(parameters.raw("output_format"), _default_format(found))

    async def read_rows() -> list[dict[str, Any]]:
        return await _read_rows(request, parameters)

    async def read_value() -> Any:
        content = await read_body(request, service.settings.body_mib_max << 20)
        return parse_format(parameters.raw("input_format"), DEFAULT_VALUE).decode_value(content)

    call = YtCall(service, request.state.principal, parameters, read_rows, read_value)
    answer = await _run(found, call, request)
    if isinstance(answer, RowsOut):
        content = output.encode_rows(answer.columns, answer.rows)
    else:
        content = b"" if answer is None else output.encode_value(answer)
    headers = {"X-YT-Response-Parameters": "{}"}
    return Response(content, media_type=output.media_type, headers=headers)


def _default_format(found: Command) -> str:
    return DEFAULT_ROWS if found.output_type == "tabular" else DEFAULT_VALUE


async def _run(found: Command, call: YtCall, request: Request) -> Any:
    """A change that comes again, with the id of one that was made, is answered as that was."""
    mutation = call.parameters.optional_text("mutation_id")

    async def run() -> Any:
        return await _audited(found, call, request)

    if mutation is None or not found.is_volatile or found.is_heavy:
        return await run()
    return await call.service.mutations.once((call.owner, mutation), run)


async def _audited(found: Command, call: YtCall, request: Request) -> Any:
    audit = call.service.audit
    if found.role != "admin" or audit is None:
        return await found.run(call)
    path = plain(call.parameters.raw("path") or call.parameters.raw("source_path"))
    audited = audit.call(
        call.principal,
        request_id=request.state.request_id,
        operation=found.name,
        path=path if isinstance(path, str) else None,
        remote=None if request.client is None else request.client.host,
    )
    async with audited:
        return await found.run(call)


# ---- parts of a request


async def _parameters(service: Service, request: Request, found: Command) -> Parameters:
    """Of a query string, a header, and the body of a POST: what comes later wins."""
    values: dict[str, Any] = dict(request.query_params)
    header = request.headers.get(PARAMETERS_HEADER)
    if header:
        content = header.encode("latin-1")
        values |= decode_parameters(content, is_json=_is_json_header(request))
    if found.method == "POST":
        body = await read_body(request, service.settings.body_mib_max << 20)
        if body:
            media = request.headers.get("content-type", "").partition(";")[0].strip()
            values |= decode_parameters(body, is_json=media == JSON_TYPE)
    return Parameters(values)


def _is_json_header(request: Request) -> bool:
    given = request.headers.get(FORMAT_HEADER, "json")
    return "yson" not in given


async def _read_rows(request: Request, parameters: Parameters) -> list[dict[str, Any]]:
    """The rows in the body, as they come; a body is never held as a whole."""
    reader = parse_format(parameters.raw("input_format"), DEFAULT_ROWS).row_reader()
    unpacker = unpacker_of(request.headers.get("content-encoding"))
    found: list[Any] = []
    size_bytes = 0
    try:
        async for part in request.stream():
            if not part:
                continue
            content = unpacker.feed(part)
            size_bytes += len(content)
            check_size(size_bytes)
            found += reader.feed(content)
    except ClientDisconnect as error:
        raise InvalidRequest("the connection ended within the body") from error
    if size_bytes:
        unpacker.finish()
    found += reader.finish()
    return found
