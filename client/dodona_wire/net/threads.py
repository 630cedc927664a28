"""Begin the threads that a caller of the client needs.

Owns: `begin_thread`, `begin_thread_soon`, `begin_bare_thread`. `threading` begins a thread under
locks of its own. A signal handler's exception could interrupt the caller and leave these locks
held. Then no thread of this process could begin any more, or the new one would wait forever. So
another thread begins it, because no signal handler runs there. The caller does only one step of the
interpreter. A finalizer may run under those same locks. So code that may run in one does not wait
until the thread has begun. If a thread can't begin, the caller gets an error, because it would wait
forever.

The queue is C's own. A library that patches `queue` for its greenlets (gevent's
`patch_all(thread=False)`) would make the caller wait for another greenlet.
"""

import _thread
import threading
from _queue import SimpleQueue
from collections.abc import Callable

from dodona_wire.errors import Unavailable
from dodona_wire.handlers import is_of_handler


def begin_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Run `work` in a thread that the end of the process does not wait for. The work runs even if
    the wait for its begin is interrupted. Raises Unavailable if Python begins no thread."""
    begun: SimpleQueue[threading.Thread | RuntimeError] = SimpleQueue()
    _start(_begin, work, name, begun)
    thread = begun.get()
    if isinstance(thread, RuntimeError):
        raise no_thread(thread) from thread
    return thread


def begin_thread_soon(work: Callable[[], None], name: str) -> None:
    """Begin a thread as `begin_thread` does, without a wait."""
    _start(_begin_soon, work, name)


def begin_bare_thread(work: Callable[[], None]) -> None:
    """Run `work` in a thread that `threading` does not list, without a wait. Raises RuntimeError if
    there can be no more threads."""
    _thread.start_new_thread(work, ())


def _start(function: Callable[..., None], *arguments: object) -> None:
    try:
        _thread.start_new_thread(function, arguments)
    except RuntimeError as error:
        if is_of_handler(error):
            raise
        raise no_thread(error) from error


def _begin(
    work: Callable[[], None], name: str, begun: "SimpleQueue[threading.Thread | RuntimeError]"
) -> None:
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        begun.put(error)
    else:
        begun.put(thread)


def _begin_soon(work: Callable[[], None], name: str) -> None:
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        work()  # this is a new thread already


def no_thread(error: RuntimeError) -> Unavailable:
    """Return the error to raise: there are too many threads, or the process is about to end."""
    return Unavailable(f"Python can't start a thread for the client: {error}")
