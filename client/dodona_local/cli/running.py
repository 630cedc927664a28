"""What all commands run in: the client they speak by, one sentence for an error, the exit code.

Owns: what is said where, and the table of exit codes. A command raises `DodonaError`; the
application, which is a `Group`, says it on standard error and leaves with the code.
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
    RUN_AGAIN: "Not done, or not to the end, and nothing is wrong with it: run it again.",
    NOT_KNOWN: "It may or may not be done: ask dodona transactions outcome.",
    OUTPUT_LOST: "Done, but not all that it says: standard output is full, or closed.",
    INTERRUPTED: "Ctrl-C ended it.",
    PIPE_CLOSED: "Whoever read its output went away.",
    TERMINATED: "SIGTERM ended it.",
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
"""What the caller of an API does next about an error → what the caller of a command is told."""

_call_timeout_ms: ContextVar[int | None] = ContextVar("call_timeout_ms", default=None)
"""A variable of ours: `click.get_current_context` knows nothing of Typer's own copy of Click."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came. It ends things in order as Ctrl-C does."""


def code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a command that it ended."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


class Group(TyperGroup):
    """Commands whose errors are one sentence, and whose help is shown as it is written. Ctrl-C and
    a closed pipe need no words."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """As any group; what looks like markup in texts of help, such as [//path], is text."""
        return _escaped(super().get_command(ctx, cmd_name))

    def invoke(self, ctx: Any) -> Any:
        """As any group, but that no error of Dodona's gets out."""
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
    """The command, and all within it, with texts that are escaped once."""
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
    """Raises typer.Exit, with this code or the one of the error's action, for a DodonaError."""
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
    """Of an embedded database, if a folder is named, which may be made. A command that fails leaves
    no empty database where none was. SIGTERM ends what is done there in order. Raises
    InvalidRequest, Unavailable, FolderInUse."""
    import dodona

    folder = None if data_dir is None else database_in(data_dir, is_made=is_made)
    signal.signal(signal.SIGTERM, _terminate)
    with (
        _warnings_in_one_line(dodona.DodonaWarning),
        connected(url) if folder is None else _opened(folder) as db,
    ):
        yield db


def database_in(data_dir: Path, *, is_made: bool = False) -> Path:
    """The folder of an embedded database, which may be made. Raises InvalidRequest."""
    from dodona_wire.errors import InvalidRequest
    from dodona_wire.net.paths import place_of

    folder = place_of(data_dir)
    if not is_made and not folder.is_dir():
        raise InvalidRequest(f"there is no embedded database in {data_dir}")
    return folder


def connected(url: str) -> "dodona.Client":
    """A client of the cluster, in the time of the option `--timeout-ms`. Raises InvalidRequest,
    Unavailable."""
    import dodona

    bound_ms = call_timeout_ms()
    if bound_ms is None:
        return dodona.connect(url)
    return dodona.connect(url, timeout_ms=bound_ms, call_timeout_ms=bound_ms)


def bound_calls(timeout_ms: int | None) -> None:
    """What the option `--timeout-ms` says holds for the command that runs in this context."""
    _call_timeout_ms.set(timeout_ms)


def call_timeout_ms() -> int | None:
    """The option `--timeout-ms` of the command that runs."""
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
    """Whether it is known that nobody's data is in it."""
    import dodona

    try:
        return not db.list("//")
    except dodona.DodonaError:
        return False


def _unmake(data_dir: Path) -> None:
    """Remove a folder that this command has made and found empty, unless others use it by now."""
    from dodona_wire.errors import DodonaError
    from dodona_wire.net.folder import lock_folder

    with suppress(DodonaError), closing(lock_folder(data_dir)):
        shutil.rmtree(data_dir, ignore_errors=True)


@contextmanager
def _warnings_in_one_line(kind: type[Warning]) -> Iterator[None]:
    """As errors are shown: the place in the program says nothing to a user."""

    def show(message: Warning | str, *_place: Any, **_more: Any) -> None:
        warn(f"dodona: warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", kind)
        warnings.showwarning = show
        yield


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def say(line: str) -> None:
    """To standard output, at once."""
    print(line, flush=True)


def warn(line: str) -> None:
    """To standard error."""
    print(line, file=sys.stderr, flush=True)
