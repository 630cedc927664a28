"""Tracing a child by ptrace: the few requests that a recorder of system calls needs.

Owns: the kernel's numbers and layouts, and everything that is particular to one processor. All
that is asked of a thread raises ProcessLookupError if it was killed meanwhile. Linux
5.3 or newer (PTRACE_GET_SYSCALL_INFO) on x86_64: elsewhere `check_machine` says so. The package
for it, python-ptrace, is under the GPL.
"""

import ctypes
import os
import platform
import signal
import struct
from typing import Final, NamedTuple

WALL: Final = 0x40000000
"""For waitpid: threads too."""

_TRACEME: Final = 0
_POKEUSER: Final = 6
_SYSCALL: Final = 24
_SETOPTIONS: Final = 0x4200
_GET_SYSCALL_INFO: Final = 0x420E

_OPTIONS: Final = (
    0x01  # TRACESYSGOOD: stops at system calls can be told from SIGTRAP
    | 0x02  # TRACEFORK
    | 0x04  # TRACEVFORK
    | 0x08  # TRACECLONE: new threads are traced from their first instruction
    | 0x100000  # EXITKILL: nobody runs on untraced
)
_FORK_EVENTS: Final = (1, 2)
_SYSCALL_STOP: Final = signal.SIGTRAP | 0x80
_INFO: Final = struct.Struct("=B3xIQQ")
_ENTRY: Final = struct.Struct("=7Q")
_EXIT: Final = struct.Struct("=qB")
_INFO_BYTES: Final = 88
_ENTRY_OP: Final = 1
_EXIT_OP: Final = 2

# Where x86_64's registers are in `struct user`.
_NUMBER_AT: Final = 15 * 8
_RESULT_AT: Final = 10 * 8
_THIRD_ARGUMENT_AT: Final = 12 * 8

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class Untraceable(Exception):
    """This can't be traced, here or at all: says what, and what to do."""


class Entry(NamedTuple):
    """A thread is about to enter the kernel."""

    number: int
    arguments: tuple[int, ...]


class Exit(NamedTuple):
    """A thread comes back from the kernel; a negative result is an error's number."""

    result: int


class Forked(NamedTuple):
    """The process makes another one."""


class Signalled(NamedTuple):
    """A signal is on its way to the thread."""

    signal: int


Stop = Entry | Exit | Forked | Signalled


def check_machine() -> None:
    """Raises Untraceable where the numbers of this module are not those of the machine."""
    machine = platform.machine()
    if machine != "x86_64" or platform.system() != "Linux":
        raise Untraceable(
            f"system calls are recorded on Linux on x86_64 only, and this is {platform.system()}"
            f" on {machine}: run these tests there"
        )


def ask_to_be_traced() -> None:
    """In the child: stop, and go on under the parent's eyes. Raises OSError."""
    _ptrace(_TRACEME, 0)
    os.kill(os.getpid(), signal.SIGSTOP)


def begin(pid: int) -> None:
    """In the parent, once the child has stopped for the first time."""
    _ptrace(_SETOPTIONS, pid, 0, _OPTIONS)


def resume(thread: int, with_signal: int = 0) -> None:
    """Let a stopped thread run to its next system call, or to the end of this one."""
    _ptrace(_SYSCALL, thread, 0, with_signal)


def stop_of(thread: int, status: int) -> Stop:
    """Why a thread has stopped, by the status that waitpid gave."""
    if status >> 16:
        return Forked() if status >> 16 in _FORK_EVENTS else Signalled(0)
    stopped_by = os.WSTOPSIG(status)
    if stopped_by != _SYSCALL_STOP:
        return Signalled(stopped_by)
    info = ctypes.create_string_buffer(_INFO_BYTES)
    try:
        _ptrace(_GET_SYSCALL_INFO, thread, _INFO_BYTES, ctypes.addressof(info))
    except ProcessLookupError:
        raise
    except OSError as error:
        raise Untraceable(f"this kernel does not say what a call is: {error}; 5.3 does") from error
    kind = _INFO.unpack_from(info)[0]
    if kind == _ENTRY_OP:
        number, *arguments = _ENTRY.unpack_from(info, _INFO.size)
        return Entry(number, tuple(arguments))
    assert kind == _EXIT_OP, kind
    return Exit(_EXIT.unpack_from(info, _INFO.size)[0])


def skip_call(thread: int) -> None:
    """At an entry: the kernel will do nothing. What it then answers is for `set_result`."""
    _ptrace(_POKEUSER, thread, _NUMBER_AT, (1 << 64) - 1)


def set_third_argument(thread: int, argument: int) -> None:
    """At an entry: what the kernel will take it to be."""
    _ptrace(_POKEUSER, thread, _THIRD_ARGUMENT_AT, argument)


def set_result(thread: int, result: int) -> None:
    """At an exit: what the thread will be told."""
    _ptrace(_POKEUSER, thread, _RESULT_AT, result & ((1 << 64) - 1))


def _ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, thread, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
