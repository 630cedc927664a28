"""What all commands run in: the client they speak by, one sentence for an error, the exit code.

Owns: what is said where, and the table of exit codes. A command raises `DodonaError`; the
application, which is a `Group`, says it on standard error and leaves with the code.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    import dodona

FAILED: Final = 1
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
CODES_BY_ACTION: Final = {
    "fix": FAILED,
    "stop": FAILED,
    "rerun": 3,
    "begin_again": 3,
    "repeat": 3,
    "ask": 4,
}
"""An error's action → the exit code: what to do next, in a number."""


class Group(TyperGroup):
    """Commands whose errors are one sentence. Ctrl-C and a closed pipe need no words."""

    def invoke(self, ctx: Any) -> Any:
        """As any group, but that no error of Dodona's gets out."""
        try:
            with errors_in_one_sentence():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # What is still buffered has nowhere to go, and the interpreter must not complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED) from None


@contextmanager
def errors_in_one_sentence(code: int | None = None) -> Iterator[None]:
    """Raises typer.Exit, with this code or the one of the error's action, for a DodonaError."""
    try:
        yield
    except Exception as error:
        from dodona.errors import DodonaError

        if not isinstance(error, DodonaError):
            raise
        warn(f"dodona: {error}")
        raise typer.Exit(CODES_BY_ACTION[error.action] if code is None else code) from None


@contextmanager
def client_of(
    url: str, data_dir: Path | None, *, is_made: bool = False
) -> Iterator["dodona.Client"]:
    """Of an embedded database, if a folder is named, which may be made. SIGTERM ends what is done
    there in order. Raises InvalidRequest, Unavailable, FolderInUse."""
    import dodona

    if data_dir is not None and not is_made and not data_dir.is_dir():
        raise dodona.InvalidRequest(f"there is no embedded database in {data_dir}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with dodona.connect(url) if data_dir is None else dodona.open(data_dir) as db:
        yield db


def say(line: str) -> None:
    """To standard output, at once."""
    print(line, flush=True)


def warn(line: str) -> None:
    """To standard error."""
    print(line, file=sys.stderr, flush=True)
