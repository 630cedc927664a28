"""Check that threads of this process are threads of the kernel.

Owns: `check_threads`, `has_native_threads`. Libraries such as gevent and eventlet can replace
threads with greenlets. A blocking client has a thread with an event loop. An embedded database has
threads that wait for one another. As greenlets of one thread they would wait forever, even beyond
their timeouts.
"""

import _thread
from types import BuiltinFunctionType

from dodona_wire.errors import InvalidRequest


def has_native_threads() -> bool:
    """Return whether threads are the kernel's."""
    return isinstance(_thread.start_new_thread, BuiltinFunctionType)


def check_threads() -> None:
    """Raise InvalidRequest if threads are greenlets."""
    if not has_native_threads():
        begin = _thread.start_new_thread
        library = str(getattr(begin, "__module__", None)).partition(".")[0]
        raise InvalidRequest(
            f"threads of this process are greenlets, because {library} has patched them, but the "
            "client needs native threads: patch all modules but threads, for example with "
            "`gevent.monkey.patch_all(thread=False)`",
            patched_by=library,
        )
