"""Write the audit: a file with one line of JSON for each call of an administrator.

Owns: the file, the thread that writes it, and the places in its queue. A call takes a place before
it does anything, so that the audit can always record the call. If no place is left, or while the
file can't be written, the call is refused. Lines are in the order in which calls ended. Each line
is handed to the operating system before the next line. A line that can't be written is kept and
tried again.

The file is only ever appended to. A file that
the audit makes can be read only by its owner. An operator may move the file at
any time, or call `AuditLog.reopen`: the next line then goes to a file of the configured name. If
the file has a bound, the audit itself moves the file before it grows over the bound. The file moves
to the same name with `.1` behind it, and replaces the file that had that name before. So both files
together never take more than twice the bound. If the file can't be moved, the audit counts as not
writable. Links to the file stay. A device, a pipe, and an output of this process are never moved:
what reads them bounds them.
"""

import asyncio
import logging
import os
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.access.tokens import hide_tokens
from dodona_wire.errors import DodonaError, InvalidRequest, Overloaded, Unavailable

QUEUE_MAX: Final = 1_000
"""The number of calls that are under way or wait for their line, at most."""
WRITE_WAIT_S_MAX: Final = 1.0
"""The longest time that the answer to a call waits for its line. A late line is written after the
answer."""
RETRY_S: Final = 0.5
TEXT_LENGTH_MAX: Final = 2_048
MODE: Final = 0o600
OUTPUTS: Final = (1, 2)

_log: Final = logging.getLogger(__name__)


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One call: a line of the audit, with its fields in this order."""

    time: str
    """The time at which the call ended, in UTC."""
    request_id: str
    principal: str | None
    """The name of the caller's token; None if the token was never known."""
    token_id: str | None
    operation: str
    path: str | None
    outcome: str
    """`ok`, the kind of an error (docs/reference/errors.md), `internal` for another exception,
    `refused` if only the status shows an error, or `cancelled`."""
    status: int | None
    """The HTTP status; None if the caller left before the answer."""
    remote: str | None
    """The caller's address."""


class AuditLog:
    """The audit of one gateway: it keeps its file open until `close`. Belongs to one event loop."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        bytes_max: int | None = None,
        queue_max: int = QUEUE_MAX,
        unix_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Open the file; `bytes_max` is the bound of the file, None for no bound. Raises
        InvalidRequest if the file can't be opened."""
        self._unix_us = unix_us
        self._queue_max = queue_max
        self._taken = 0
        """The number of places in the queue that are taken."""
        self._file = _File(Path(path), bytes_max)
        # The one thread writes its lines in order.
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
        """Return a context for one call, to be entered (`async with`) before anything is done or
        checked. Leaving the context writes the line. Entering raises Unavailable if the file can't
        be written, and Overloaded if too many calls wait."""
        who = (None, None) if principal is None else (principal.name, principal.token_id)
        return AuditedCall(self, who, request_id, operation, path, remote)

    def take_place(self) -> None:
        """Take a place for one line, which `write` then writes. Raises Unavailable, Overloaded."""
        if self._file.problem is not None or self._file.closing.is_set():
            text = "The audit log can't be written, so the call is refused."
            raise Unavailable(f"{text} Repeat the call when the file can be written again.")
        if self._taken >= self._queue_max:
            text = "Too many calls wait for the audit log. Wait, then repeat the call."
            raise Overloaded(text, waiting=self._taken)
        self._taken += 1

    def reopen(self) -> None:
        """Reopen the file before the next line, under the configured name. The file is made if it
        is missing. Any thread and any signal handler may call this."""
        self._file.is_to_be_reopened = True

    async def close(self) -> None:
        """Write the lines that wait, and close the file. Call this when no call is under way. A
        line that can't be written is lost, and the log says so."""
        self._file.closing.set()
        await asyncio.to_thread(self._thread.shutdown)
        self._file.close()

    async def write(self, line: AuditLine) -> None:
        """Write a line, in a place that was taken. Returns when the operating system has the line,
        or after `WRITE_WAIT_S_MAX`."""
        text = msgspec.json.encode(line) + b"\n"
        written = asyncio.get_running_loop().run_in_executor(self._thread, self._file.write, text)
        written.add_done_callback(self._give_back)
        await asyncio.wait([written], timeout=WRITE_WAIT_S_MAX)

    def _give_back(self, written: "asyncio.Future[None]") -> None:
        self._taken -= 1
        if not written.cancelled() and (error := written.exception()):
            _log.error("a line of the audit log is lost: %s", error)

    def time(self) -> str:
        """Return the time of now, as a line has it."""
        return datetime.fromtimestamp(self._unix_us() / 1e6, UTC).isoformat(timespec="microseconds")


