"""The guard around a server: runs a module as `python -m` would, and dies with its supervisor.

Owns: the lifeline. Standard input is a pipe whose other end only the supervisor holds and nobody
writes to; when it closes, the supervisor is gone (even by `kill -9`), and so is this process. A
pipe and not PR_SET_PDEATHSIG, because that one fires when the starting *thread* ends.
Must not import anything of Dodona: what it guards decides that.
"""

import os
import runpy
import signal
import sys
import threading

LIFELINE: int = 0


def _die_with_supervisor() -> None:
    while os.read(LIFELINE, 4096):
        pass
    # At once and unconditionally: a server is made to survive this, an orphan holds ports and data.
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """`python -m dodona_local.child MODULE ARGUMENT...`"""
    module, *arguments = sys.argv[1:]
    threading.Thread(target=_die_with_supervisor, name="lifeline", daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
