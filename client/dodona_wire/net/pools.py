"""Pools of threads for work that blocks.

Owns: `Pool`, `asked`, `prepare_threads`. Python's own pools take no work after the main thread has
ended. They can't even be imported for the first time then. But other threads of the program
continue and may use a client. So the calling thread does the work itself. That blocks an event
loop, which is better than work that never happens.

The queue of a pool is C's own. A library that patches `queue` for its greenlets (gevent's
`patch_all(thread=False)`) would end each thread after its first work, and later work never began.
"""

import asyncio
import queue
from _queue import SimpleQueue
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

from dodona_wire.net.native_threads import has_native_threads
from dodona_wire.net.threads import no_thread

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

with suppress(RuntimeError):  # import it early: uvloop and pyarrow do so on first use
    import concurrent.futures.thread  # noqa: F401

Result = TypeVar("Result")

_OVER: Final = (
    "cannot schedule new futures after",
    "Executor shutdown has been called",
    "can't register atexit after shutdown",
)
"""What Python says of pools that have ended, or can't be imported any more. If a thread can't
begin, it says something else: then the work is in the pool's queue anyway."""


class Pool:
    """A pool of at most `count_max` threads, which begin when there is work."""

    def __init__(self, count_max: int, name: str) -> None:
        self._is_closed = False
        self._threads = _threads(count_max, name)

    def submit(self, work: Callable[..., object], *arguments: Any) -> None:
        """Let a thread do the work, which must handle its own errors. Raises Unavailable if there
        is no thread and none can begin, RuntimeError after the close."""
        self._check_open()
        once = _Once(partial(work, *arguments))
        if self._threads is None or _taken(self._threads.submit, once) is None:
            once()

    def ask(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Let a thread work, and return the result for the running loop. Raises as `submit`."""
        self._check_open()
        return _done_here(work) if self._threads is None else _asked(self._threads, work)

    def close(self, *, wait: bool) -> None:
        """Take no more work. With `wait`, drop work that has not begun, and wait for the rest."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=wait, cancel_futures=wait)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the pool is closed")


class _Once:
    """Work that runs at most once. It may be in a queue although the pool raised an error."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = [work]

    def __call__(self) -> Any:
        try:
            work = self._work.pop()
        except IndexError:
            return None
        return work()

    def take_back(self) -> bool:
        """Take the work back. Return whether no thread has begun it; then none will."""
        try:
            self._work.pop()
        except IndexError:
            return False
        return True


def _taken(give: Callable[[_Once], Any], once: _Once) -> Any:
    """Give work to a pool, and return the pool's answer; None if it takes no more. Raises
    Unavailable if there is no thread and none can begin."""
    try:
        return give(once)
    except RuntimeError as error:
        if is_over(error):
            return None
        if once.take_back():
            raise no_thread(error) from error
        raise  # another thread has taken the work, and no caller gets its result


def _threads(count_max: int | None, name: str) -> "ThreadPoolExecutor | None":
    try:
        import concurrent.futures.thread as module
    except RuntimeError:
        return None
    made = module.ThreadPoolExecutor(count_max, name)
    if has_native_threads():  # greenlets need the other queue
        made._work_queue = SimpleQueue()
    return made


_prepared: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()


def prepare_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Let work that the loop gives to its threads begin, also where `queue` is patched. Call this
    before the loop looks up names or does other work in threads."""
    if queue.SimpleQueue is SimpleQueue or not has_native_threads() or loop in _prepared:
        return
    if (threads := _threads(None, "asyncio")) is not None:
        loop.set_default_executor(threads)
        _prepared.add(loop)


def is_over(error: Exception) -> bool:
    """Return whether the error says that Python's pools take no more work."""
    return isinstance(error, RuntimeError) and str(error).startswith(_OVER)


def asked(work: Callable[[], Result]) -> "asyncio.Future[Result]":
    """Let a thread of the event loop do the work, and return its result for the loop. Raises
    Unavailable if there is no thread and none can begin."""
    prepare_threads(asyncio.get_running_loop())
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
    """The result of work. A cancel also cancels the work, if that has not begun."""

    def __init__(self, taken: "asyncio.Future[Any]", loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._taken = taken

    def cancel(self, msg: Any = None) -> bool:
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._taken.cancel()
        return is_cancelled


def _outcome_of(work: Callable[[], Any]) -> list[_Outcome]:
    """Do the work, and return a list from which the caller takes the outcome out. The pool's thread
    keeps its result a little longer than the caller waits. An error holds all its frames."""
    try:
        return [(work(), None)]
    except BaseException as error:  # noqa: BLE001 - it is the asker's
        return [(None, error)]


def _pass_on(wanted: "asyncio.Future[Any]", done: "asyncio.Future[list[_Outcome]]") -> None:
    if done.cancelled():
        wanted.cancel()
        return
    value, error = done.result().pop()
    if wanted.done():  # no caller waits for it any more
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
