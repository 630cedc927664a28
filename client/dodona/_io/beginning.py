"""What the asyncio API is about to begin: a transaction, or a snapshot that is held.

Owns: that one may await it or enter it, and what is said to who does neither.
"""

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from dodona._core.protocol.process_bound import ProcessBound
from dodona_wire.errors import InvalidRequest


class Entered(Protocol):
    """It knows what to do when its block ends."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


Begun = TypeVar("Begun", bound=Entered)


class Beginning(ProcessBound, Generic[Begun]):
    """What is about to begin: await it, or enter it."""

    _instead = "await it, or enter it, in this one"

    def __init__(self, begin: Callable[[], Awaitable[Begun]]) -> None:
        self._begin = begin
        self._begun: Begun | None = None

    def __getattr__(self, name: str) -> NoReturn:
        """Somebody asks it for what only one that has begun has. Python itself may: for names that
        are not public."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise InvalidRequest(
            f"{name} is of one that has begun: `await` it first, or enter it by `async with`"
        )

    def __await__(self) -> Generator[Any, None, Begun]:
        return self._begin().__await__()

    async def __aenter__(self) -> Begun:
        self._begun = await self._begin()
        return self._begun

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._begun is not None
        await self._begun.__aexit__(kind, error, trace)
