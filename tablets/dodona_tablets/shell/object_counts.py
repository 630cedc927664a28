"""Count the calls to an object store.

Owns: the counts since the start, by call and outcome. What a client library repeats by itself is
one call here. Threads may use it side by side, as the store.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final, Literal

import msgspec

from dodona_tablets.shell.objects import ObjectMissing, Objects, never

Call = Literal["put", "get", "remove", "list"]
CALLS: Final[tuple[Call, ...]] = ("put", "get", "remove", "list")
OUTCOMES: Final = ("done", "missing", "failed")


class ObjectCounts(msgspec.Struct, frozen=True):
    """The calls since the start."""

    calls: dict[str, dict[str, int]]
    """By call and outcome."""
    uploaded_bytes: int
    fetched_bytes: int


class CountedObjects:
    """An object store (`Objects`) whose calls are counted."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lock = Lock()
        self._calls: dict[str, dict[str, int]]
        self._calls = {call: dict.fromkeys(OUTCOMES, 0) for call in CALLS}
        self._uploaded_bytes = self._fetched_bytes = 0

    @property
    def place(self) -> str:
        return self._objects.place

    def counts(self) -> ObjectCounts:
        """Return the counts."""
        with self._lock:
            calls = {call: dict(counts) for call, counts in self._calls.items()}
            return ObjectCounts(calls, self._uploaded_bytes, self._fetched_bytes)

    def put(self, name: str, path: Path) -> None:
        with self._counted("put"):
            self._objects.put(name, path)
        size_bytes = path.stat().st_size
        with self._lock:
            self._uploaded_bytes += size_bytes

    def get(self, name: str, path: Path, is_over: Callable[[], bool] = never) -> None:
        with self._counted("get"):
            self._objects.get(name, path, is_over)
        size_bytes = path.stat().st_size
        with self._lock:
            self._fetched_bytes += size_bytes

    def remove(self, names: Iterable[str]) -> None:
        with self._counted("remove"):
            self._objects.remove(names)

    def names(self, prefix: str) -> Iterator[str]:
        with self._counted("list"):
            yield from self._objects.names(prefix)

    @contextmanager
    def _counted(self, call: Call) -> Iterator[None]:
        outcome = "failed"
        try:
            yield
            outcome = "done"
        except ObjectMissing:
            outcome = "missing"
            raise
        finally:
            with self._lock:
                self._calls[call][outcome] += 1
