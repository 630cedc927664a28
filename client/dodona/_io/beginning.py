"""A transaction or a held snapshot of the asyncio API that is about to begin.

Owns: that a caller may await it or enter it, and the error for a caller that does neither.
"""

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from dodona._core.protocol.process_bound import ProcessBound
from dodona_wire.errors import InvalidRequest


class Entered(Protocol):
    """An object that was entered by `async with`, and can end its block."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


Begun = TypeVar("Begun", bound=Entered)


class Beginning(ProcessBound, Generic[Begun]):
    """An object that is about to begin. Await it, or enter it by `async with`."""

    _instead = "use `await` or `async with` in this process"

    def __init__(self, begin: Callable[[], Awaitable[Begun]]) -> None:
        self._begin = begin
        self._begun: Begun | None = None

    def __getattr__(self, name: str) -> NoReturn:
        """Raise InvalidRequest: the caller uses a name before the object has begun. Raises
        AttributeError for private names, because Python itself may ask for those."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise InvalidRequest(f"{name} is not available yet. Use `await` or `async with` first.")

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
