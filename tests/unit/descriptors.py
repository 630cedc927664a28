"""A process that may open only so many more files."""

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress


@contextmanager
def only(free_count: int) -> Iterator[None]:
    """In the block this process has so many descriptors left."""
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (limit, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 16, hard))
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free_count):
            os.close(taken.pop())
        for it in taken:
            stack.callback(os.close, it)
        yield
