"""Guard a server: run a module as `python -m` would, and end with the supervisor.

Owns: the lifeline, and the fork server's loop. Standard input is a pipe whose other end only the
supervisor holds, and never writes to. When the pipe closes, the supervisor has ended (even by `kill
-9`), and so this process ends. It is not PR_SET_PDEATHSIG, because that fires when the starting
*thread* ends. The fork server has no thread, because a fork would lose it.
Must not import: anything of Dodona. The guarded module decides the imports.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from typing import Final

from setproctitle import setproctitle

LIFELINE: Final = 0
MESSAGE_BYTES_MAX: Final = 1 << 16


def _die_with_supervisor() -> None:
    while os.read(LIFELINE, 4096):
        pass
    # Kill immediately: servers are made to survive this, and an orphan would hold ports and data.
    os.kill(os.getpid(), signal.SIGKILL)


class _ForkServer:
    """Forks processes for `fork_server`, and reports the end of each to its supervisor."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._selector = selectors.DefaultSelector()
        self._selector.register(LIFELINE, selectors.EVENT_READ)
        self._selector.register(link, selectors.EVENT_READ)

    def serve(self) -> list[str]:
        """Serve forks. Return, in a fork, the module to run with its arguments. Raises SystemExit
        when the supervisor has ended."""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._bury(key.fd, *key.data)
                elif key.fd == LIFELINE:
                    raise SystemExit(0)
                elif words := self._fork():
                    return words

    def _bury(self, pidfd: int, pid: int, number: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._link.send(json.dumps([number, status]).encode())

    def _fork(self) -> list[str] | None:
        """Fork once. Return, in the fork, the module to run with its arguments."""
        said, fds, *_ = socket.recv_fds(self._link, MESSAGE_BYTES_MAX, 2, socket.MSG_CMSG_CLOEXEC)
        if not said:
            raise SystemExit(0)
        message: tuple[int, list[str]] = json.loads(said)
        number, words = message
        log_fd, fd = fds
        with socket.socket(fileno=fd) as supervisor:
            try:
                pid = os.fork()
            except OSError:  # the supervisor sees the link close, and starts the server directly
                pid = -1
            if not pid:
                self._become(log_fd, supervisor)
                return words
        os.close(log_fd)
        if pid > 0:
            pidfd = os.pidfd_open(pid)
            self._selector.register(pidfd, selectors.EVENT_READ, (pid, number))
        return None

    def _become(self, log_fd: int, supervisor: socket.socket) -> None:
        """Make the fork an independent process, once the supervisor knows it."""
        os.setsid()
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
        self._selector.close()
        self._link.close()
        for output in (1, 2):
            os.dup2(log_fd, output)
        os.close(log_fd)
        pidfd = os.pidfd_open(os.getpid())
        socket.send_fds(supervisor, [str(os.getpid()).encode()], [pidfd])
        os.close(pidfd)
        if not supervisor.recv(1):
            raise SystemExit(0)


def _serve_forks(fd: int, modules: list[str]) -> list[str]:
    """Import modules, then serve forks. Return, in a fork, the module to run with its arguments."""
    # Servers multiply no matrices, and a fork would lose the threads of NumPy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # otherwise the first collection of each fork copies all objects
    words = _ForkServer(socket.socket(fileno=fd)).serve()
    setproctitle(" ".join(("python -m", *words)))
    return words


def main() -> None:
    """Run `python -m dodona_local.child MODULE ARGUMENT...`, or with `--fork FD MODULE...` serve
    forks (see `fork_server`)."""
    words = sys.argv[1:]
    if words[0] == "--fork":
        words = _serve_forks(int(words[1]), words[2:])
    threading.Thread(target=_die_with_supervisor, name="lifeline", daemon=True).start()
    module, *arguments = words
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
