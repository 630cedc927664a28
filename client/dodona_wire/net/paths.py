"""Check the paths that users write, before Dodona looks for files there.

Owns: which texts can't be a path. pathlib and the system report this by different errors, each at
another call, and some only after a folder was half made. Examples are a name that is too long, a
user without a home, a character that no name may have, and links in a circle.
"""

import os
from pathlib import Path

from dodona_wire.errors import InvalidRequest
from dodona_wire.handlers import is_of_handler
from dodona_wire.shown import shown


def place_of(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path, with the user's home in place of `~`. The path need not exist.
    Raises InvalidRequest if no file can have this path."""
    try:
        place = Path(path).expanduser().absolute()
        place.stat()
    except FileNotFoundError:
        return place
    except (RuntimeError, ValueError, OSError) as error:
        if is_of_handler(error):
            raise
        raise _refusal(path, error) from error
    return place


def _refusal(path: str | os.PathLike[str], error: Exception) -> InvalidRequest:
    given = f"the path {shown(str(path))}"
    if isinstance(error, RuntimeError):
        text = f"{given} begins with a user without a home folder here"
        return InvalidRequest(f"{text}: use a path that begins with /")
    if isinstance(error, ValueError):
        return InvalidRequest(f"{given} has a character that a path can't have")
    return InvalidRequest(f"{given} can't be used: {getattr(error, 'strerror', None)}")
