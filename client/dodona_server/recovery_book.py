"""The book of a server's starts: a small file in its data folder (`recoveries_page` serves it).

Owns: the file, and how a start learns how the run before it ended. The file has the last starts and
is replaced as a whole. A normal stop is written there, a crash is not. Nothing depends on the book.
If it cannot be written, that is logged, and the server goes on. Only servers import this module.
"""

import logging
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from dodona_wire.cores.recoveries import Recovery, RecoveryCause, RecoveryPage
from dodona_wire.net.folder import private_file, sync_folder

FILE_NAME: Final = "recoveries.json"
KEPT_MAX: Final = 32
"""How many starts are in it, the last ones."""
BYTES_MAX: Final = 8 << 20

_logger: Final = logging.getLogger("dodona.recovery")


class RecoveryBook:
    """The book of one data folder, which belongs to this process."""

    def __init__(self, path: Path, recoveries: tuple[Recovery, ...]) -> None:
        self._path = path
        self._recoveries = recoveries

    @classmethod
    def open(cls, folder: Path) -> "RecoveryBook":
        """Open the book as it was left. A damaged one is begun anew, and its log line says so."""
        path = folder / FILE_NAME
        try:
            if path.stat().st_size > BYTES_MAX:
                raise ValueError(f"it has more than {BYTES_MAX} bytes")
            page = msgspec.json.decode(path.read_bytes(), type=RecoveryPage)
        except FileNotFoundError:
            page = RecoveryPage()
        except (OSError, ValueError) as error:
            _logger.warning("the book of starts can't be read, so a new one begins: %s", error)
            page = RecoveryPage()
        return cls(path, page.recoveries)

    @property
    def recoveries(self) -> tuple[Recovery, ...]:
        """The last starts, oldest first. The last one is this start."""
        return self._recoveries

    def begin(self, recovery: Recovery) -> None:
        """Add this process's start. The book itself knows how the run before it ended."""
        begun = msgspec.structs.replace(recovery, after=self._cause(recovery))
        self._recoveries = (*self._recoveries, begun)[-KEPT_MAX:]
        self._write()

    def amend(self, **changes: Any) -> None:
        """Add what has happened since this start. Blocks until it is durable."""
        *before, last = self._recoveries
        self._recoveries = (*before, msgspec.structs.replace(last, **changes))
        self._write()

    def _cause(self, recovery: Recovery) -> RecoveryCause:
        if not self._recoveries:
            return "unknown" if recovery.record_count else "nothing"
        return "crash" if self._recoveries[-1].stopped_us is None else "stop"

    def _write(self) -> None:
        content = msgspec.json.encode(RecoveryPage(self._recoveries))
        beside = self._path.with_name(f"{FILE_NAME}.unfinished")
        try:
            with private_file(beside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            _logger.warning("the book of starts can't be written: %s", error)
