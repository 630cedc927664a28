"""Run a command: make its client, print an error as one sentence, and set the exit code.

Owns: which output goes where, and the table of exit codes. A command raises `DodonaError`. The
application, which is a `Group`, prints it on standard error and exits with the code.
"""

import shutil
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

from dodona_local.cli.streams import drop_output, hurry_output

if TYPE_CHECKING:
    import dodona

FAILED: Final = 1
RUN_AGAIN: Final = 3
NOT_KNOWN: Final = 4
OUTPUT_LOST: Final = 5
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
TERMINATED: Final = 143
EXIT_CODES: Final = {
    0: "Done.",
    FAILED: "Not done, or the answer is no. Do what the message says.",
    2: "Not done: the command line is wrong.",
    RUN_AGAIN: "Not done, or only in part, for a passing reason: run the command again.",
    NOT_KNOWN: "It is not known whether it is done: run dodona transactions outcome.",
    OUTPUT_LOST: "Done, but a part of the output is lost: standard output is full, or closed.",
    INTERRUPTED: "Ctrl-C ended the command.",
    PIPE_CLOSED: "The program that read the output closed the pipe.",
    TERMINATED: "SIGTERM ended the command.",
}
CODES_BY_ACTION: Final = {
    "fix": FAILED,
    "stop": FAILED,
    "rerun": RUN_AGAIN,
    "look": FAILED,
    "begin_again": RUN_AGAIN,
    "repeat": RUN_AGAIN,
    "ask": NOT_KNOWN,
}
"""The exit code for each action that an error asks of its caller."""

_call_timeout_ms: ContextVar[int | None] = ContextVar("call_timeout_ms", default=None)
"""A separate variable, because `click.get_current_context` does not know Typer's own copy of
Click."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came. It ends a command in order, as Ctrl-C does."""


def code_of(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code of a command that the interrupt ended."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


class Group(TyperGroup):
    """A group of commands that prints errors as one sentence, and help texts as they are. It prints
    nothing for Ctrl-C and a closed pipe."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command. Text in its help that looks like markup, such as [//path], stays
        text."""
        return _escaped(super().get_command(ctx, cmd_name))

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An error of Dodona becomes one sentence and an exit code."""
        try:
            with errors_in_one_sentence():
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
        except KeyboardInterrupt as error:
            hurry_output()
            if str(error):
                warn(f"dodona: {error}")
            raise typer.Exit(code_of(error)) from None
        except BrokenPipeError:
            drop_output()
            raise typer.Exit(PIPE_CLOSED) from None


def _escaped(command: Any) -> Any:
    """Escape the help texts of a command and of all its parts, once."""
    if command is None or getattr(command, "is_escaped", False):
        return command
    command.is_escaped = True
    for part in (command, *command.params):
        text = getattr(part, "help", None)
        if text and "[" in text:
            from rich.markup import escape

            part.help = escape(text)
    for inner in getattr(command, "commands", {}).values():
        _escaped(inner)
    return command


@contextmanager
def errors_in_one_sentence(code: int | None = None) -> Iterator[None]:
    """Print a DodonaError of the block as one sentence. Then raises typer.Exit, with this code or
    that of the error's action."""
    try:
        yield
    except Exception as error:
        from dodona_server.disk_space import is_no_space
        from dodona_wire.errors import DodonaError
        from dodona_wire.net.descriptors import is_out_of_descriptors, out_of_descriptors

        if isinstance(error, OSError) and is_no_space(error):
            place = f"the disk of {error.filename}" if error.filename else "the disk"
            warn(f"dodona: {place} is full: make room, then run the command again")
            raise typer.Exit(RUN_AGAIN if code is None else code) from None
        if is_out_of_descriptors(error):
            error = out_of_descriptors(error, getattr(error, "filename", None))
        if not isinstance(error, DodonaError):
            raise
        warn(f"dodona: {error}")
        raise typer.Exit(CODES_BY_ACTION[error.action] if code is None else code) from None


@contextmanager
def client_of(
    url: str, data_dir: Path | None, *, is_made: bool = False
) -> Iterator["dodona.Client"]:
    """Yield a client of the cluster, or of the embedded database in a folder. With `is_made` the
    folder may be created; a command that fails leaves no new empty database. SIGTERM ends the block
    in order. Raises InvalidRequest, Unavailable, FolderInUse."""
    import dodona

    folder = None if data_dir is None else database_in(data_dir, is_made=is_made)
    signal.signal(signal.SIGTERM, _terminate)
    with (
        _warnings_in_one_line(dodona.DodonaWarning),
        connected(url) if folder is None else _opened(folder) as db,
    ):
        yield db


def database_in(data_dir: Path, *, is_made: bool = False) -> Path:
    """Return the folder of an embedded database. With `is_made` it need not exist. Raises
    InvalidRequest."""
    from dodona_wire.errors import InvalidRequest
    from dodona_wire.net.paths import place_of

    folder = place_of(data_dir)
    if not is_made and not folder.is_dir():
        raise InvalidRequest(f"there is no embedded database in {data_dir}")
    return folder


def connected(url: str) -> "dodona.Client":
    """Return a client of the cluster, with the limit of `--timeout-ms`. Raises InvalidRequest,
    Unavailable."""
    import dodona

    bound_ms = call_timeout_ms()
    if bound_ms is None:
        return dodona.connect(url)
    return dodona.connect(url, timeout_ms=bound_ms, call_timeout_ms=bound_ms)


def bound_calls(timeout_ms: int | None) -> None:
    """Set the value of `--timeout-ms` for the command in this context."""
    _call_timeout_ms.set(timeout_ms)


def call_timeout_ms() -> int | None:
    """Return the value of `--timeout-ms` of the command."""
    return _call_timeout_ms.get()


@contextmanager
def _opened(data_dir: Path) -> Iterator["dodona.Client"]:
    import dodona

    is_new = not data_dir.exists()
    is_empty = False
    try:
        with dodona.open(data_dir, call_timeout_ms=call_timeout_ms()) as db:
            try:
                yield db
            except BaseException:
                is_empty = is_new and _has_nothing(db)
                raise
    finally:
        if is_empty:
            _unmake(data_dir)


def _has_nothing(db: "dodona.Client") -> bool:
    """Return whether the database is known to be empty."""
    import dodona

    try:
        return not db.list("//")
    except dodona.DodonaError:
        return False


def _unmake(data_dir: Path) -> None:
    """Remove a folder that this command created and left empty, unless another process uses it."""
    from dodona_wire.errors import DodonaError
    from dodona_wire.net.folder import lock_folder

    with suppress(DodonaError), closing(lock_folder(data_dir)):
        shutil.rmtree(data_dir, ignore_errors=True)


@contextmanager
def _warnings_in_one_line(kind: type[Warning]) -> Iterator[None]:
    """Print warnings as errors are printed: the place in the program does not help a user."""

    def show(message: Warning | str, *_place: Any, **_more: Any) -> None:
        warn(f"dodona: warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", kind)
        warnings.showwarning = show
        yield


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def say(line: str) -> None:
    """Print a line to standard output, without a buffer."""
    print(line, flush=True)


def warn(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr, flush=True)
