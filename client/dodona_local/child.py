"""The guard around a server: runs a module as `python -m` would, and dies with its supervisor.

Owns: the lifeline. Standard input is a pipe whose other end only the supervisor holds and nobody
writes to; when it closes, the supervisor is gone (even by `kill -9`), and so is this process. A
pipe and not PR_SET_PDEATHSIG, because that one fires when the starting *thread* ends.
Must not import anything of Dodona: what it guards decides that.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading

LIFELINE: int = 0
MESSAGE_BYTES_MAX: int = 1 << 16


def _die_with_supervisor() -> None:
    while os.read(LIFELINE, 4096):
        pass
    # At once and unconditionally: a server is made to survive this, an orphan holds ports and data.
    os.kill(os.getpid(), signal.SIGKILL)


def _stand_by(fd: int, modules: list[str]) -> list[str]:
    """Import these, then wait to be told what to become. → the module to run, and its arguments.
    Raises SystemExit if nothing comes any more."""
    for name in modules:
        importlib.import_module(name)
    with socket.socket(fileno=fd) as link:
        link.send(b"r")
        try:
            said, fds, _, _ = socket.recv_fds(link, MESSAGE_BYTES_MAX, 1)
        except ConnectionResetError:  # the supervisor closed it
            raise SystemExit(0) from None
    if not said:
        raise SystemExit(0)
    for output in (1, 2):
        os.dup2(fds[0], output)
    os.close(fds[0])
    words: list[str] = json.loads(said)
    return words


def main() -> None:
    """`python -m dodona_local.child MODULE ARGUMENT...`, or `--spare FD MODULE...`: see `spare`."""
    words = sys.argv[1:]
    threading.Thread(target=_die_with_supervisor, name="lifeline", daemon=True).start()
    if words[0] == "--spare":
        words = _stand_by(int(words[1]), words[2:])
    module, *arguments = words
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
