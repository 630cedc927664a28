"""Interrupts at every check point of a call: where Python could have let a signal handler raise.

A trace function stands in for the signal: it raises in the calling thread before a line, at the end
of a function, or before a single instruction. That is more than signals can do, and it is the same
each time.
"""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import dodona
import dodona_oracle
import dodona_tablets

IS_WHOLE = bool(os.environ.get("DODONA_ALL_INTERRUPTS"))
"""Tries each line of each call, and in the modules that hand over between threads each instruction,
with both exceptions. Otherwise each line of the client is tried in one of the calls."""
OTHERS = 6
"""So many check points of each call are tried besides, evenly chosen."""
POINTS_MAX = 60
"""Of a call, unless all are tried: a load has several hundred, and takes long."""
PATIENCE_S = 60.0
CLIENT = Path(dodona.__file__).parents[1]
ROOTS = (str(CLIENT), *[str(Path(it.__path__[0])) for it in (dodona_oracle, dodona_tablets)])
HOLDERS = (
    "computing.py", "embedded_combiner.py", "embedded_turns.py", "engine.py", "pinger.py",
    "threads.py",
)  # fmt: skip
JUDGES = ("shown.py",)
"""Tell a signal handler's exception by the frame it was handed. What a trace function raises at the
end of a function has no such frame any more; no signal comes there."""

Point = tuple[str, int, int, str]


class Alarm(Exception):
    """What a program's own signal handler raises."""


class Interrupter:
    """Notes check points while it is entered, and raises at the one that is asked for."""

    def __init__(self, error: BaseException | None = None, at: Point | None = None) -> None:
        self.points: dict[Point, int] = {}
        """With the line of each."""
        self.is_raised = False
        self._is_over = False
        self._error = error
        self._at = at
        # Python 3.11 has no reference of its own to the function that it is about to call, and a
        # collection in between may replace it: the process would die of a segmentation fault.
        self._tracer = self._trace

    def __enter__(self) -> "Interrupter":
        sys.settrace(self._tracer)
        return self

    def __exit__(self, *_: object) -> None:
        """Also for generators that are still suspended: they have the function, and may be
        collected while another one is entered."""
        sys.settrace(None)
        self._is_over = True

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if self._is_over:
            return None
        name = frame.f_code.co_filename
        if self._at is not None and (name, frame.f_code.co_firstlineno) != self._at[:2]:
            return None  # quickly: the others need no look
        if not name.startswith(ROOTS) and not name.endswith("/threading.py"):
            return None
        if event == "call" and _is_in_finalizer(frame):
            return None
        if IS_WHOLE and name.endswith(HOLDERS):
            frame.f_trace_opcodes = True
        place = frame.f_lasti if frame.f_trace_opcodes else frame.f_lineno
        point = (name, frame.f_code.co_firstlineno, place, event)
        if event == "return" and name.endswith(JUDGES):
            return self._tracer
        if event != "exception":
            self.points[point] = frame.f_lineno
            if point == self._at:
                self._at, self.is_raised = None, True
                assert self._error is not None
                raise self._error
        return self._tracer


def _is_in_finalizer(frame: FrameType) -> bool:
    """Python itself swallows what is raised there: it reaches no caller, whatever the product does.
    A client that an earlier interrupt left is collected in the middle of a later call."""
    outer: FrameType | None = frame
    while outer is not None:
        code = outer.f_code
        if code.co_name == "__del__" or code.co_filename.endswith("/weakref.py"):
            return True
        outer = outer.f_back
    return False


def points_of(call: Callable[[], Any], tried: set[tuple[str, int]]) -> list[Point]:
    """A call's check points, each once. Those that are to be tried: of lines of the client that
    were not `tried` by other calls, and some."""
    with Interrupter() as seen:
        call()
    if IS_WHOLE:
        return list(seen.points)
    step = max(1, len(seen.points) // OTHERS)
    chosen = []
    for number, (point, line) in enumerate(seen.points.items()):
        is_new = point[0].startswith(str(CLIENT)) and (point[0], line) not in tried
        if is_new or number % step == 0:
            chosen.append(point)
    chosen = chosen[:: -(-len(chosen) // POINTS_MAX)]
    tried.update((point[0], seen.points[point]) for point in chosen)  # others try what was left out
    return chosen


def interrupted(call: Callable[[], Any], at: Point, error: BaseException) -> bool:
    """Call, and interrupt it there. → whether it was interrupted: then the caller got the very
    exception that was raised."""
    with Interrupter(error, at) as armed:
        try:
            call()
        except BaseException as caught:
            sys.settrace(None)
            if caught is not error:
                raise
            return True
    assert not armed.is_raised, f"the exception was swallowed at {at}"
    return False


def in_time(call: Callable[[], Any]) -> Any:
    """Its result, from another thread: a call that hangs fails the test."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the next call hangs"
    if errors:
        raise errors[0]
    return results[0]
