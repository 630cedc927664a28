"""Runs a program in a child of this process, records what it does to a folder, and lets it fail.

Owns: the loop over the stops of all its threads. Invariants: of the calls that matter one is under
way at a time, so that their order is no guess, and none when the program ends by itself, since the
kernel would do it and nobody be told; no thread runs untraced; the program has ended when
`run_traced` returns. Not for a process with threads: the child is forked.
"""

import errno
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Protocol

from disk_faults import ptrace
from disk_faults.operations import (
    Ending,
    Operation,
    Recording,
    Synced,
    SyncFailed,
    Written,
)
from disk_faults.ptrace import Entry, Exit, Forked, Signalled, Untraceable
from disk_faults.syscalls import EXIT_GROUP, IO_URING_SETUP, Call, Watch, identify

PROGRAM_SECONDS_MAX: Final = 60
"""As long as programs that tests make should never take."""
STATUS_RAISED: Final = 1
STATUS_UNTRACED: Final = 97

Mark = Callable[[bytes], None]
Program = Callable[[Mark], None]
"""What runs in the child. It is given a way to tell its observer something."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call is answered with, in place of what the kernel says: an error, or death. With
    `is_carried_out` the kernel does it all the same: a write that came as far as its memory."""

    error: int
    is_carried_out: bool = False

    def __str__(self) -> str:
        name = {KILL: "death", SHORT: "half a write"}.get(self) or errno.errorcode[self.error]
        return f"{name}, though done," if self.is_carried_out else name


KILL: Final = Failure(0)
"""The process is killed in place of the call."""
SHORT: Final = Failure(-1)
"""A write comes to half of what was asked for, as on a disk that becomes full; no error."""


class Saboteur(Protocol):
    """Decides which calls fail."""

    def decide(self, call: Call) -> Failure | None: ...


class Nobody:
    """All calls are the kernel's."""

    def decide(self, call: Call) -> None:
        return None


@dataclass(slots=True)
class _Thread:
    """Where a traced thread is: `call` and `failure` are of the call that it is in, `entry` is of
    one that it has to wait with."""

    call: Call | None = None
    failure: Failure | None = None
    entry: Entry | None = None


def run_traced(
    program: Program,
    folder: Path,
    recording: Recording | None = None,
    saboteur: Saboteur | None = None,
    seconds_max: int = PROGRAM_SECONDS_MAX,
) -> Recording:
    """Run the program to its end. → the recording, with all that it did to the folder; one that is
    given goes on. After `seconds_max` it is killed, with 0 never. Raises Untraceable."""
    ptrace.check_machine()
    if threading.active_count() != 1:  # those of libraries wait, and know of forks
        raise Untraceable("only a process without threads can fork the program to be traced")
    recording = Recording() if recording is None else recording
    identify(folder, recording)
    mark_fd = os.open(os.devnull, os.O_WRONLY)
    with tempfile.TemporaryFile() as words:
        try:
            pid = os.fork()
            if pid == 0:
                _be_program(program, mark_fd, words.fileno(), seconds_max)
            status = _Tracer(pid, folder, mark_fd, recording, saboteur or Nobody()).run()
        finally:
            os.close(mark_fd)
        words.seek(0)
        said = words.read().decode(errors="replace")
    recording.endings.append(Ending(os.waitstatus_to_exitcode(status), said))
    return recording


def _be_program(program: Program, mark_fd: int, words_fd: int, seconds_max: int) -> NoReturn:
    """The child's whole life."""
    status = STATUS_RAISED
    try:
        os.dup2(words_fd, 1)
        os.dup2(words_fd, 2)
        sys.stdout = sys.stderr = os.fdopen(words_fd, "w", buffering=1, closefd=False)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds_max)
        try:
            ptrace.ask_to_be_traced()
        except OSError as error:
            print(f"ptrace: {error.strerror}")
            os._exit(STATUS_UNTRACED)
        program(lambda text: _tell(mark_fd, text))
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else STATUS_RAISED
    except BaseException:  # noqa: BLE001 - nothing may come back into the parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def _tell(mark_fd: int, text: bytes) -> None:
    os.write(mark_fd, text)


