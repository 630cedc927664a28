"""A command of YTsaurus's HTTP API: the row of the table, and what its function is given.

Owns: how a command travels, which follows from its input and output alone, and the call that its
function works with. What commands do is in the modules beside this one.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

from dodona.aio import AsyncClient
from dodona_gateway.core.access.grants import Role
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.ytsaurus.parameters import Parameters
from dodona_gateway.shell.service import Service

DataType = Literal["null", "structured", "tabular"]


class RowsOut(NamedTuple):
    """Rows to be written in the format that the caller asked for. `columns` are names and types of
    Dodona; rows are in their order, or by name; None is a missing one."""

    columns: list[tuple[str, Any]]
    rows: Any


class YtCall:
    """One command that is being carried out."""

    def __init__(
        self,
        service: Service,
        principal: Principal,
        parameters: Parameters,
        read_rows: Callable[[], Awaitable[list[dict[str, Any]]]],
        read_value: Callable[[], Awaitable[Any]],
    ) -> None:
        self.service = service
        self.principal = principal
        self.parameters = parameters
        self.read_rows = read_rows
        """The rows in the body. Raises InvalidRequest, LimitExceeded."""
        self.read_value = read_value
        """The value in the body. Raises InvalidRequest, LimitExceeded."""

    @property
    def client(self) -> AsyncClient:
        return self.service.client

    @property
    def owner(self) -> str:
        """Whose transactions these are."""
        return self.principal.token_id or self.principal.name


Run = Callable[[YtCall], Awaitable[Any]]
"""Gives a value, or `RowsOut`; None for a command that answers nothing."""


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
