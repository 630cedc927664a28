"""The file with the failed attempts of this folder's processes to take logs over.

Owns: the file. It only spreads attempts over time. So a file that is missing, or that this release
can't read, is as good as an empty one.
"""

from pathlib import Path
from typing import Final

import msgspec

from dodona_replication.core.attempts import Attempts
from dodona_wire.net.folder import LockedFolder, make_whole, private_file

NAME: Final = "attempts"


def read_attempts(folder: LockedFolder) -> Attempts:
    """Return what the last processes of this folder noted. Raises OSError."""
    try:
        return msgspec.json.decode((folder.path / NAME).read_bytes(), type=Attempts)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return Attempts()


def write_attempts(folder: LockedFolder, attempts: Attempts) -> None:
    """Note the attempts for the next processes. Raises OSError."""

    def write(place: Path) -> None:
        with private_file(place, "wb") as file:
            file.write(msgspec.json.encode(attempts))

    make_whole(folder.path / NAME, write, is_anew=True)
