"""The audit: a file with one line of JSON for each call of an administrator.

Owns: the file, the thread that writes it, and the places in its queue. A call takes a place before
it does anything, so that what is done can be written down; with no place left, or while the file
can't be written, it is refused. Lines are in the order in which calls ended, and each is handed to
the system before the next. What can't be written is kept and tried again.

The file is only ever appended to, and made readable for its owner alone. It may be moved at any
time, or reopened by `AuditLog.reopen`: the next line goes to a file of the configured name. With a
bound it is moved before it grows over that, by itself: to the same name with `.1` behind it. The
file that had that name before is gone, so that both together never take more than twice the bound.
A file that can't be moved is one that can't be written.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.access.tokens import hide_tokens
from dodona_wire.errors import DodonaError, InvalidRequest, Overloaded, Unavailable

QUEUE_MAX: Final = 1_000
"""Calls that are under way or wait to be written down."""
WRITE_WAIT_S_MAX: Final = 1.0
"""For so long the answer to a call waits for its line, which is written later if need be."""
RETRY_S: Final = 0.5
TEXT_LENGTH_MAX: Final = 2_048
MODE: Final = 0o600

_log: Final = logging.getLogger(__name__)


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One call, in the order of the fields."""

    time: str
    """When it ended, in UTC."""
    request_id: str
    principal: str | None
    """Whose token it was; None if that was never known."""
    token_id: str | None
    operation: str
    path: str | None
    outcome: str
    """`ok`, the kind of an error (docs/reference/errors.md), `internal` if it was none of those,
    `refused` if only its status tells, or `cancelled`."""
    status: int | None
    """Of HTTP; None if nobody was there any more to be answered."""
    remote: str | None
    """The caller's address."""


class AuditLog:
    """Writes to a file from when it is made until it is closed. Belongs to one event loop."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        bytes_max: int | None = None,
        queue_max: int = QUEUE_MAX,
        unix_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """`bytes_max` is the bound of the file, if it has one. Raises InvalidRequest if the file
        can't be opened."""
        self._unix_us = unix_us
        self._queue_max = queue_max
        self._taken = 0
        """Places in the queue."""
        self._file = _File(Path(path), bytes_max)
        # One thread: what it is given is done in order.
        self._thread = ThreadPoolExecutor(1, "dodona-audit")

    def call(
        self,
        principal: Principal | None,
        *,
        request_id: str,
        operation: str,
        path: str | None = None,
        remote: str | None = None,
    ) -> "AuditedCall":
        """To be entered (`async with`) before anything is done or checked; leaving it writes the
        line. Entering raises Unavailable if the file can't be written, Overloaded if too many calls
        wait."""
        who = (None, None) if principal is None else (principal.name, principal.token_id)
        return AuditedCall(self, who, request_id, operation, path, remote)

    def take_place(self) -> None:
        """For one line, to be written by `write`. Raises Unavailable, Overloaded."""
        if self._file.problem is not None or self._file.closing.is_set():
            text = "the audit can't be written, and nothing is done that it would not know of"
            raise Unavailable(f"{text}: repeat the call when that has been mended")
        if self._taken >= self._queue_max:
            text = "too many calls wait to be written to the audit: wait, then repeat the call"
            raise Overloaded(text, waiting=self._taken)
        self._taken += 1

    def reopen(self) -> None:
        """From the next line on write to a file of the configured name, made if it is not there.
        Any thread and any signal handler may call this."""
        self._file.is_to_be_reopened = True

    async def close(self) -> None:
        """Write what waits, when no call is under way any more. What can't be written is lost, and
        the log says so."""
        self._file.closing.set()
        await asyncio.to_thread(self._thread.shutdown)
        self._file.close()

    async def write(self, line: AuditLine) -> None:
        """Write a line, in a place that was taken. Returns when the system has it, or late."""
        text = msgspec.json.encode(line) + b"\n"
        written = asyncio.get_running_loop().run_in_executor(self._thread, self._file.write, text)
        written.add_done_callback(self._give_back)
        await asyncio.wait([written], timeout=WRITE_WAIT_S_MAX)

    def _give_back(self, written: "asyncio.Future[None]") -> None:
        self._taken -= 1
        if not written.cancelled() and (error := written.exception()):
            _log.error("a line of the audit is lost: %s", error)

    def time(self) -> str:
        """Now, as a line has it."""
        return datetime.fromtimestamp(self._unix_us() / 1e6, UTC).isoformat(timespec="microseconds")


