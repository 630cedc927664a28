"""Run a command of YTsaurus's HTTP API: its row in the table, its input and its result.

Owns: how a command is sent, which follows from its input and output alone, and the call that its
function works with. Owns also the steps around each command: unsupported parameters are refused,
and calls of administrators go to the audit. The commands themselves are in the modules beside this
one.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

from dodona._core.catalog.catalog import CatalogSession
from dodona._io.bounds import AsyncRun
from dodona.aio import AsyncClient
from dodona_ytsaurus.commands.service import Service
from dodona_ytsaurus.gateway import Caller, Gateway, Principal, Role
from dodona_ytsaurus.terms.parameters import Parameters, plain
from dodona_ytsaurus.terms.refusals import refuse

ROWS_AT_ONCE: Final = 5_000
"""An answer with more rows is encoded in a thread, so that other callers are answered meanwhile."""

DataType = Literal["null", "structured", "tabular"]


class Value(NamedTuple):
    """One value, to be written in the format that the caller asked for; None is an entity."""

    value: Any


class RowsOut(NamedTuple):
    """Rows to be written in the format that the caller asked for. `columns` are names and types of
    Dodona. Rows have their values in that order, or by name; None is a missing row."""

    columns: list[tuple[str, Any]]
    rows: Any


Answer = Value | RowsOut | None
"""None means that the command is done and has no result."""


class YtCall:
    """One command that is under way."""

    def __init__(
        self,
        service: Service,
        caller: Caller,
        parameters: Parameters,
        read_rows: Callable[[], Awaitable[list[dict[str, Any]]]],
        read_value: Callable[[], Awaitable[Any]],
    ) -> None:
        self.service = service
        self.caller = caller
        self.parameters = parameters
        self.read_rows = read_rows
        """Reads the rows in the body. Raises InvalidRequest, LimitExceeded."""
        self.read_value = read_value
        """Reads the value in the body. Raises InvalidRequest, LimitExceeded."""
        self.warnings: list[str] = []
        """Warnings about input that has no effect. The client shows no warnings, so they are in a
        header and in the log."""

    @property
    def gateway(self) -> Gateway:
        return self.service.gateway

    @property
    def client(self) -> AsyncClient:
        return self.gateway.client

    @property
    def catalog(self) -> CatalogSession:
        """The protocols on the tree and its tables."""
        return self.gateway.session.catalog

    @property
    def run(self) -> AsyncRun:
        """Runs protocols."""
        return self.gateway.run

    @property
    def principal(self) -> Principal:
        return self.caller.principal

    @property
    def owner(self) -> str:
        """The owner of the caller's transactions."""
        return self.principal.owner


Run = Callable[[YtCall], Awaitable[Answer]]


class Command(NamedTuple):
    """A command of the API. `role` is the role that it needs at least, for its path; its function
    checks that."""

    name: str
    input_type: DataType
    output_type: DataType
    is_volatile: bool
    is_heavy: bool
    role: Role
    run: Run

    @property
    def method(self) -> str:
        """The HTTP method, as YTsaurus derives it."""
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
    """Return a row of the table. The command has the name of its function."""
    return Command(run.__name__.removesuffix("_"), takes, gives, is_volatile, is_heavy, role, run)


async def carry_out(found: Command, call: YtCall) -> Answer:
    """Run a command. A call of an administrator is written to the audit with its outcome."""
    if found.role != "admin":
        return await _run(found, call)
    path = plain(call.parameters.raw("path") or call.parameters.raw("source_path"))
    async with call.caller.audited(found.name, path if isinstance(path, str) else None):
        return await _run(found, call)


async def _run(found: Command, call: YtCall) -> Answer:
    refuse(found.name, call.parameters)
    return await found.run(call)
