"""How a system under measurement looks to a client process.

A load is made in the parent process (where the servers are started), pickled into the client
process, and only there opened: before `open` it holds addresses and settings, nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

AsyncOperation = Callable[[], Awaitable[object]]
ThreadOperation = Callable[[], object]


class AsyncLoad(ABC):
    """Many callers in one event loop."""

    latency_every: int = 1
    """Time one operation in so many: reading the clock costs as much as a batched timestamp."""

    def tolerated(self) -> tuple[type[Exception], ...]:
        """Errors that a caller must expect and that count as failed operations."""
        return ()

    @abstractmethod
    async def open(self, callers_max: int) -> None:
        """Connect, and make whatever schema the operations need."""

    @abstractmethod
    def operation(self, caller: int) -> AsyncOperation:
        """What that caller awaits again and again. Returns once it is acknowledged."""

    @abstractmethod
    async def check(self) -> None:
        """Raise ContenderFailed unless what was acknowledged can be seen."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of all connections."""


class ThreadLoad(ABC):
    """Many threads of one process."""

    def tolerated(self) -> tuple[type[Exception], ...]:
        """Errors that a caller must expect and that count as failed operations."""
        return ()

    @abstractmethod
    def open(self, callers_max: int) -> None:
        """Open the engine, and make whatever schema the operations need."""

    @abstractmethod
    def operation(self, caller: int) -> ThreadOperation:
        """What that thread calls again and again. Returns once it is durable."""

    @abstractmethod
    def check(self) -> None:
        """Raise ContenderFailed unless what was acknowledged can be seen."""

    @abstractmethod
    def close(self) -> None:
        """Close the engine."""


Load = AsyncLoad | ThreadLoad
