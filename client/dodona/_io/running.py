"""What the clients do in several steps that are no protocol: what users hand them to run.

Owns: the order of a query's movements, and the refusal of functions that
only begin to run when they are called. What these would write comes after the commit, or never.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

from dodona._core.protocol import steps
from dodona._core.reading.query import Query
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona._io.bounds import Run, Until
from dodona._io.computing import DESCRIPTORS, TooLong, compute
from dodona_wire.errors import InvalidRequest, Unavailable
from dodona_wire.net.descriptors import need_descriptors
from dodona_wire.shown import shown

Result = TypeVar("Result")


def check_function(function: object, *, is_async: bool = False) -> None:
    """That it can be run as a transaction, as far as can be seen before. Raises InvalidRequest."""
    if not callable(function):
        raise InvalidRequest(f"function is called, which {shown(function)} can't be")
    for called in (function, getattr(function, "func", None), type(function).__call__):
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise InvalidRequest(
                f"{_named(function)} is a generator function: a call of it only makes a generator, "
                "and runs nothing. Remove `yield`, and return a list"
            )
        if inspect.iscoroutinefunction(called) and not is_async:
            raise InvalidRequest(
                f"{_named(function)} is async: it runs in the transactions of `dodona.aio` only"
            )


def finished(result: Result) -> Result:
    """What a function returned, or came to, unless it only began. Raises InvalidRequest."""
    is_begun = isinstance(result, Coroutine | AsyncGenerator) or (
        isinstance(result, Generator) and inspect.getgeneratorstate(result) == inspect.GEN_CREATED
    )
    if isinstance(result, Coroutine | Generator):
        result.close()
    if is_begun:
        raise InvalidRequest(
            f"the function returned {type(result).__name__} {_named(result)}, which has not run: "
            "what it writes would come after the commit. Await or exhaust it in the function"
        )
    if isinstance(result, Awaitable):
        raise InvalidRequest("the function returned what is to be awaited: await it within")
    return result


async def finished_async(result: Awaitable[Result]) -> Result:
    """What an async function comes to. Raises InvalidRequest if it is none."""
    if not isinstance(result, Awaitable):
        raise InvalidRequest(
            f"the function is an async one: its result is awaited, not {shown(result)}"
        )
    return finished(await result)


def _named(it: object) -> str:
    inner = getattr(it, "func", it)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))


def answer(
    run: Run,
    session: Session,
    begin: steps.Protocol[Query],
    buffer: TransactionBuffer | None,
    timeout_ms: int | None,
) -> Any:
    """The movements of a query, of which two compute and two ask, in `timeout_ms` together."""
    until = None if timeout_ms is None else Until(run, timeout_ms)
    ask = until or run
    query = ask(begin)
    _in_time(query.plan, query, until)
    if until is not None and until.is_over:
        raise too_long(until.timeout_ms)
    ask(session.fetch_query(query, buffer))
    return _in_time(query.answer, query, until)


def _in_time(function: Callable[[], Result], query: Query, until: Until | None) -> Result:
    """What a query computes. Raises Unavailable if that takes too long, Overloaded if this process
    may open no more files."""
    need_descriptors(DESCRIPTORS)
    wait_s = None if until is None else until.left_ms() / 1000
    try:
        return compute(function, query.interrupt, wait_s)
    except TooLong as error:
        assert until is not None, "without a bound nothing takes too long"
        raise too_long(until.timeout_ms) from error


def too_long(timeout_ms: int) -> Unavailable:
    """Of a query whose time was up."""
    text = f"the query was not computed in the {timeout_ms} ms of this call: give it more time"
    return Unavailable(text, timeout_ms=timeout_ms)
