"""Serve YTsaurus's HTTP API, version 4: the parts that all commands share.

Owns: the table of commands, and how a command is found and run. Owns also where a request has its
parameters, rows and formats, and how the answer or the error is sent. Source: the behaviour of
`ytsaurus-client` 0.13 on the wire.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response

from dodona_wire.errors import DodonaError, Forbidden, InvalidRequest
from dodona_wire.messages.rest import JSON_TYPE
from dodona_ytsaurus.commands import (
    batch,
    looking,
    nodes,
    rows,
    select,
    tablets,
    transactions,
)
from dodona_ytsaurus.commands.commands import (
    ROWS_AT_ONCE,
    Answer,
    Command,
    RowsOut,
    YtCall,
    carry_out,
    command,
)
from dodona_ytsaurus.commands.requests import read_content, read_parameters, read_rows
from dodona_ytsaurus.commands.service import Service
from dodona_ytsaurus.commands.transactions import NO_ID
from dodona_ytsaurus.gateway import Caller
from dodona_ytsaurus.terms.errors import error_headers, error_status, yt_error
from dodona_ytsaurus.terms.formats import DEFAULT_ROWS, DEFAULT_VALUE, Format, parse_format
from dodona_ytsaurus.terms.parameters import Parameters

API: Final = "/api/v4"
RPC: Final = "rpc"
"""A role of proxies that speak YTsaurus's own RPC. Dodona has none."""
USER_HEADER: Final = "x-yt-user-name"
WARNINGS_HEADER: Final = "X-Dodona-Warnings"
WARNINGS_LENGTH_MAX: Final = 4_000
ID_LENGTH_MAX: Final = 40
_logger: Final = logging.getLogger("dodona.gateway")


async def execute_batch(call: YtCall) -> Answer:
    return await batch.execute_batch(call, find_command)


COMMANDS: Final[dict[str, Command]] = {
    it.name: it
    for it in (
        *looking.COMMANDS,
        *nodes.COMMANDS,
        *tablets.COMMANDS,
        *rows.COMMANDS,
        *select.COMMANDS,
        *transactions.COMMANDS,
        command(execute_batch, "read", is_volatile=True),
    )
}
"""The commands by name. The list of commands that the client asks for first is made from it."""


def find_command(name: str) -> Command:
    """Return a command by its name. Raises InvalidRequest."""
    found = COMMANDS.get(name)
    if found is None:
        raise InvalidRequest(f"Command {name[:40]!r} is not supported", command=name[:40])
    return found


def add_ytsaurus_api(application: FastAPI, service: Callable[[], Service]) -> None:
    """Serve YTsaurus's HTTP API."""

    async def versions(request: Request) -> Response:
        return _json(["v4"])

    async def descriptions(request: Request) -> Response:
        return _json([_description(it) for it in COMMANDS.values()])

    async def hosts(request: Request) -> Response:
        """Return the address that the caller used: transactions are held by this very gateway."""
        return _json(_proxies(request, request.query_params.get("role")))

    async def discover_proxies(request: Request) -> Response:
        """Return the same for newer clients."""
        kind = request.query_params.get("type", "http")
        role = request.query_params.get("role")
        return _json({"proxies": _proxies(request, role) if kind != RPC else []})

    async def who_am_i(request: Request) -> Response:
        principal = service().gateway.caller(request).principal
        return _json({"login": principal.name, "realm": "dodona"})

    async def answer(request: Request) -> Response:
        gateway = service().gateway
        caller = gateway.caller(request)
        try:
            response = await _answer(service(), caller, request)
        except DodonaError as error:
            response = error_response(error)
        response.headers["X-YT-Request-Id"] = caller.request_id
        response.headers["X-YT-Proxy"] = gateway.address
        return response

    async def no_such_version(request: Request) -> Response:
        return error_response(
            InvalidRequest("Dodona serves version v4 of the API only. Use /api/v4.")
        )

    def add(path: str, handler: Any, *methods: str) -> None:
        application.add_route(path, handler, methods=list(methods), include_in_schema=False)

    add("/api", versions, "GET")
    add(API, descriptions, "GET")
    add("/hosts", hosts, "GET")
    add("/auth/whoami", who_am_i, "GET", "POST")
    add(API + "/discover_proxies", discover_proxies, "GET")
    add(API + "/{command}", answer, "GET", "POST", "PUT")
    add("/api/{rest:path}", no_such_version, "GET", "POST", "PUT")


def _proxies(request: Request, role: str | None) -> list[str]:
    """Return this gateway, at the address that the caller used."""
    host = request.headers.get("host")
    return [host] if host and role != RPC else []


def error_response(error: DodonaError) -> Response:
    """Return an error as YTsaurus's clients know it."""
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


async def _answer(service: Service, caller: Caller, request: Request) -> Response:
    found = find_command(request.path_params["command"])
    if request.method != found.method:
        raise InvalidRequest(f"Command {found.name} needs {found.method}, not {request.method}.")
    principal = caller.principal
    user = request.headers.get(USER_HEADER)
    if user is not None and user != principal.name:
        raise Forbidden(
            f"{principal.name!r} can't act for another user: Dodona has no impersonation. "
            "Leave out the header X-YT-User-Name."
        )
    bytes_max = service.gateway.body_bytes_max
    parameters = await read_parameters(request, caller, found, bytes_max)
    output = parse_format(parameters.raw("output_format"), _default_format(found))

    async def rows_in() -> list[dict[str, Any]]:
        return await read_rows(caller, _input_format(parameters, DEFAULT_ROWS))

    async def value_in() -> Any:
        content = await read_content(caller, bytes_max)
        return _input_format(parameters, DEFAULT_VALUE).decode_value(content)

    call = YtCall(service, caller, parameters, rows_in, value_in)
    content = await _content(found, call, output)
    headers = {"X-YT-Response-Parameters": "{}"}
    if call.warnings:
        headers[WARNINGS_HEADER] = "; ".join(call.warnings)[:WARNINGS_LENGTH_MAX]
        _logger.warning("%s: %s", found.name, headers[WARNINGS_HEADER])
    return Response(content, media_type=output.media_type, headers=headers)


def _default_format(found: Command) -> str:
    return DEFAULT_ROWS if found.output_type == "tabular" else DEFAULT_VALUE


def _input_format(parameters: Parameters, default: str) -> Format:
    return parse_format(parameters.raw("input_format"), default)


async def _content(found: Command, call: YtCall, output: Format) -> bytes:
    """Return the content of the answer. A repeated change, with the mutation id of an earlier one,
    gets the same answer."""

    async def run() -> bytes:
        answer = await carry_out(found, call)
        content = await _encoded(output, answer)
        if isinstance(answer, RowsOut):
            call.gateway.check_sent(content)
        return content

    mutation = _mutation_id(call.parameters)
    if mutation is None or not found.is_volatile or found.is_heavy:
        return await run()
    return await call.service.mutations.once((call.owner, found.name, mutation), run)


def _mutation_id(parameters: Parameters) -> str | None:
    text = parameters.optional_text("mutation_id")
    if text is None or text in NO_ID:
        return None
    if len(text) > ID_LENGTH_MAX:
        raise InvalidRequest("Parameter 'mutation_id' is too long. Send four hexadecimal words.")
    return text


async def _encoded(output: Format, answer: Answer) -> bytes:
    if answer is None:
        return b""
    if not isinstance(answer, RowsOut):
        return output.encode_value(answer.value)
    if len(answer.rows) <= ROWS_AT_ONCE:
        return output.encode_rows(answer.columns, answer.rows)
    return await asyncio.to_thread(output.encode_rows, answer.columns, answer.rows)
