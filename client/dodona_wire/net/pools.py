"""Pools of threads for work that blocks.

Owns: `Pool`, `asked`. Python's own pools take no work once the main thread has ended, and can't
even be imported for the first time then, though other threads of the program go on and may use a
client. Then work is done where it is given, and its giver waits for it: that it blocks an event
loop is better than that it never happens.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dodona_wire.net.threads import no_thread

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

with suppress(RuntimeError):  # while it can be: uvloop and pyarrow do so on first use
    import concurrent.futures.thread  # noqa: F401

Result = TypeVar("Result")

_OVER: Final = (
    "cannot schedule new futures after",
    "Executor shutdown has been called",
    "can't register atexit after shutdown",
)
"""What Python says of pools that have ended, or can't be imported any more. Of threads that can't
begin it says something else: then the work is in the pool's queue all the same."""


class Pool:
    """At most `count_max` threads, which begin when there is work."""

    def __init__(self, count_max: int, name: str) -> None:
        self._is_closed = False
        self._threads = _threads(count_max, name)

    def submit(self, work: Callable[..., object], *arguments: Any) -> None:
        """Have it done. It is to handle its own errors. Raises Unavailable if there is no thread
        and none can begin, RuntimeError after the close."""
        self._check_open()
        once = _Once(partial(work, *arguments))
        if self._threads is None or _taken(self._threads.submit, once) is None:
            once()

    def ask(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """What comes of it, for the running event loop. Raises as `submit`."""
        self._check_open()
        return _done_here(work) if self._threads is None else _asked(self._threads, work)

    def close(self, *, wait: bool) -> None:
        """Take no more. With `wait`, what has not begun is dropped, and what has is waited for."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=wait, cancel_futures=wait)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the pool is closed")


class _Once:
    """Work that may be in a queue although its giver was told that it is not."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = [work]

    def __call__(self) -> Any:
        try:
            work = self._work.pop()
        except IndexError:
            return None
        return work()

    def take_back(self) -> bool:
        """Whether nobody has begun it, and nobody will."""
        try:
            self._work.pop()
        except IndexError:
            return False
        return True


def _taken(give: Callable[[_Once], Any], once: _Once) -> Any:
    """What a pool says to it; None if it takes no more. Raises Unavailable if there is no thread
    and none can begin."""
    try:
        return give(once)
    except RuntimeError as error:
        if is_over(error):
            return None
        if once.take_back():
            raise no_thread(error) from error
        raise  # another thread has taken it, and nobody hears what comes of it


def _threads(count_max: int, name: str) -> "ThreadPoolExecutor | None":
    try:
        import concurrent.futures.thread as module
    except RuntimeError:
        return None
    return module.ThreadPoolExecutor(count_max, name)


def is_over(error: Exception) -> bool:
    """Whether it says that Python's pools take no work any more."""
    return isinstance(error, RuntimeError) and str(error).startswith(_OVER)


def asked(work: Callable[[], Result]) -> "asyncio.Future[Result]":
    """What comes of it, for the running event loop, in a thread of the loop's. Raises Unavailable
    if there is no thread and none can begin."""
    return _asked(None, work)


_Outcome = tuple[Any, BaseException | None]


def _asked(
    threads: "ThreadPoolExecutor | None", work: Callable[[], Result]
) -> "asyncio.Future[Result]":
    loop = asyncio.get_running_loop()
    once = _Once(partial(_outcome_of, work))
    taken = _taken(partial(loop.run_in_executor, threads), once)
    if taken is None:
        return _done_here(work)
    wanted = _Wanted(taken, loop)
    taken.add_done_callback(partial(_pass_on, wanted))
    return wanted


class _Wanted(asyncio.Future[Any]):
    """What comes of work. Whoever cancels it cancels the work, too, if that has not begun."""

    def __init__(self, taken: "asyncio.Future[Any]", loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._taken = taken

    def cancel(self, msg: Any = None) -> bool:
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._taken.cancel()
        return is_cancelled


def _outcome_of(work: Callable[[], Any]) -> list[_Outcome]:
    """What comes of work, for its asker to take out. The thread of the pool has what it gave back
    for a moment longer than the asker waits, and an error leads to all that it came through."""
    try:
        return [(work(), None)]
    except BaseException as error:  # noqa: BLE001 - it is the asker's
        return [(None, error)]


def _pass_on(wanted: "asyncio.Future[Any]", done: "asyncio.Future[list[_Outcome]]") -> None:
    if done.cancelled():
        wanted.cancel()
        return
    value, error = done.result().pop()
    if wanted.done():  # nobody waits for it any more
        return
    if error is None:
        wanted.set_result(value)
    else:
        wanted.set_exception(error)


def _done_here(work: Callable[[], Result]) -> "asyncio.Future[Result]":
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is the asker's
        future.set_exception(error)
    return future