class AuditedCall:
    """One call that is under way. Set `status` if the answer's status is not 200. An exception that
    leaves the block sets the outcome by itself."""

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
    """The context of a call if the gateway has no audit."""

    status = 200

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Write nothing."""


def _outcome_of(error: BaseException | None, status: int) -> tuple[str, int | None]:
    if error is None:
        return ("ok" if status < 400 else "refused"), status
    if isinstance(error, DodonaError):
        return error.kind, error.status
    if isinstance(error, asyncio.CancelledError):
        return "cancelled", None
    return "internal", 500


def _clean(text: str | None) -> str | None:
    """Return a caller's text as a line may have it: bounded, encodable, and without any text that
    looks like a token."""
    if text is None:
        return None
    bounded = hide_tokens(text)[:TEXT_LENGTH_MAX]
    return bounded.encode("utf-8", "backslashreplace").decode()


class _File:
    """The file, which only the thread of the audit uses."""

    def __init__(self, path: Path, bytes_max: int | None = None) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._descriptor: int | None = None
        self._is_movable = False
        self._rest = b""
        """The rest of a line of which the file took only a part."""
        self.is_to_be_reopened = True
        self.problem: OSError | None = None
        self.closing = threading.Event()
        try:
            self._reopen()
        except OSError as error:
            self.close()
            text = f"The audit log can't be written: {error.strerror}. Check the path."
            raise InvalidRequest(text, path=str(path)) from error

    def write(self, line: bytes) -> None:
        """Write a line, and return once it is written. Raises OSError if the audit was closed
        before that."""
        while True:
            try:
                self._append(line)
            except OSError as error:
                if self.problem is None:
                    _log.error("the audit log can't be written, calls are refused: %s", error)
                self.problem = error
                if self.closing.wait(RETRY_S):
                    self.is_to_be_reopened = True  # a partial line then gets its end
                    raise
            else:
                if self.problem is not None:
                    _log.warning("the audit log can be written again")
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
        """Return whether the file has no room for `length` more bytes. A line that is longer than
        the bound goes into an empty file."""
        if self._bytes_max is None or not self._is_movable:
            return False
        size_bytes = os.fstat(descriptor).st_size
        return size_bytes > 0 and size_bytes + length > self._bytes_max

    def _move_away(self) -> None:
        place = Path(os.path.realpath(self._path))  # a link stays, and leads to the new file
        place.replace(place.with_name(f"{place.name}.1"))
        self.is_to_be_reopened = True  # if `_reopen` fails now, the next line tries again
        self._reopen()

    def _reopen(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        opened = os.open(self._path, flags, MODE)
        self.close()
        self._descriptor = opened
        self._rest = b""  # the new file gets a begun line as a whole
        found = os.fstat(opened)
        self._is_movable = stat.S_ISREG(found.st_mode) and not _is_own_output(found)
        size = found.st_size
        if size and os.pread(opened, 1, size - 1) != b"\n":
            os.write(opened, b"\n")  # the last writer ended within a line
        self.is_to_be_reopened = False

    def _was_moved(self, descriptor: int) -> bool:
        ours = os.fstat(descriptor)
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)


def _is_own_output(found: os.stat_result) -> bool:
    """Return whether this is the standard output or error output of this process."""
    for descriptor in OUTPUTS:
        with suppress(OSError):  # the descriptor is closed
            if os.path.samestat(found, os.fstat(descriptor)):
                return True
    return False
