"""A child process of the benchmark: its own heap, its own event loop, its own cores.

Owns: the process and the pipe to it. `client_process` and `worker_process` own the messages. Each
wait for an answer has a limit. An answer that is a string is the text of an error.
"""

import gc
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final, Self

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.pinning import pin_this_process

OPEN_S_MAX: Final = 60.0
CLOSE_S_MAX: Final = 15.0

Serve = Callable[..., None]
"""The function that the child runs, with `arguments` and its end of the pipe. It says that it is
open. Then it answers what it receives until that raises EOFError. The child finds it by name."""


class Child:
    """A started process that has said that it is open. Use as a context manager."""

    def __init__(self, serve: Serve, arguments: tuple[Any, ...], cores: frozenset[int]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child_pipe = context.Pipe()
        self._process = context.Process(
            target=_run, args=(serve, arguments, cores, child_pipe), daemon=True
        )
        self._process.start()
        child_pipe.close()

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process.pid is not None, "it is started"
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self._receive(OPEN_S_MAX)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(CLOSE_S_MAX)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, question: object, wait_s_max: float) -> Any:
        """Ask the child, and return its answer. Raises ContenderFailed with the child's error."""
        try:
            self._pipe.send(question)
        except OSError as error:
            raise ContenderFailed("the client process ended") from error
        return self._receive(wait_s_max)

    def _receive(self, wait_s_max: float) -> Any:
        if not self._pipe.poll(wait_s_max):
            raise ContenderFailed(f"the client process was silent for {wait_s_max:.0f} s")
        try:
            answer = self._pipe.recv()
        except EOFError as error:
            raise ContenderFailed("the client process ended") from error
        if isinstance(answer, str):
            raise ContenderFailed(answer)
        return answer


def next_question(pipe: Connection) -> Any:
    """Return the next question, in the child. Raises EOFError when the parent is done."""
    question = pipe.recv()
    gc.collect()  # no measurement pays for the garbage of the one before
    return question


def describe(error: BaseException) -> str:
    """Return the innermost error as one line. Its stack goes to stderr, for debugging."""
    traceback.print_exception(error)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _run(serve: Serve, arguments: tuple[Any, ...], cores: frozenset[int], pipe: Connection) -> None:
    pin_this_process(cores)
    try:
        serve(*arguments, pipe)
    except (EOFError, KeyboardInterrupt):
        return
    except Exception as error:  # noqa: BLE001 (whatever it is, the parent reports it)
        pipe.send(describe(error))
