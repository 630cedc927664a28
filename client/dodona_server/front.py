"""The HTTP answers of a server from its first instant: health pages immediately, others soon.

Owns: the application that uvicorn runs for master, proxy and node, and when its pages are made. To
import the web framework takes longer than the rest of a start. The data plane (timestamps,
transactions) needs no web framework. So the server begins without it. Afterwards a thread imports
it and makes the pages, and requests for pages wait for that. Meanwhile the data plane goes on: a
thread that imports gives Python's lock away every `SWITCH_S`. The pages of a proxy and a node are
only for administrators. Such a server makes its pages when a client asks for the first of them.

Invariants:
- Health pages never wait for the other pages.
- A server that makes its pages at its start is not ready before they are made.
- Pages are made once. If that fails, the server is not ready any more, each request for a page gets
  an error, and the log says why.

Must not import a web framework.
"""

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from dodona_server.answers import (
    Answer,
    Application,
    Receive,
    Scope,
    Send,
    health_answer,
    problem_answer,
)
from dodona_server.lifecycle import HEALTH, READINESS, STARTUP, Lifecycle
from dodona_wire.messages.base import Failure
from dodona_wire.net.callers import READING

SWITCH_S: Final = 0.0005
"""How long the thread may keep the event loop waiting for Python, as far as Python can tell."""
AFTER_S: Final = 0.1
"""How long after the start the pages are made, unless a client asks for one before. Clients that
waited for the server ask for timestamps first."""
MAKING: Final = "the server prepares its pages"
FAILED: Final = "The server can't prepare its pages. Its log shows the error."

Lifespan = Callable[[], AbstractAsyncContextManager[None]]

_logger: Final = logging.getLogger("dodona.rest")


class Front:
    """The application of one server."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        lifespan: Lifespan,
        make_pages: Callable[[], Any],
        *,
        is_asked_often: bool = True,
    ) -> None:
        """`make_pages` is called in a thread, and returns an ASGI application. If the pages are
        asked for often, it is called soon after the start. `lifespan` is entered before the first
        request and left after the last."""
        self._is_asked_often = is_asked_often
        self._lifecycle = lifecycle
        self._lifespan = lifespan
        self._make_pages = make_pages
        self._making: asyncio.Task[Application] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        answer = self._health(scope)
        if answer is not None:
            await answer.send(send)
            return
        try:
            pages = await asyncio.shield(self._begin())
        except Exception as error:
            _logger.error("the server can't prepare its pages", exc_info=error)
            await problem_answer(Failure("internal", FAILED)).send(send)
            return
        await pages(scope, receive, send)

    def _health(self, scope: Scope) -> Answer | None:
        if scope["type"] != "http" or scope["method"] not in READING:
            return None
        match scope["path"]:
            case path if path == HEALTH:
                return health_answer(self._lifecycle.why_not_well(), "ok")
            case path if path == READINESS:
                return health_answer(self._lifecycle.why_not_ready(), "ready")
            case path if path == STARTUP:
                return health_answer(None, "started")
        return None

    def _make_soon(self) -> asyncio.TimerHandle:
        self._lifecycle.starting = MAKING
        return asyncio.get_running_loop().call_later(AFTER_S, self._begin)

    def _begin(self) -> "asyncio.Task[Application]":
        """Return the task that makes the pages. Starts it unless it was started before."""
        if self._making is None:
            self._making = asyncio.create_task(self._make())
            self._making.add_done_callback(_retrieve)
        return self._making

    async def _make(self) -> Application:
        before_s = sys.getswitchinterval()
        sys.setswitchinterval(min(before_s, SWITCH_S))
        try:
            made: Application = await asyncio.to_thread(self._make_pages)
        except BaseException:
            self._lifecycle.starting = FAILED
            raise
        finally:
            sys.setswitchinterval(before_s)
        self._lifecycle.starting = None
        return made

    async def _live(self, receive: Receive, send: Send) -> None:
        """Run ASGI's lifespan. An error at the start ends the server."""
        await receive()
        state = "startup"
        try:
            async with self._lifespan():
                timer = self._make_soon() if self._is_asked_often else None
                await send({"type": "lifespan.startup.complete"})
                state = "shutdown"
                await receive()
                if timer is not None:
                    timer.cancel()
                if self._making is not None:
                    await asyncio.wait([self._making])
        except BaseException:
            await send({"type": f"lifespan.{state}.failed", "message": traceback.format_exc()})
            raise
        await send({"type": "lifespan.shutdown.complete"})


def _retrieve(task: "asyncio.Task[Application]") -> None:
    if not task.cancelled():
        task.exception()  # requests get the error; else asyncio logs it as lost
