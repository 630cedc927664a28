"""How a thread is begun that a caller of the client needs.

Owns: `begin_thread`, `begin_thread_soon`, `begin_bare_thread`. `threading` begins a thread under
locks of its own. An interrupt of whoever begins it, by the exception of a signal handler, could
leave them held, and then no thread of this process could begin any more, or the new one would wait
for ever. So that is left to another thread, where no signal handler runs; what the caller does is
one step of the interpreter. A finalizer may run under those very locks: where one may begin a
thread, nobody waits until it has begun. A thread that can't begin is an error of the caller's, who
would wait for ever.
The queue is C's own: a library that patches `queue` for its greenlets (gevent's
`patch_all(thread=False)`) would have the caller wait for what only another greenlet can bring.
"""

import _thread
import threading
from _queue import SimpleQueue
from collections.abc import Callable

from dodona_wire.errors import Unavailable


def begin_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Run `work` in a thread that the end of the process does not wait for. It runs, also if the
    wait for it is interrupted. Raises Unavailable if Python begins no thread."""
    begun: SimpleQueue[threading.Thread | RuntimeError] = SimpleQueue()
    _start(_begin, work, name, begun)
    thread = begun.get()
    if isinstance(thread, RuntimeError):
        raise no_thread(thread) from thread
    return thread


def begin_thread_soon(work: Callable[[], None], name: str) -> None:
    """As `begin_thread`, and wait for nothing."""
    _start(_begin_soon, work, name)


def begin_bare_thread(work: Callable[[], None]) -> None:
    """Run `work` in a thread that `threading` does not list, and wait for nothing. Raises
    RuntimeError if there can be no more threads."""
    _thread.start_new_thread(work, ())


def _start(function: Callable[..., None], *arguments: object) -> None:
    try:
        _thread.start_new_thread(function, arguments)
    except RuntimeError as error:
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
        work()  # here is a thread already


def no_thread(error: RuntimeError) -> Unavailable:
    """The error to raise: there are too many, or the process is about to end."""
    return Unavailable(f"Python begins no thread for the client: {error}")
