"""How a client process uses a system under measurement.

The parent process, which starts the servers, makes a load. It pickles the load into the client
process, which opens it. Before `open` it holds addresses and settings, nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

AsyncOperation = Callable[[], Awaitable[object]]
ThreadOperation = Callable[[], object]


class AsyncLoad(ABC):
    """A load with many callers in one event loop."""

    latency_every: int = 1
    """Time one operation in so many: reading the clock costs as much as a batched timestamp."""

    def tolerated(self) -> tuple[type[Exception], ...]:
        """Return errors that a caller must expect and that count as failed operations."""
        return ()

    @abstractmethod
    async def open(self, callers_max: int) -> None:
        """Connect, and make the schema that the operations need."""

    @abstractmethod
    def operation(self, caller: int) -> AsyncOperation:
        """Return what that caller awaits again and again. It ends once it is acknowledged."""

    @abstractmethod
    async def check(self) -> None:
        """Raise ContenderFailed unless acknowledged writes can be seen."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections."""


class ThreadLoad(ABC):
    """A load with many threads of one process."""

    def tolerated(self) -> tuple[type[Exception], ...]:
        """Return errors that a caller must expect and that count as failed operations."""
        return ()

    @abstractmethod
    def open(self, callers_max: int) -> None:
        """Open the engine, and make the schema that the operations need."""

    @abstractmethod
    def operation(self, caller: int) -> ThreadOperation:
        """Return what that thread calls again and again. It ends once it is durable."""

    @abstractmethod
    def check(self) -> None:
        """Raise ContenderFailed unless acknowledged writes can be seen."""

    @abstractmethod
    def close(self) -> None:
        """Close the engine."""


Load = AsyncLoad | ThreadLoad
