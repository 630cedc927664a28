"""Private server processes: free loopback ports, start, wait until ready, stop.

Owns only the processes that it started: it ends a process by its handle, never by name. Each server
has a session of its own. So Ctrl-C reaches only the benchmark, which then stops its servers in
order. If it can't any more, the kernel ends them.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from dodona_loadtest.harness.ending import bound
from dodona_loadtest.harness.errors import ContenderFailed

READY_S_MAX: Final = 30.0
STOP_S_MAX: Final = 15.0
POLL_S: Final = 0.05
LOG_TAIL_BYTES: Final = 2_000
CLOCK_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Return a loopback port on which no process listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def command_output(command: Sequence[str]) -> str:
    """Return the first line of a command's output."""
    output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    return output.splitlines()[0].strip()


class ServerProcess:
    """A child process that serves until it gets its signal to stop. Use as a context manager."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        is_ready: Callable[[], bool],
        *,
        user: int | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._is_ready = is_ready
        self._log = log
        self._stop_signal = stop_signal
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                bound(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(self._stop_signal)
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the process and its descendants as a crash would, and wait until it is gone."""
        for pid in families([self.pid]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _wait_until_ready(self) -> None:
        give_up = time.monotonic() + READY_S_MAX
        while time.monotonic() < give_up:
            if self._process.poll() is not None:
                raise ContenderFailed(f"it ended at once: {self._log_tail()}")
            if self._is_ready():
                return
            time.sleep(POLL_S)
        raise ContenderFailed(f"it was not ready in {READY_S_MAX:.0f} s: {self._log_tail()}")

    def _log_tail(self) -> str:
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()


def cpu_seconds(roots: Sequence[int]) -> float:
    """Return the processor time of these processes and all their descendants so far. Descendants
    that have ended count if their parents waited for them."""
    ticks = 0
    for pid in families(roots):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum([int(field) for field in fields[11:15]])
    return ticks / CLOCK_TICKS_PER_S


def private_memory_bytes(pid: int) -> int:
    """Return a process's private memory. Files that it maps do not count, because the kernel may
    take their memory back."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise ContenderFailed(f"the kernel doesn't tell the memory of process {pid}")


def command_of(pid: int) -> list[str]:
    """Return a process's command line; one empty word if the process is gone. A server that is a
    fork has written its own, in one piece."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return [""]
    return text.replace("\0", " ").split() or [""]


def families(roots: Sequence[int]) -> list[int]:
    """Return these processes and all their descendants, parents first."""
    found = list(roots)
    for pid in found:
        threads: list[Path] = []
        with suppress(OSError):
            threads += Path(f"/proc/{pid}/task").iterdir()
        for thread in threads:  # each thread has children of its own
            with suppress(OSError):
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found
