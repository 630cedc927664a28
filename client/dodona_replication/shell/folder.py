"""The coordinator of one machine: documents in a folder that one process has locked.

Owns: the files of the documents. The lock of the folder is the take-over: only the process that
has it can read or change a document. The kernel frees a lock when its process ends. So a document
of an earlier process counts as released (R31): its owner is gone.

A write is durable before its answer. A crash leaves the old file or the new one (`make_whole`).
If a write fails so late that either may be there, the answer is in doubt. Then this object does
nothing more: close it, and open the folder again.

There is no wait in here but for the disk. A call blocks its thread for the sync of one small file.
Must not import: a library of a network, since an embedded database uses this.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from dodona_replication.core.coordination import Answer, Applied, InDoubt, NewestSeen, Refused
from dodona_replication.core.document import (
    DOCUMENT_BYTES_MAX,
    Document,
    Revisioned,
    check_name,
    decode,
    encode,
)
from dodona_replication.core.errors import DocumentMissing, DocumentUnreadable
from dodona_replication.shell.coordinator import readable
from dodona_wire.errors import DiskFull, DodonaError, Unavailable
from dodona_wire.net.folder import (
    FOLDER_MODE,
    NO_SPACE,
    LockedFolder,
    lock_folder,
    make_whole,
    private_file,
    sync_folder,
)
from dodona_wire.preload import preload_decoder

FOLDER_NAME: Final = "coordination"
"""The folder of the documents, within the locked folder."""
FILE_BYTES_MAX: Final = DOCUMENT_BYTES_MAX + 100
"""Bytes of a file: a document and its revision."""


@preload_decoder
class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a file."""

    revision: Annotated[int, msgspec.Meta(ge=1)]
    document: msgspec.Raw


class FolderDocuments:
    """The documents in a locked folder, for callers without an event loop. The caller keeps the
    folder locked, and closes it afterwards."""

    def __init__(self, folder: LockedFolder) -> None:
        """Make the folder of the documents if it is missing. What an earlier process wrote there
        is durable afterwards. Raises OSError."""
        self._path = folder.path / FOLDER_NAME
        self._path.mkdir(FOLDER_MODE, exist_ok=True)
        sync_folder(folder.path)
        sync_folder(self._path)
        self._written = set[str]()
        """Logs whose document this process wrote. All others count as released."""
        self._end: str | None = None
        """Why there are no more calls, if so."""

    def read(self, log: str) -> Revisioned | None:
        """Return the document of a log, or None. Raises as `Coordinator.read` does."""
        self._check_is_open()
        stored = self._load(log)
        if stored is None or log in self._written:
            return stored
        return replace(stored, document=replace(stored.document, released=True))

    def all(self) -> dict[str, Revisioned]:
        """Return the readable documents, by log. Raises Unavailable."""
        return readable(sorted(it.stem for it in self._path.glob("*.json")), self.read)

    def compare(self, log: str, revision: int | None, document: Document) -> Answer:
        """Store a document if the log's document has this revision, or with None if there is none.
        Raises as `Coordinator.compare` does, and DiskFull."""
        data = encode(log, document)
        current = self.read(log)
        if (current.revision if current else None) != revision:
            return Refused(current)
        following = (revision or 0) + 1
        try:
            self._store(log, msgspec.json.encode(_Stored(following, msgspec.Raw(data))))
        except OSError as error:
            return self._after(error, log, following)
        self._written.add(log)
        return Applied(following)

    def close(self) -> None:
        """Refuse all further calls. A repeat is harmless."""
        self._end = self._end or "it is closed"

    def _check_is_open(self) -> None:
        if self._end is not None:
            text = f"the coordinator of {self._path} does nothing more: {self._end}"
            raise Unavailable(f"{text}; open the folder again", path=str(self._path))

    def _place(self, log: str) -> Path:
        return self._path / f"{check_name(log, 'log')}.json"

    def _load(self, log: str) -> Revisioned | None:
        place = self._place(log)
        try:
            with place.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable(log, error) from error
        try:
            stored = msgspec.json.decode(data, type=_Stored)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            text = f"{place} is not valid: {error}; stop the process, and call the operator"
            raise DocumentUnreadable(text, log=log, field="") from error
        return Revisioned(decode(log, bytes(stored.document)), stored.revision)

    def _store(self, log: str, data: bytes) -> None:
        def write(place: Path) -> None:
            with private_file(place, "wb") as file:
                file.write(data)

        make_whole(self._place(log), write, is_anew=True)

    def _after(self, error: OSError, log: str, following: int) -> Answer:
        """Find out what a failed write left."""
        try:
            found = self._load(log)
            is_old = found is None or found.revision < following
        except DodonaError:
            is_old = False
        if is_old:
            if error.errno in NO_SPACE:
                text = f"the disk of {self._path} is full: make room"
                raise DiskFull(text, path=str(self._path)) from error
            self._end = f"a write failed ({error.strerror})"
            raise self._unavailable(log, error) from error
        self._end = f"it is not known whether a write is durable ({error.strerror})"
        return InDoubt(self._end)

    def _unavailable(self, log: str, error: OSError) -> Unavailable:
        text = f"the document of log {log} in {self._path} can't be used: {error.strerror}"
        return Unavailable(f"{text}; check the disk", log=log, path=str(self._path))


class FolderCoordinator:
    """The documents in a folder, as a `Coordinator`. It has the lock of the folder until it is
    closed."""

    def __init__(self, folder: LockedFolder) -> None:
        """Take a folder that is locked. Raises OSError, and leaves the folder to the caller."""
        self._documents = FolderDocuments(folder)
        self._folder = folder
        self._changed = asyncio.Event()
        self._is_closed = False

    @classmethod
    def open(cls, path: str | Path) -> "FolderCoordinator":
        """Lock a folder, which is made if it is missing. Raises FolderInUse with the folder and the
        id of the process that has it, InvalidRequest, DiskFull, Unavailable."""
        folder = lock_folder(path)
        try:
            return cls(folder)
        except OSError as error:
            folder.close()
            text = f"{folder.path} can't be used: {error.strerror}; check the disk"
            raise Unavailable(text, path=str(folder.path)) from error
        except BaseException:
            folder.close()
            raise

    async def read(self, log: str) -> Revisioned | None:
        """See `Coordinator.read`. No other process can have written since."""
        return self._documents.read(log)

    async def documents(self) -> dict[str, Revisioned]:
        """See `Coordinator.documents`."""
        return self._documents.all()

    async def compare(self, log: str, revision: int | None, document: Document) -> Answer:
        """See `Coordinator.compare`."""
        try:
            return self._documents.compare(log, revision, document)
        finally:
            self._wake()

    async def watch(self, log: str, after_revision: int) -> AsyncGenerator[Revisioned]:
        """See `Coordinator.watch`. Only this process can change a document meanwhile."""
        seen = NewestSeen(after_revision)
        while not self._is_closed:
            changed = self._changed
            current = self._documents.read(log)
            if current is None and seen.revision > 0:
                raise DocumentMissing(
                    f"the document of log {log} was removed: stop the process, and restore it",
                    log=log,
                )
            if current is not None and seen.take(current):
                yield current
            else:
                await changed.wait()

    def silent_us(self) -> int:
        """See `Coordinator.silent_us`. A folder is never silent."""
        return 0

    async def close(self) -> None:
        """Release the folder. Watches end. A repeat is harmless."""
        self._is_closed = True
        self._documents.close()
        self._folder.close()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
