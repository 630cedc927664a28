"""Store immutable objects under names: in a folder, or in an object store.

Owns: what a cell needs of an object store (`Objects`), and its implementation for a folder. A
folder serves one machine, or several that share a file system. `s3_objects` has the other
implementation, and `object_urls` chooses.

Invariants:
- `put` returns when the object is durable. Each name is put once, with one content.
- A folder shows an object under its name only when all of its bytes are durable.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Final, Protocol

from dodona_wire.errors import DataCorrupted, InvalidRequest, Unavailable
from dodona_wire.net.folder import FOLDER_MODE, private_file, sync_folder

PART: Final = ".part"
"""What the name of a file ends with until all of its bytes are there."""


COPY_BYTES: Final = 1 << 20


def never() -> bool:
    return False


class Objects(Protocol):
    """Immutable objects by name. A name has parts between slashes. Threads may use it side by side.
    All methods raise Unavailable if the store does not answer in time, or refuses."""

    @property
    def place(self) -> str:
        """Return where the objects are, for errors and logs."""
        ...

    def put(self, name: str, path: Path) -> None:
        """Store the content of a file. After an error the object may be there or not, or appear
        later. Raises DataCorrupted if the name has another content."""
        ...

    def get(self, name: str, path: Path, is_over: Callable[[], bool] = never) -> None:
        """Write an object into a file, which is made anew. Once `is_over` returns True, it may
        raise Unavailable in the middle. Raises ObjectMissing, OSError."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects. Those that are missing are none to remove."""
        ...

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the objects that are there, and that begin with a name and a slash.
        Raises InvalidRequest if the store can't be used at all."""
        ...


class ObjectMissing(Exception):
    """There is no object of this name."""


class FolderObjects:
    """Objects as files in a folder, which exists. Parts of objects that never got whole are listed
    under their own names, and go with the object."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = RLock()
        self._synced = {folder}
        """Folders whose names are durable."""

    @property
    def place(self) -> str:
        return f"file://{self._folder}"

    def put(self, name: str, path: Path) -> None:
        target = self._folder / name
        part = target.with_name(target.name + PART)
        with self._refusing():
            self._make(target.parent)
            try:
                _copy(path, part)
                os.link(part, target)  # a rename would replace an object
            except FileExistsError as error:
                if target.read_bytes() != path.read_bytes():
                    raise taken(self.place, name) from error
            finally:
                part.unlink(missing_ok=True)
            sync_folder(target.parent)

    def get(self, name: str, path: Path, is_over: Callable[[], bool] = never) -> None:
        with self._refusing():
            try:
                source = (self._folder / name).open("rb")
            except FileNotFoundError as error:
                os.stat(self._folder)  # if that is missing, nothing is known of the object
                raise ObjectMissing(name) from error
        with source, private_file(path, "wb") as file:
            while some := source.read(COPY_BYTES):
                check_wanted(self.place, name, is_over)
                file.write(some)

    def remove(self, names: Iterable[str]) -> None:
        with self._refusing():
            for name in names:
                for it in (name, name + PART):
                    (self._folder / it).unlink(missing_ok=True)

    def names(self, prefix: str) -> Iterator[str]:
        with self._refusing():
            if not self._folder.is_dir():
                text = f"there is no folder {self._folder} for chunks: make it, or mount it"
                raise InvalidRequest(text, object_store=self.place)
            for at, _, files in os.walk(self._folder / prefix, onerror=_raise_unless_missing):
                for file in files:
                    yield str((Path(at) / file).relative_to(self._folder))

    def _make(self, folder: Path) -> None:
        """Make a folder below the store's. The names of all folders down to it are durable."""
        if folder in self._synced:
            return
        with self._lock:
            self._make(folder.parent)
            folder.mkdir(FOLDER_MODE, exist_ok=True)
            sync_folder(folder.parent)
            self._synced.add(folder)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"The folder of the object store refused: {error.strerror}."
            raise Unavailable(text, object_store=self.place) from error


def check_wanted(place: str, name: str, is_over: Callable[[], bool]) -> None:
    """Raise Unavailable if the caller does not want the object any more."""
    if is_over():
        text = f"The process stops, so it does not wait for {name}."
        raise Unavailable(text, object_store=place, object=name)


def taken(place: str, name: str) -> DataCorrupted:
    """Return the alarm about a name that has another content already."""
    text = (
        f"The object {name} is there already, with another content. Another cluster may keep its "
        "chunks at this place: give each one its own."
    )
    return DataCorrupted(text, object_store=place, object=name)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as read, private_file(target, "wb") as file:
        shutil.copyfileobj(read, file)
        file.flush()
        os.fsync(file.fileno())


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
