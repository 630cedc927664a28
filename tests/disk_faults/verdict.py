"""The verdict on one image: everything promised is there, or it is refused loudly.

Owns: what counts as which. An image that an honest disk may leave has to be right; a damaged one
may be refused as well, by an error that says so. Damage may make LMDB read where nothing is, which
ends a process: such images are judged in a process of their own, whose death is told.
"""

import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

import lmdb

from disk_faults.images import Image, write_image
from disk_faults.stores import Wrong
from disk_faults.workloads import Workload
from dodona.errors import DataCorrupted

JUDGE_SECONDS_MAX: Final = 30
MEMORY_FOLDER: Final = Path("/dev/shm")
"""A folder in memory, where there is one: what is judged need not survive anything."""

Outcome = Literal["right", "refused", "died", "wrong"]


class Verdict(NamedTuple):
    outcome: Outcome
    words: str = ""


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for as long as it is needed."""
    place = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dodona-disk-", dir=place) as folder:
        yield Path(folder)


def judge(workload: Workload, image: Image, seed: int, marks: Sequence[bytes]) -> Verdict:
    """What the workload says of an image after these marks."""
    with scratch() as folder:
        write_image(image, folder)
        try:
            workload.judge(folder, seed, marks)
        except (DataCorrupted, lmdb.Error) as refusal:
            return Verdict("refused", f"{type(refusal).__name__}: {refusal}")
        except Wrong as wrong:
            return Verdict("wrong", str(wrong))
        except Exception:  # noqa: BLE001 - whatever it is, it says nothing of what is damaged
            return Verdict("wrong", traceback.format_exc())
    return Verdict("right")


def judge_apart(workload: Workload, image: Image, seed: int, marks: Sequence[bytes]) -> Verdict:
    """The same, in a child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LMDB's last words are no news
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(JUDGE_SECONDS_MAX)
        try:
            os.write(writing, pickle.dumps(judge(workload, image, seed, marks)))
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if told:
        verdict: Verdict = pickle.loads(told)
        return verdict
    if status == -signal.SIGALRM:
        return Verdict("wrong", f"no verdict after {JUDGE_SECONDS_MAX} s")
    return Verdict("died", f"by signal {-status}")
