"""Standard input, output and error of a command.

Owns: what stands in for a stream that is closed, and what happens to output that finds no room.

A write to standard output is whole, or its failure is kept until the command has ended: nothing
that a command changes is left half done because of what it says. (Of an unbuffered interpreter,
`PYTHONUNBUFFERED`, Python's own stream writes a part and says nothing.) Standard error fails
nothing. Who interrupts a command waits for no reader: what finds no room then is dropped. A file
that is opened later never gets the number of a closed stream. Text that a stream's
encoding does not have is shown by escapes; rows and JSON are UTF-8.
"""

import io
import os
import select
import signal
import stat
import sys
import threading
from contextlib import suppress
from typing import Any, Final, Self, TextIO

INPUT: Final = 0
OUTPUT: Final = 1
ERROR: Final = 2


def prepare_streams() -> None:
    """Before a command opens anything. Once in a process."""
    # Each in a mode in which it can't be used: a closed stream is an error of its first use.
    _occupy(INPUT, os.O_WRONLY)
    _occupy(OUTPUT, os.O_RDONLY)
    _occupy(ERROR, os.O_WRONLY)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(INPUT, closefd=False)), "utf-8")
    sys.stdout = _text(Output(OUTPUT, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Error(ERROR, "wb", closefd=False), sys.stderr)


def _occupy(number: int, mode: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, mode)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    encoding = "utf-8" if before is None else before.encoding
    is_by_line = raw.fileno() == ERROR or raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=is_by_line
    )


class Output(io.FileIO):
    """Standard output without a buffer. A reader that has gone raises BrokenPipeError; after any
    other failure, which is kept, it takes everything and writes nothing."""

    failure: OSError | None = None
    waits = True
    """For whoever reads, when there is no room."""
    _is_dropped = False
    """What found no room, and so all that comes after it."""

    def write(self, content: Any) -> int:
        if self.failure is None and not self._is_dropped:
            try:
                return self._write_some(content)
            except BrokenPipeError:
                raise
            except OSError as error:
                self.failure = error
        return memoryview(content).nbytes

    def _write_some(self, content: Any) -> int:
        piece = memoryview(content).cast("B")
        if not stat.S_ISREG(os.fstat(self.fileno()).st_mode):
            if not self._has_room():
                self._is_dropped = True
                return piece.nbytes
            piece = piece[: select.PIPE_BUF]  # for which there is room: it does not block
        # Whoever shares the stream may have made it one that does not wait, and have filled it.
        while (count := super().write(piece)) is None:
            if not self._has_room():
                self._is_dropped = True
                return piece.nbytes
        return count

    def _has_room(self) -> bool:
        """Wait for it, if that is allowed. A signal that comes just before the system is asked to
        wait ends that, too: it is a byte in a pipe."""
        has_room = bool(select.select((), (self,), (), 0)[1])
        if has_room or not self.waits:
            return has_room
        if threading.current_thread() is not threading.main_thread():
            return bool(select.select((), (self,), ())[1])
        try:
            signals = _Signals()
        except OSError:  # there is no descriptor for it: a signal may wait for the reader
            return bool(select.select((), (self,), ())[1])
        with signals:
            while not select.select((signals,), (self,), ())[1]:
                signals.pass_on()  # by now its handler has run
        return True


class _Signals:
    """Can be read when a signal has come. An event loop that hears of signals hears of it, too."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._ours, self._theirs = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        self._before = signal.set_wakeup_fd(self._theirs, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._before)
        with suppress(BlockingIOError):
            self.pass_on()
        os.close(self._ours)
        os.close(self._theirs)

    def fileno(self) -> int:
        return self._ours

    def pass_on(self) -> None:
        numbers = os.read(self._ours, select.PIPE_BUF)
        if self._before != -1:
            with suppress(BlockingIOError):  # then it has others to hear of
                os.write(self._before, numbers)


class _Error(io.FileIO):
    """Standard error without a buffer."""

    def write(self, content: Any) -> int:
        try:
            count = super().write(content)
        except OSError:
            count = None
        return memoryview(content).nbytes if count is None else count


def output_failure() -> OSError | None:
    """Why standard output takes no more, once it does not."""
    raw = _output()
    return None if raw is None else raw.failure


def hurry_output() -> None:
    """From now on nobody waits for whoever reads: the command is to end."""
    raw = _output()
    if raw is not None:
        raw.waits = False


def _output() -> Output | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, Output) else None


def write_output(content: bytes) -> None:
    """All of it, at once. Raises BrokenPipeError."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.flush()


def drop_output() -> None:
    """What is still buffered has nowhere to go, and the interpreter must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def input_text() -> str:
    """All of standard input, without a byte order mark. Raises InvalidRequest if it can't be read
    or is no UTF-8."""
    from dodona_wire.errors import InvalidRequest

    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = f"standard input is no text in UTF-8: see byte {error.start}"
        raise InvalidRequest(text) from error
    except OSError as error:
        raise InvalidRequest(f"standard input can't be read: {error.strerror}") from error
