"""The Python client's event loop beside Locust's greenlets.

Locust patches threads and sockets for gevent when it is imported. The client's event loop must have
neither. So it runs in a thread of the kernel, not of gevent, over uvloop, which has sockets of its
own. A greenlet waits until that thread calls back. Code that runs there must start no threads: they
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
    """An event loop in a kernel thread. It lasts as long as the process."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        get_original("_thread", "start_new_thread")(self._loop.run_forever, ())

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine and return its result. Only this greenlet waits. If it is killed, the
        coroutine continues."""
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
    """Return the only one of this process."""
    return Native()
