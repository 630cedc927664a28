"""Run what users pass to the clients, in phases that are not one protocol: queries and functions.

Owns: the order of the phases of a query, and the check of functions. It refuses a function whose
call only returns a generator or coroutine. The writes of such a function would come after the
commit, or never.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dodona._core.protocol import steps
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona._io.bounds import Run, Until
from dodona._io.computing import DESCRIPTORS, TooLong, compute
from dodona_wire.errors import InvalidRequest, Unavailable
from dodona_wire.net.descriptors import need_descriptors
from dodona_wire.shown import shown

if TYPE_CHECKING:
    from dodona._core.reading.query import Query

Result = TypeVar("Result")

LAZY: Final = (map, filter, starmap)
"""Iterators that call a function of the user later."""


def check_function(function: object) -> None:
    """Check that a function can run as a transaction, as far as this is known before the call.
    Raises InvalidRequest."""
    _check(function, is_async=False)


def check_async_function(function: object) -> None:
    """Check that a function can run as a transaction of the asyncio API, which may be async."""
    _check(function, is_async=True)


def _check(function: object, *, is_async: bool) -> None:
    if not callable(function):
        raise InvalidRequest(f"`function` must be callable, not {shown(function)}.")
    for called in (function, getattr(function, "func", None), type(function).__call__):
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise InvalidRequest(
                f"{_named(function)} is a generator function. A call only creates a generator, and "
                "runs nothing. Remove `yield`, and return a list."
            )
        if inspect.iscoroutinefunction(called) and not is_async:
            raise InvalidRequest(
                f"{_named(function)} is async. Run it in a transaction of `dodona.aio`."
            )


def finished(result: Result) -> Result:
    """Return the result of a function. Raises InvalidRequest if the function has only begun."""
    is_begun = isinstance(result, (Coroutine, AsyncGenerator, *LAZY)) or (
        isinstance(result, Generator) and inspect.getgeneratorstate(result) == inspect.GEN_CREATED
    )
    if isinstance(result, Coroutine | Generator):
        result.close()
    if is_begun:
        raise InvalidRequest(
            f"The function returned {type(result).__name__} {_named(result)}, which has not run. "
            "Its writes would come after the commit. Await or exhaust it in the function."
        )
    if isinstance(result, Awaitable):
        raise InvalidRequest("The function returned an awaitable. Await it inside the function.")
    return result


async def async_finished(result: Awaitable[Result]) -> Result:
    """Return the awaited result of an async function. Raises InvalidRequest if it is not async."""
    if not isinstance(result, Awaitable):
        raise InvalidRequest(f"The function must be async. It returned {shown(result)}.")
    return finished(await result)


def _named(it: object) -> str:
    inner = getattr(it, "func", it)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))


def answer(
    run: Run,
    session: Session,
    begin: "steps.Protocol[Query]",
    buffer: TransactionBuffer | None,
    timeout_ms: int | None,
) -> Any:
    """Run all phases of a query, in `timeout_ms` together. Two phases compute, and two ask
    servers."""
    until = None if timeout_ms is None else Until(run, timeout_ms)
    ask = until or run
    query = ask(begin)
    _in_time(query.plan, query, until)
    if until is not None and until.is_over:
        raise too_long(until.timeout_ms)
    ask(session.fetch_query(query, buffer))
    return _in_time(query.answer, query, until)


def _in_time(function: Callable[[], Result], query: "Query", until: Until | None) -> Result:
    """Return the result of a phase that computes. Raises Unavailable if it takes too long, and
    Overloaded if this process can open no more files."""
    need_descriptors(DESCRIPTORS)
    wait_s = None if until is None else until.left_ms() / 1000
    try:
        return compute(function, query.interrupt, wait_s)
    except TooLong as error:
        assert until is not None, "without a bound nothing takes too long"
        raise too_long(until.timeout_ms) from error


def too_long(timeout_ms: int) -> Unavailable:
    """Return the error of a query that reached its time limit."""
    text = f"The query was not computed in the {timeout_ms} ms of this call. Set a longer timeout."
    return Unavailable(text, timeout_ms=timeout_ms)
