"""Run many commands of one request.

Owns: `execute_batch`. Its commands run side by side, a bounded number at a time. Each gets a
separate answer, so a command that fails does not affect the others. As in YTsaurus, a batch has no
commands on rows.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dodona_wire.errors import DodonaError, InvalidRequest, LimitExceeded
from dodona_ytsaurus.commands.commands import Answer, Command, Value, YtCall, carry_out
from dodona_ytsaurus.terms.errors import yt_error
from dodona_ytsaurus.terms.parameters import Parameters, plain

REQUESTS_MAX: Final = 1_000
CONCURRENCY: Final = 50
CONCURRENCY_MAX: Final = 100

Find = Callable[[str], Command]


async def execute_batch(call: YtCall, find: Find) -> Value:
    """Run the commands of a batch. Raises InvalidRequest, LimitExceeded if the batch itself is
    wrong."""
    requests = call.parameters.items("requests")
    if requests is None:
        raise InvalidRequest("Missing required parameter 'requests'", parameter="requests")
    if len(requests) > REQUESTS_MAX:
        raise LimitExceeded(f"A batch has at most {REQUESTS_MAX} requests. Split the batch.")
    asked = call.parameters.number("concurrency")
    if asked is not None and asked < 1:
        raise InvalidRequest(
            f"Parameter 'concurrency' must be 1 or more, not {asked}.", parameter="concurrency"
        )
    slots = asyncio.Semaphore(CONCURRENCY if asked is None else min(asked, CONCURRENCY_MAX))

    async def answer(request: Any) -> dict[str, Any]:
        async with slots:
            return await _answer(call, plain(request), find)

    results = await asyncio.gather(*map(answer, requests))
    return Value({"results": results})


async def _answer(call: YtCall, request: Any, find: Find) -> dict[str, Any]:
    try:
        output = await _run(call, request, find)
    except DodonaError as error:
        return {"error": msgspec.to_builtins(yt_error(error))}
    return {"output": output.value} if isinstance(output, Value) else {}


async def _run(call: YtCall, request: Any, find: Find) -> Answer:
    if not isinstance(request, dict):
        raise InvalidRequest("A request of a batch must be a map.")
    asked = Parameters(request)
    command = find(asked.text("command"))
    if command.is_heavy or command.name == "execute_batch":
        raise InvalidRequest(f"Command {command.name} cannot be part of a batch")
    parameters = Parameters(asked.map("parameters"))

    async def no_rows() -> list[dict[str, Any]]:
        raise InvalidRequest("A command of a batch can't take rows. Send the command alone.")

    async def value() -> Any:
        return request.get("input")

    return await carry_out(command, YtCall(call.service, call.caller, parameters, no_rows, value))
