"""Paths of the catalog's tree: their form, and how to parse them. Pure.

Owns: the rules for paths and names. A path is `/` or `//` (the root), or `//name/name`. Behind it
can be `/@` (all attributes) or `/@name` (one attribute). No node is called `.` or `..`: web clients
remove these names from an address, so no gateway could serve the node. A path may have these names,
and then no node is there.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from dodona_wire.errors import InvalidRequest, LimitExceeded

PATH_LENGTH_MAX: Final = 1024
NAME_LENGTH_MAX: Final = 256
DEPTH_MAX: Final = 64
"""The largest number of names in a path."""

_name: Final = re.compile(r"[A-Za-z0-9_.-]+")
_mark: Final = "/@"
"""It is between the path of a node and the name of an attribute."""
_steps_aside: Final = (".", "..")


class TreePath(NamedTuple):
    """The parts of a path. `attribute` is None for the node, and empty for all attributes."""

    names: tuple[str, ...]
    attribute: str | None = None

    @property
    def node_path(self) -> str:
        """The path of the node in its usual form."""
        return path_of(self.names)


def path_of(names: tuple[str, ...]) -> str:
    """Return the path of these names below the root."""
    return "//" + "/".join(names) if names else "/"


def below(path: str, name: str) -> str:
    """Return the path of a name in the directory at `path`."""
    return f"{path}/{name}"


def parse_path(path: str) -> TreePath:
    """Parse a path. Raises InvalidRequest or LimitExceeded."""
    if len(path) > PATH_LENGTH_MAX + len(_mark) + NAME_LENGTH_MAX:
        raise _too_long(path)
    node_path, mark, attribute = path.partition(_mark)
    if "/" in attribute:
        raise InvalidRequest(
            "The path names a part of an attribute. Use the path of the whole attribute.",
            path=path,
        )
    if attribute:
        check_name(attribute, path)
    if node_path == "/" and mark:
        node_path = "//"  # "//@name": the root has both slashes, and one of them opens the "/@"
    elif mark and not node_path:
        node_path = "/"
    return TreePath(_names_of(node_path, path), attribute if mark else None)


def parse_node_path(path: str) -> TreePath:
    """Parse a path that names a node. Raises InvalidRequest or LimitExceeded."""
    parsed = parse_path(path)
    if parsed.attribute is not None:
        raise InvalidRequest(
            "This is the path of an attribute, not of a node. Leave out /@ and the name.",
            path=path,
        )
    return parsed


def check_name(name: str, path: str) -> None:
    """Raise InvalidRequest or LimitExceeded if this cannot be a name."""
    if _name.fullmatch(name) is None:
        text = "The name of a node or an attribute has only letters, digits and any of _ . -"
        raise InvalidRequest(text, path=path, name=name)
    _check_length(name, path)


def check_new_path(names: Iterable[str], path: str) -> None:
    """Raise InvalidRequest if no node with these names may be made at the path."""
    for name in names:
        if name in _steps_aside:
            text = (
                "A node can't be named . or .., since web clients remove these names from an "
                "address. Choose another name."
            )
            raise InvalidRequest(text, path=path, name=name)


def _names_of(node_path: str, path: str) -> tuple[str, ...]:
    if node_path in ("/", "//"):
        return ()
    if len(node_path) > PATH_LENGTH_MAX:
        raise _too_long(path)
    names = tuple(node_path[2:].split("/"))
    if not node_path.startswith("//") or not all(map(_name.fullmatch, names)):
        text = "A path is //name or //name/name. A name has only letters, digits and any of _ . -"
        raise InvalidRequest(text, path=path)
    for name in names:
        _check_length(name, path)
    if len(names) > DEPTH_MAX:
        text = f"A path has at most {DEPTH_MAX} names."
        raise LimitExceeded(text, path=path, depth=len(names))
    return names


def _check_length(name: str, path: str) -> None:
    if len(name) > NAME_LENGTH_MAX:
        text = f"A name in a path has at most {NAME_LENGTH_MAX} characters."
        raise LimitExceeded(text, path=path[:80], length=len(name))


def _too_long(path: str) -> LimitExceeded:
    text = f"A path has at most {PATH_LENGTH_MAX} characters."
    return LimitExceeded(text, path=path[:80], length=len(path))
