"""Prepare standard input, output and error for a command.

Owns: the replacement of a closed stream, and the end of output that finds no room.

A write to standard output is complete, or its failure is kept until the command has ended. So no
change of a command is left half done because of its output. (Python's own unbuffered stream, with
`PYTHONUNBUFFERED`, writes a part and reports nothing.) A failure of standard error has no effect.
After an interrupt a command waits for no reader: output without room is dropped. A file that is
opened later never gets the number of a closed stream. Characters outside a stream's encoding are
escaped; rows and JSON are UTF-8.
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
    """Prepare the streams, before a command opens anything. Call this once in a process."""
    # A closed stream gets a mode that makes its first use fail.
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
    """Standard output without a buffer. If its reader has left, a write raises BrokenPipeError.
    After any other failure, which is kept, it takes all content and writes nothing."""

    failure: OSError | None = None
    waits = True
    """Whether a write waits for the reader if there is no room."""
    _is_dropped = False
    """Whether output found no room: then all later output is dropped too."""

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
            # There is room for this much, so the write does not block.
            piece = piece[: select.PIPE_BUF]
        # Another process that shares the stream may have made it non-blocking, and filled it.
        while (count := super().write(piece)) is None:
            if not self._has_room():
                self._is_dropped = True
                return piece.nbytes
        return count

    def _has_room(self) -> bool:
        """Return whether there is room. Wait for room, if that is allowed. A signal just before the
        wait ends the wait too, because it is a byte in a pipe."""
        has_room = bool(select.select((), (self,), (), 0)[1])
        if has_room or not self.waits:
            return has_room
        if threading.current_thread() is not threading.main_thread():
            return bool(select.select((), (self,), ())[1])
        try:
            signals = _Signals()
        except OSError:  # no descriptor is free, so a signal may wait for the reader
            return bool(select.select((), (self,), ())[1])
        with signals:
            while not select.select((signals,), (self,), ())[1]:
                signals.pass_on()  # by now the signal's handler has run
        return True


class _Signals:
    """A file that is readable when a signal has come. An event loop that gets signals still gets
    them."""

    def __init__(self) -> None:
        """Make the pipe. Raises OSError."""
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
            with suppress(BlockingIOError):  # the pipe is full of other signals
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
    """Return why standard output takes no more, or None."""
    raw = _output()
    return None if raw is None else raw.failure


def hurry_output() -> None:
    """Stop waiting for the reader of standard output, because the command must end."""
    raw = _output()
    if raw is not None:
        raw.waits = False


def _output() -> Output | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, Output) else None


def write_output(content: bytes) -> None:
    """Write the whole content now. Raises BrokenPipeError."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.flush()


def drop_output() -> None:
    """Drop the buffered output, so that the interpreter reports no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def input_text() -> str:
    """Return the text of standard input, without a byte order mark. Raises InvalidRequest if it
    can't be read or is not UTF-8."""
    from dodona_wire.errors import InvalidRequest

    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = f"standard input is not UTF-8 text: see byte {error.start}"
        raise InvalidRequest(text) from error
    except OSError as error:
        raise InvalidRequest(f"standard input can't be read: {error.strerror}") from error
