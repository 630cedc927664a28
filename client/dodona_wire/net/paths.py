"""Paths as users write them, before anything is looked for there.

Owns: what can be no path at all. pathlib and the system say that by errors of many kinds, each at
another call, and some not before a folder was half made: too long a name, a user without a home, a
character that no file's name has, links that lead in a circle.
"""

import os
from pathlib import Path

from dodona_wire.errors import InvalidRequest
from dodona_wire.shown import shown


def place_of(path: str | os.PathLike[str]) -> Path:
    """The absolute path, with the home that `~` stands for; something may be there, or nothing.
    Raises InvalidRequest if nothing can be there."""
    try:
        place = Path(path).expanduser().absolute()
        place.stat()
    except FileNotFoundError:
        return place
    except RuntimeError as error:
        text = f"the path {shown(str(path))} begins with a user who has no home here"
        raise InvalidRequest(f"{text}: write it from / on") from error
    except ValueError as error:
        text = f"the path {shown(str(path))} has a character that no path can have"
        raise InvalidRequest(text) from error
    except OSError as error:
        text = f"the path {shown(str(path))} can't be used: {error.strerror}"
        raise InvalidRequest(text) from error
    return place
