"""A command of YTsaurus's HTTP API: the row of the table, what its function is given and gives, and
how it is run.

Owns: how a command travels, which follows from its input and output alone, the call that its
function works with, and what comes before and after each: parameters that are refused, and the
audit of what administrators do. What commands do is in the modules beside this one.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

from dodona._core.catalog.catalog import CatalogSession
from dodona._io.bounds import AsyncRun
from dodona.aio import AsyncClient
from dodona_gateway.core.access.grants import Role
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.ytsaurus.parameters import Parameters, plain
from dodona_gateway.core.ytsaurus.refusals import refuse
from dodona_gateway.shell.service import Service

ROWS_AT_ONCE: Final = 5_000
"""More are written in a thread, so that others are answered meanwhile."""

DataType = Literal["null", "structured", "tabular"]


class Value(NamedTuple):
    """One value, to be written in the format that the caller asked for: None is an entity."""

    value: Any


class RowsOut(NamedTuple):
    """Rows to be written in the format that the caller asked for. `columns` are names and types of
    Dodona; rows are in their order, or by name; None is a missing one."""

    columns: list[tuple[str, Any]]
    rows: Any


Answer = Value | RowsOut | None
"""None is no answer but that it is done."""


class Origin(NamedTuple):
    """Where a call comes from."""

    principal: Principal
    request_id: str
    remote: str | None
    """The caller's address."""


class YtCall:
    """One command that is being carried out."""

    def __init__(
        self,
        service: Service,
        origin: Origin,
        parameters: Parameters,
        read_rows: Callable[[], Awaitable[list[dict[str, Any]]]],
        read_value: Callable[[], Awaitable[Any]],
    ) -> None:
        self.service = service
        self.origin = origin
        self.parameters = parameters
        self.read_rows = read_rows
        """The rows in the body. Raises InvalidRequest, LimitExceeded."""
        self.read_value = read_value
        """The value in the body. Raises InvalidRequest, LimitExceeded."""
        self.warnings: list[str] = []
        """What of it is of no use. The client shows none: they are in a header, and in the log."""

    @property
    def client(self) -> AsyncClient:
        return self.service.client

    @property
    def catalog(self) -> CatalogSession:
        """The protocols on the tree and its tables."""
        return self.service.session.catalog

    @property
    def run(self) -> AsyncRun:
        """Drives protocols."""
        return self.service.run

    @property
    def principal(self) -> Principal:
        return self.origin.principal

    @property
    def owner(self) -> str:
        """Whose transactions these are."""
        return self.principal.owner


Run = Callable[[YtCall], Awaitable[Answer]]


class Command(NamedTuple):
    """`role` is what it takes at least, at its path: functions check it."""

    name: str
    input_type: DataType
    output_type: DataType
    is_volatile: bool
    is_heavy: bool
    role: Role
    run: Run

    @property
    def method(self) -> str:
        """As YTsaurus derives it."""
        if self.input_type != "null":
            return "PUT"
        return "POST" if self.is_volatile else "GET"


def command(
    run: Run,
    role: Role,
    *,
    takes: DataType = "null",
    gives: DataType = "structured",
    is_volatile: bool = False,
    is_heavy: bool = False,
) -> Command:
    """A row of the table; a command is called as its function."""
    return Command(run.__name__.removesuffix("_"), takes, gives, is_volatile, is_heavy, role, run)


async def carry_out(found: Command, call: YtCall) -> Answer:
    """What an administrator asks for is written down, whatever comes of it."""
    if found.role != "admin":
        return await _run(found, call)
    path = plain(call.parameters.raw("path") or call.parameters.raw("source_path"))
    audited = call.service.audited(
        call.principal,
        request_id=call.origin.request_id,
        operation=found.name,
        path=path if isinstance(path, str) else None,
        remote=call.origin.remote,
    )
    async with audited:
        return await _run(found, call)


async def _run(found: Command, call: YtCall) -> Answer:
    refuse(found.name, call.parameters)
    return await found.run(call)
