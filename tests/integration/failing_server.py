"""A server whose disk fails once: one call of its first life is answered with an error.

Owns: the fault. Started in a server's place by `test_failing_disks`, which says when to count: how
many calls come before depends on how long the start takes. The process that traces the server is
between it and the supervisor, and ends as it does.
"""

import argparse
import errno
import os
import sys
from pathlib import Path

import dodona_local.child
from disk_faults.injection import Counting, FailAt, Site
from disk_faults.syscalls import Call
from disk_faults.tracer import Failure, run_traced

MODULE = "integration.failing_server"
TRACING = "--tracing"


def sign_beside(folder: Path) -> Path:
    """Return the file whose presence says that the server's calls count from now on."""
    return folder.with_name(f"{folder.name}.counts")


class FailLater:
    """Counts calls once the sign is there."""

    def __init__(self, site: Site, sign: Path) -> None:
        self._fault = FailAt(site)
        self._sign = sign

    def decide(self, call: Call) -> Failure | None:
        return self._fault.decide(call) if self._sign.exists() else None


def main() -> None:
    words = sys.argv[1:]
    if words[0] != TRACING:  # the guard has begun a thread here: who is to fork starts afresh
        os.execv(
            sys.executable, [sys.executable, "-m", "integration.failing_server", TRACING, *words]
        )
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("number", type=int)
    parser.add_argument("error")
    parser.add_argument("module")
    given, arguments = parser.parse_known_args(words[1:])
    folder = Path(arguments[arguments.index("--data-dir") + 1])
    is_first_life = not any(folder.glob("*"))
    folder.mkdir(parents=True, exist_ok=True)
    failure = Failure(getattr(errno, given.error))
    site = Site(given.kind, given.number, failure)

    def serve(_: object) -> None:
        sys.argv = ["child", given.module, *arguments]
        dodona_local.child.main()

    saboteur = FailLater(site, sign_beside(folder)) if is_first_life else Counting()
    recording = run_traced(serve, folder, saboteur=saboteur, seconds_max=0)
    ending = recording.endings[-1]
    print(ending.words, file=sys.stderr)
    sys.exit(ending.status)


if __name__ == "__main__":
    main()
