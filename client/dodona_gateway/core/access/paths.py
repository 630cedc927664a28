"""Read which node a path or a pattern names, for access checks. Pure.

Owns: the reading of a path into the names of its node. Each node has one spelling, except the root,
which has two. Any other spelling is refused and never corrected. So a checked path is, to the
letter, the path that the catalog reads.

Must not import: the servers. A test proves that they read paths alike.
"""

import re
from typing import Final

from dodona_wire.errors import InvalidRequest, LimitExceeded

PATH_LENGTH_MAX: Final = 1024
"""In characters."""
NAME_LENGTH_MAX: Final = 256
DEPTH_MAX: Final = 64
"""The largest number of names in a path."""
ROOTS: Final = ("/", "//")
ANY_NAME: Final = "*"
ANY_NAMES: Final = "**"

_name: Final = re.compile(r"[A-Za-z0-9_.-]+")
_steps_aside: Final = (".", "..")
"""Names that the catalog would accept, and that web clients remove from an address."""

Names = tuple[str, ...]


def node_names(path: str) -> Names:
    """Return the names of a path's node, from the root on. The path of an attribute (`//t/@name`)
    names the node that has the attribute. Raises InvalidRequest, LimitExceeded."""
    _check_length(path)
    node, mark, _ = path.partition("/@")
    if not node and mark:
        return ()  # "/@name"; for "//@name" the node is "/"
    if node in ROOTS:
        return ()
    names = _split(node, path)
    for name in names:
        if _name.fullmatch(name) is None:
            text = (
                "A path is //name or //name/name. A name has only letters, digits and any of _ . -"
            )
            raise InvalidRequest(text, path=_shown(path))
        _check_name(name, path)
    return names


def pattern_names(pattern: str) -> Names:
    """Return the names of a pattern. `*` stands for one name. `**` may only come last, and stands
    for any number of names, even none. `/` is everything. Raises InvalidRequest, LimitExceeded."""
    _check_length(pattern)
    if pattern == "/":
        return (ANY_NAMES,)
    names = _split(pattern, pattern)
    for place, name in enumerate(names):
        is_wild = name == ANY_NAME or (name == ANY_NAMES and place == len(names) - 1)
        if not is_wild and _name.fullmatch(name) is None:
            text = (
                "A pattern is //name/name. A name may be *, for any name. The last name may be **, "
                "for all nodes below. The pattern / is everything."
            )
            raise InvalidRequest(text, pattern=_shown(pattern))
        _check_name(name, pattern)
    return names


def _split(node: str, path: str) -> Names:
    if not node.startswith("//"):
        raise InvalidRequest(
            "The path does not begin with //. Write it from the root, as in //home/t.",
            path=_shown(path),
        )
    names = tuple(node[2:].split("/"))
    if len(names) > DEPTH_MAX:
        text = f"A path has at most {DEPTH_MAX} names."
        raise LimitExceeded(text, path=_shown(path), depth=len(names))
    return names


def _check_name(name: str, path: str) -> None:
    if name in _steps_aside:
        text = (
            "The gateway does not serve nodes named . or .., because web clients remove these "
            "names from URLs. Rename the node."
        )
        raise InvalidRequest(text, path=_shown(path))
    if len(name) > NAME_LENGTH_MAX:
        text = f"A name in a path has at most {NAME_LENGTH_MAX} characters."
        raise LimitExceeded(text, path=_shown(path), length=len(name))


def _check_length(path: str) -> None:
    if not isinstance(path, str):
        raise InvalidRequest(f"Pass a path as a str, not {type(path).__name__}.")
    if len(path) > PATH_LENGTH_MAX + NAME_LENGTH_MAX:
        text = f"A path has at most {PATH_LENGTH_MAX} characters."
        raise LimitExceeded(text, path=_shown(path), length=len(path))


def _shown(path: str) -> str:
    return path[:80]