class AuditedCall:
    """A call, while it is under way. Set `status` to what is answered, if it is not 200; an
    exception that leaves the block says it by itself."""

    def __init__(
        self,
        log: AuditLog,
        who: tuple[str | None, str | None],
        request_id: str,
        operation: str,
        path: str | None,
        remote: str | None,
    ) -> None:
        self._log = log
        self._who = who
        self._about = (request_id, operation, path, remote)
        self.status = 200

    async def __aenter__(self) -> Self:
        self._log.take_place()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        outcome, status = _outcome_of(error, self.status)
        request_id, operation, path, remote = map(_clean, self._about)
        name, token_id = self._who
        line = AuditLine(
            time=self._log.time(),
            request_id=request_id or "",
            principal=_clean(name),
            token_id=token_id,
            operation=operation or "",
            path=path,
            outcome=outcome,
            status=status,
            remote=remote,
        )
        await self._log.write(line)


class UnauditedCall:
    """The same where there is no audit."""

    status = 200

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is written."""


def _outcome_of(error: BaseException | None, status: int) -> tuple[str, int | None]:
    if error is None:
        return ("ok" if status < 400 else "refused"), status
    if isinstance(error, DodonaError):
        return error.kind, error.status
    if isinstance(error, asyncio.CancelledError):
        return "cancelled", None
    return "internal", 500


def _clean(text: str | None) -> str | None:
    """What others wrote: bounded, encodable, and without what looks like a token."""
    if text is None:
        return None
    bounded = hide_tokens(text)[:TEXT_LENGTH_MAX]
    return bounded.encode("utf-8", "backslashreplace").decode()


class _File:
    """The file, as the thread sees it."""

    def __init__(self, path: Path, bytes_max: int | None = None) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._descriptor: int | None = None
        self._rest = b""
        """Of a line of which the file took only a part."""
        self.is_to_be_reopened = True
        self.problem: OSError | None = None
        self.closing = threading.Event()
        try:
            self._reopen()
        except OSError as error:
            self.close()
            text = f"the audit can't be written: {error.strerror}"
            raise InvalidRequest(text, path=str(path)) from error

    def write(self, line: bytes) -> None:
        """Returns once it is written. Raises OSError if that was not so before closing."""
        while True:
            try:
                self._append(line)
            except OSError as error:
                if self.problem is None:
                    _log.error("the audit can't be written, calls are refused: %s", error)
                self.problem = error
                if self.closing.wait(RETRY_S):
                    self.is_to_be_reopened = True  # which ends the line, if it was begun
                    raise
            else:
                if self.problem is not None:
                    _log.warning("the audit can be written again")
                self.problem = None
                return

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, line: bytes) -> None:
        if self.is_to_be_reopened or self._descriptor is None or self._was_moved(self._descriptor):
            self.is_to_be_reopened = True
            self._reopen()
        assert self._descriptor is not None
        if not self._rest and self._is_full(self._descriptor, len(line)):
            self._move_away()
        rest = self._rest or line
        while rest:
            rest = self._rest = rest[os.write(self._descriptor, rest) :]

    def _is_full(self, descriptor: int, length: int) -> bool:
        """Whether that many bytes more are too many. A line that is longer by itself goes into an
        empty file."""
        if self._bytes_max is None:
            return False
        size_bytes = os.fstat(descriptor).st_size
        return size_bytes > 0 and size_bytes + length > self._bytes_max

    def _move_away(self) -> None:
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self.is_to_be_reopened = True  # also if it can't be made anew now: it is tried again
        self._reopen()

    def _reopen(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        opened = os.open(self._path, flags, MODE)
        self.close()
        self._descriptor = opened
        self._rest = b""  # a line that was begun elsewhere is written here as a whole
        size = os.fstat(opened).st_size
        if size and os.pread(opened, 1, size - 1) != b"\n":
            os.write(opened, b"\n")  # whoever wrote here ended within a line
        self.is_to_be_reopened = False

    def _was_moved(self, descriptor: int) -> bool:
        ours = os.fstat(descriptor)
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)
