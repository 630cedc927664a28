"""Paths and patterns, as far as access is concerned: which node a text names. Pure.

Owns: the reading of a path into the names of its node. There is one spelling for each node, but for
the root's two, and what is spelled otherwise is refused rather than corrected: a path that was
checked is, to the letter, the one that the catalog reads. Must not import the servers: that they
read paths alike is tested.
"""

import re
from typing import Final

from dodona_wire.errors import InvalidRequest, LimitExceeded

PATH_LENGTH_MAX: Final = 1024
"""Characters."""
NAME_LENGTH_MAX: Final = 256
DEPTH_MAX: Final = 64
"""Of names in a path."""
ROOTS: Final = ("/", "//")
ANY_NAME: Final = "*"
ANY_NAMES: Final = "**"

_name: Final = re.compile(r"[A-Za-z0-9_.-]+")
_steps_aside: Final = (".", "..")
"""Names that the catalog would take as they are, and that web clients take out of an address."""

Names = tuple[str, ...]


def node_names(path: str) -> Names:
    """The names of the node that a path is about, from the root on; an attribute's path
    (`//t/@name`) is about the node that has it. Raises InvalidRequest, LimitExceeded."""
    _check_length(path)
    node, mark, _ = path.partition("/@")
    if not node and mark:
        return ()  # "/@name"; of "//@name" a "/" is left
    if node in ROOTS:
        return ()
    names = _split(node, path)
    for name in names:
        if _name.fullmatch(name) is None:
            text = "a path is //name or //name/name; a name is letters, digits and any of _ . -"
            raise InvalidRequest(text, path=_shown(path))
        _check_name(name, path)
    return names


def pattern_names(pattern: str) -> Names:
    """The names of a pattern, of which `*` stands for one name, and `**`, which may only come last,
    for any number of them, even none. `/` is everything. Raises InvalidRequest, LimitExceeded."""
    _check_length(pattern)
    if pattern == "/":
        return (ANY_NAMES,)
    names = _split(pattern, pattern)
    for place, name in enumerate(names):
        is_wild = name == ANY_NAME or (name == ANY_NAMES and place == len(names) - 1)
        if not is_wild and _name.fullmatch(name) is None:
            text = (
                "a pattern is //name/name, where a name may be *, for any one, and the last may be "
                "**, for all below; / is everything"
            )
            raise InvalidRequest(text, pattern=_shown(pattern))
        _check_name(name, pattern)
    return names


def _split(node: str, path: str) -> Names:
    if not node.startswith("//"):
        raise InvalidRequest("a path begins with //", path=_shown(path))
    names = tuple(node[2:].split("/"))
    if len(names) > DEPTH_MAX:
        text = f"a path has at most {DEPTH_MAX} names"
        raise LimitExceeded(text, path=_shown(path), depth=len(names))
    return names


def _check_name(name: str, path: str) -> None:
    if name in _steps_aside:
        text = "the gateway serves no node that is called . or .., since addresses of the web can't"
        raise InvalidRequest(text, path=_shown(path))
    if len(name) > NAME_LENGTH_MAX:
        text = f"a name in a path has at most {NAME_LENGTH_MAX} characters"
        raise LimitExceeded(text, path=_shown(path), length=len(name))


def _check_length(path: str) -> None:
    if not isinstance(path, str):
        raise InvalidRequest(f"a path is a str, not {type(path).__name__}")
    if len(path) > PATH_LENGTH_MAX + NAME_LENGTH_MAX:
        text = f"a path has at most {PATH_LENGTH_MAX} characters"
        raise LimitExceeded(text, path=_shown(path), length=len(path))


def _shown(path: str) -> str:
    return path[:80]
