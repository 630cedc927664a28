"""Check the paths that users write, before Dodona looks for files there.

Owns: which texts can't be a path. pathlib and the system report this by different errors, each at
another call, and some only after a folder was half made. Examples are a name that is too long, a
user without a home, a character that no name may have, and links in a circle.
"""

import os
from pathlib import Path

from dodona_wire.errors import InvalidRequest
from dodona_wire.shown import shown


def place_of(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path, with the user's home in place of `~`. The path need not exist.
    Raises InvalidRequest if no file can have this path."""
    try:
        place = Path(path).expanduser().absolute()
        place.stat()
    except FileNotFoundError:
        return place
    except RuntimeError as error:
        text = f"the path {shown(str(path))} begins with a user without a home folder here"
        raise InvalidRequest(f"{text}: use a path that begins with /") from error
    except ValueError as error:
        text = f"the path {shown(str(path))} has a character that a path can't have"
        raise InvalidRequest(text) from error
    except OSError as error:
        text = f"the path {shown(str(path))} can't be used: {error.strerror}"
        raise InvalidRequest(text) from error
    return place
