"""Run a query of the asyncio client, in phases that are not one protocol.

Owns: the order of the phases, and that the computation of DuckDB in a thread ends with its caller.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dodona._core.protocol import steps
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona._io.bounds import AsyncRun, AsyncUntil
from dodona._io.computing import DESCRIPTORS, INTERRUPT_SECONDS
from dodona._io.running import too_long
from dodona_wire.net.descriptors import need_descriptors
from dodona_wire.net.pools import asked

if TYPE_CHECKING:
    from dodona._core.reading.query import Query

Result = TypeVar("Result")


async def async_answer(
    run: AsyncRun,
    session: Session,
    begin: "steps.Protocol[Query]",
    buffer: TransactionBuffer | None,
    timeout_ms: int | None,
) -> Any:
    """Run all phases of a query, in `timeout_ms` together. The phases that compute run in a
    thread."""
    until = None if timeout_ms is None else AsyncUntil(run, timeout_ms)
    ask = until or run
    query = await ask(begin)
    await _in_time(query.plan, query, until)
    if until is not None and until.is_over:
        raise too_long(until.timeout_ms)
    await ask(session.fetch_query(query, buffer))
    return await _in_time(query.answer, query, until)


async def _in_time(
    function: Callable[[], Result], query: "Query", until: AsyncUntil | None
) -> Result:
    """Return the result of a phase that computes. Raises Unavailable if it takes too long, and
    Overloaded if this process can open no more files."""
    need_descriptors(DESCRIPTORS)
    if until is None:
        return await _compute(function, query.interrupt)
    bound = asyncio.timeout(until.left_ms() / 1000)
    try:
        async with bound:
            return await _compute(function, query.interrupt)
    except TimeoutError as error:
        if not bound.expired():  # a signal handler of the caller raised this error
            raise
        raise too_long(until.timeout_ms) from error


async def _compute(function: Callable[[], Result], interrupt: Callable[[], None]) -> Result:
    """Return the function's result, computed in a thread. The thread does not outlive this call: a
    cancelled call interrupts it until it ends. It repeats the interrupt, because one that comes
    before the computation begins is lost."""
    computing = asked(partial(copy_context().run, function))
    try:
        return await asyncio.shield(computing)
    except asyncio.CancelledError:
        while not computing.done():
            interrupt()
            await asyncio.wait([computing], timeout=INTERRUPT_SECONDS)
        computing.exception()  # take the error: no other code waits for it
        raise
