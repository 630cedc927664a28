"""Which checks reach which functions, found by running all of them once without a mutant.

Owns: the record of a check, how it is made, and the file that keeps it, a line each. A trace
function sees the start of each function, and looks at no line. Must not import: any core.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from mutation.swapping import Place


@dataclass(slots=True)
class Record:
    """What one check came to without a mutant. `reached` has places of each file."""

    name: str
    source: str
    is_passed: bool
    seconds: float
    reached: dict[str, list[Place]] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, str]:
        return self.name, self.source


def remember(memory: Path, made: Record) -> None:
    """Several processes may: a line is written at once, and begins anew after one that was cut
    off."""
    file = os.open(memory, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"\n{json.dumps(asdict(made))}".encode())
    finally:
        os.close(file)


def remembered(memory: Path) -> Iterator[Record]:
    """Oldest first. A line that was cut off is none."""
    if not memory.exists():
        return
    for line in memory.read_text().splitlines():
        try:
            given = json.loads(line)
        except ValueError:
            continue
        given["reached"] = {
            file: [Place(*it) for it in places] for file, places in given["reached"].items()
        }
        yield Record(**given)


def record(name: str, source: str, check: Callable[[], bool], files: Collection[str]) -> Record:
    """Run a check, watching the functions of these files, in threads that it starts as well."""
    reached: dict[str, set[Place]] = {}

    def see(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename in files:
            place = Place(code.co_qualname, code.co_firstlineno)
            reached.setdefault(code.co_filename, set()).add(place)

    began = time.monotonic()
    threading.settrace(see)
    sys.settrace(see)
    try:
        is_passed = check()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    seconds = time.monotonic() - began
    places = {file: sorted(it) for file, it in reached.items()}
    return Record(name, source, is_passed, seconds, places)
