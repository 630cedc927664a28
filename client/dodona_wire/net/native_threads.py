"""Whether threads of this process are the kernel's.

Owns: `check_threads`. Libraries such as gevent and eventlet can put greenlets in the place of
threads. A blocking client has a thread with an event loop, and an embedded database threads that
wait for one another: as greenlets of one thread they would wait for ever, time-outs as well.
"""

import _thread
from types import BuiltinFunctionType

from dodona_wire.errors import InvalidRequest


def check_threads() -> None:
    """Raises InvalidRequest if threads are greenlets."""
    begin = _thread.start_new_thread
    if not isinstance(begin, BuiltinFunctionType):
        library = str(getattr(begin, "__module__", None)).partition(".")[0]
        raise InvalidRequest(
            f"threads of this process are greenlets, by {library}'s patch of them, and the client "
            "needs real ones: patch all but these, as by `gevent.monkey.patch_all(thread=False)`",
            patched_by=library,
        )
