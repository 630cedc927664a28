"""The Python client's event loop beside Locust's greenlets.

Locust patches threads and sockets for gevent when it is imported; the client's event loop must have
neither. So it runs in a thread that the kernel made, not gevent, over uvloop, which has sockets of
its own; a greenlet waits until that thread calls back. What runs there must start no threads: they
would be greenlets of a hub that never has its turn.
"""

from collections.abc import Coroutine
from functools import cache, partial
from typing import Any, TypeVar

import uvloop
from gevent import get_hub
from gevent.event import AsyncResult
from gevent.monkey import get_original

Answer = TypeVar("Answer")


class Native:
    """An event loop in a thread of the kernel's, as long as the process lives."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        get_original("_thread", "start_new_thread")(self._loop.run_forever, ())

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """What it comes to. Only this greenlet waits; if it is killed, the coroutine goes on."""
        hub, done = get_hub(), AsyncResult()

        async def run() -> None:
            try:
                end = partial(done.set, await coroutine)
            except Exception as error:  # noqa: BLE001 (whatever it is, the greenlet raises it)
                end = partial(done.set_exception, error)
            hub.loop.run_callback_threadsafe(end)

        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(run()))
        answer: Answer = done.get()
        return answer


@cache
def native() -> Native:
    """The process's only one."""
    return Native()