class _Tracer:
    """One child from its first stop to its end."""

    def __init__(
        self, pid: int, folder: Path, mark_fd: int, recording: Recording, saboteur: Saboteur
    ) -> None:
        self._pid = pid
        self._recording = recording
        self._saboteur = saboteur
        self._threads: dict[int, _Thread] = {}
        self._busy: int | None = None
        self._is_ending = False
        self._held: deque[int] = deque()
        self._folder = folder
        self._mark_fd = mark_fd

    def run(self) -> int:
        """→ the status that waitpid gave for its end."""
        self._wait_for_child()
        watch = self._watch = Watch(self._pid, self._folder, self._mark_fd, self._recording)
        try:
            ptrace.begin(self._pid)
            self._threads[self._pid] = _Thread()
            ptrace.resume(self._pid)
            while True:
                thread, status = os.waitpid(-1, ptrace.WALL)
                if os.WIFSTOPPED(status):
                    # Killed in the middle of it: its end will be told.
                    with suppress(ProcessLookupError, FileNotFoundError):
                        self._handle(thread, ptrace.stop_of(thread, status))
                elif thread == self._pid:
                    return status
                else:
                    self._forget(thread)
        except BaseException:
            self._kill()
            raise
        finally:
            watch.close()

    def _wait_for_child(self) -> None:
        _, status = os.waitpid(self._pid, ptrace.WALL)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == STATUS_UNTRACED:
            raise Untraceable(
                "this environment does not let a process trace its own child: allow ptrace"
                " (a container's seccomp profile, or kernel.yama.ptrace_scope=3, forbids it)"
            )
        assert os.WIFSTOPPED(status), f"the child ended before it began: {status}"

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, ptrace.WALL)[0] != self._pid:
                pass

    def _handle(self, thread: int, stop: ptrace.Stop) -> None:
        is_new = thread not in self._threads
        known = self._threads.setdefault(thread, _Thread())
        match stop:
            case Entry():
                self._enter(thread, known, stop)
            case Exit(result):
                self._leave(thread, known, result)
            case Forked():
                raise Untraceable("the program starts another process, which nobody would watch")
            case Signalled(number):
                is_first_stop = is_new and number == signal.SIGSTOP
                ptrace.resume(thread, 0 if is_first_stop else number)

    def _enter(self, thread: int, known: _Thread, entry: Entry) -> None:
        if entry.number == IO_URING_SETUP:
            known.failure = Failure(errno.ENOSYS)
            ptrace.skip_call(thread)
        elif entry.number == EXIT_GROUP:
            if self._busy is not None:
                self._hold(thread, known, entry)
                return
            self._is_ending = True
        elif (call := self._watch.understand(entry)) is not None:
            if call.kind == "mark":  # never waits: it may be said too early, and is to be seen so
                self._recording.operations += call.finish(0)
            elif self._busy is not None or self._is_ending:
                self._hold(thread, known, entry)
                return
            else:
                self._begin(thread, known, call)
        ptrace.resume(thread)

    def _hold(self, thread: int, known: _Thread, entry: Entry) -> None:
        """Until the call that is under way has come back; for ever once the program ends."""
        known.entry = entry
        self._held.append(thread)

    def _begin(self, thread: int, known: _Thread, call: Call) -> None:
        self._busy, known.call = thread, call
        known.failure = self._saboteur.decide(call)
        if known.failure == KILL:
            os.kill(self._pid, signal.SIGKILL)
        elif known.failure == SHORT:
            known.failure = None
            if call.count_bytes is not None:
                ptrace.set_third_argument(thread, call.count_bytes // 2)
        elif known.failure is not None and not known.failure.is_carried_out:
            ptrace.skip_call(thread)

    def _leave(self, thread: int, known: _Thread, result: int) -> None:
        call, failure = known.call, known.failure
        known.call = known.failure = None
        if failure is not None:
            ptrace.set_result(thread, -failure.error)
        if call is not None:
            self._recording.operations += _meaning(call, failure, result)
        ptrace.resume(thread)
        if self._busy == thread:
            self._go_on()

    def _forget(self, thread: int) -> None:
        self._threads.pop(thread, None)
        if self._busy == thread:
            self._go_on()

    def _go_on(self) -> None:
        """Whoever waited longest is next."""
        self._busy = None
        while self._held and not self._is_ending and self._busy is None:
            thread = self._held.popleft()
            known = self._threads.get(thread)
            if known is not None and known.entry is not None:
                entry, known.entry = known.entry, None
                self._enter(thread, known, entry)


def _meaning(call: Call, failure: Failure | None, result: int) -> list[Operation]:
    """What a call that came back did to the disk."""
    if failure is None:
        done = call.finish(result) if result >= 0 else []
        is_failed = result < 0
    else:
        done = call.finish(result) if failure.is_carried_out and result >= 0 else []
        is_failed = True
    if not is_failed:
        return done
    meaning: list[Operation] = []
    for it in done or (call.finish(0) if call.kind in ("sync", "folder sync") else []):
        match it:
            case Synced(number):
                meaning.append(SyncFailed(number))
            case Written(file, offset, data, is_synced=True):
                meaning += [Written(file, offset, data), SyncFailed(file)]
            case _:
                meaning.append(it)
    return meaning
