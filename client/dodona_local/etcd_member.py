"""Become a member of etcd: `python -m dodona_local.etcd_member FOLDER INDEX COUNT URL PARENT`.

Owns: how a cluster on one machine runs etcd: its command line, and its sockets. Members and clients
meet at sockets in the folder, which only its owner may enter. So no other user of the machine can
change who owns a log, and the members find each other after a start with other ports. Only the
page of its health is at a port: URL. The kernel kills a member when the thread that started it
ends. This is the thread of the supervisor PARENT, which outlives its processes.
Must not import: anything of Dodona. This process becomes etcd.
"""

import ctypes
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

PROGRAM: Final = "etcd"
REMEDY: Final = "install it (Debian, Ubuntu: apt-get install etcd-server)"
HEARTBEAT_MS: Final = 50
ELECTION_MS: Final = 500
HEALTH_PATH: Final = "/health"
SOCKET_BYTES_MAX: Final = 107
"""How long the path of a socket may be, as Linux has it."""
_PR_SET_PDEATHSIG: Final = 1


def missing_program() -> str | None:
    """Return what to do if the program etcd is not installed, or None if it is."""
    found = shutil.which(PROGRAM)
    return None if found else f"there is no program `{PROGRAM}` on the PATH: {REMEDY}"


def socket_path(folder: Path, index: int) -> Path:
    """Return where clients find a member."""
    return folder / f"client-{index}:1"


def _peer(index: int) -> Path:
    return Path(f"peer-{index}:1")


def main() -> None:
    """Run etcd in the place of this process. Raises OSError."""
    folder, index, count, probe_url, parent = sys.argv[1:]
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chdir(folder)  # paths of sockets are short, and the same wherever the folder is
    for name in (socket_path(Path(), int(index)), _peer(int(index))):
        Path(name).unlink(missing_ok=True)  # a member that was killed leaves them, and none is here
    _end_with(int(parent))
    program = shutil.which(PROGRAM) or PROGRAM
    os.execve(program, _command(program, int(index), int(count), probe_url), _environment())


def _command(program: str, index: int, count: int, probe_url: str) -> list[str]:
    client, peer = f"unix://{socket_path(Path(), index)}", f"unix://{_peer(index)}"
    options = {
        "name": f"member-{index}",
        "data-dir": f"member-{index}",
        "heartbeat-interval": HEARTBEAT_MS,
        "election-timeout": ELECTION_MS,
        "initial-cluster": ",".join(f"member-{it}=unix://{_peer(it)}" for it in range(count)),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "listen-metrics-urls": probe_url,
        "auto-compaction-retention": "1",
    }
    return [program, *(word for name, it in options.items() for word in (f"--{name}", str(it)))]


def _environment() -> dict[str, str]:
    """Return the environment without what changes etcd: its options, and proxies, which it would
    use for sockets, too."""
    others = ("_PROXY", "ETCD_")
    return {
        name: value
        for name, value in os.environ.items()
        if not (name.upper().endswith(others[0]) or name.startswith(others[1]))
    }


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when the one that started it ends. etcd does not watch the
    pipe of its supervisor."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        raise SystemExit(f"process {parent} has ended")


if __name__ == "__main__":
    main()
