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
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    import dodona

FAILED: Final = 1
RUN_AGAIN: Final = 3
NOT_KNOWN: Final = 4
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
TERMINATED: Final = 143
EXIT_CODES: Final = {
    0: "Done.",
    FAILED: "Not done, or the answer is no. Do what the message says.",
    2: "Not done: the command line is wrong.",
    RUN_AGAIN: "Not done, or not to the end, and nothing is wrong with it: run it again.",
    NOT_KNOWN: "It may or may not be done: ask dodona transactions outcome.",
    INTERRUPTED: "Ctrl-C ended it.",
    PIPE_CLOSED: "Whoever read its output went away.",
    TERMINATED: "SIGTERM ended it.",
}
CODES_BY_ACTION: Final = {
    "fix": FAILED,
    "stop": FAILED,
    "rerun": RUN_AGAIN,
    "begin_again": RUN_AGAIN,
    "repeat": RUN_AGAIN,
    "ask": NOT_KNOWN,
}
"""What the caller of an API does next about an error → what the caller of a command is told."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came. It ends things in order as Ctrl-C does."""


class Group(TyperGroup):
    """Commands whose errors are one sentence. Ctrl-C and a closed pipe need no words."""

    def invoke(self, ctx: Any) -> Any:
        """As any group, but that no error of Dodona's gets out."""
        try:
            with errors_in_one_sentence():
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
        except KeyboardInterrupt as error:
            if str(error):
                warn(f"dodona: {error}")
            code = TERMINATED if isinstance(error, Terminated) else INTERRUPTED
            raise typer.Exit(code) from None
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
    signal.signal(signal.SIGTERM, _terminate)
    with dodona.connect(url) if data_dir is None else dodona.open(data_dir) as db:
        yield db


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def say(line: str) -> None:
    """To standard output, at once."""
    print(line, flush=True)


def warn(line: str) -> None:
    """To standard error."""
    print(line, file=sys.stderr, flush=True)
