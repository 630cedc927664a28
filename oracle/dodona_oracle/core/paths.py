"""Paths of the catalog's tree: what they look like, and taking them apart. Pure.

Owns: the rules of paths and of names. A path is `/` or `//` (the root), `//name/name`, and behind
either of these `/@` (all attributes) or `/@name` (one). No new node is called `.` or `..`: web
clients take these out of an address, so that no gateway could serve it. Earlier versions made such
nodes, so that a path may have these names: what is there can be read, moved and removed.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from dodona_wire.errors import InvalidRequest, LimitExceeded

PATH_LENGTH_MAX: Final = 1024
NAME_LENGTH_MAX: Final = 256
DEPTH_MAX: Final = 64
"""Of names in a path."""

_name: Final = re.compile(r"[A-Za-z0-9_.-]+")
_steps_aside: Final = (".", "..")


class TreePath(NamedTuple):
    """A path in parts. `attribute` is None for the node itself, and empty for all attributes."""

    names: tuple[str, ...]
    attribute: str | None = None

    @property
    def node_path(self) -> str:
        """The path of the node, as it is shown."""
        return path_of(self.names)


def path_of(names: tuple[str, ...]) -> str:
    """The path of these names below the root."""
    return "//" + "/".join(names) if names else "/"


def below(path: str, name: str) -> str:
    """The path of a name in the directory at `path`."""
    return f"{path}/{name}"


def parse_path(path: str) -> TreePath:
    """Raises InvalidRequest or LimitExceeded."""
    if len(path) > PATH_LENGTH_MAX + NAME_LENGTH_MAX:
        raise _too_long(path)
    node_path, mark, attribute = path.partition("/@")
    if "/" in attribute:
        raise InvalidRequest("a part of an attribute has no path: take the whole", path=path)
    if attribute:
        check_name(attribute, path)
    if node_path == "/" and mark:
        node_path = "//"  # "//@name": the root has both slashes, one of which opens the "/@"
    elif mark and not node_path:
        node_path = "/"
    return TreePath(_names_of(node_path, path), attribute if mark else None)


def parse_node_path(path: str) -> TreePath:
    """As `parse_path`, for a path that names a node. Raises InvalidRequest or LimitExceeded."""
    parsed = parse_path(path)
    if parsed.attribute is not None:
        raise InvalidRequest("this is the path of an attribute, not of a node", path=path)
    return parsed


def check_name(name: str, path: str) -> None:
    """Raises InvalidRequest or LimitExceeded."""
    if _name.fullmatch(name) is None:
        text = "a name, of a node or of an attribute, is letters, digits and any of _ . -"
        raise InvalidRequest(text, path=path, name=name)
    _check_length(name, path)


def check_new_path(names: Iterable[str], path: str) -> None:
    """That a node may be made at the path, which has these names. Raises InvalidRequest."""
    for name in names:
        if name in _steps_aside:
            text = "no node is called . or .., which web addresses can't name: take another name"
            raise InvalidRequest(text, path=path, name=name)


def _names_of(node_path: str, path: str) -> tuple[str, ...]:
    if node_path in ("/", "//"):
        return ()
    if len(node_path) > PATH_LENGTH_MAX:
        raise _too_long(path)
    names = tuple(node_path[2:].split("/"))
    if not node_path.startswith("//") or not all(map(_name.fullmatch, names)):
        text = "a path is //name or //name/name; a name is letters, digits and any of _ . -"
        raise InvalidRequest(text, path=path)
    for name in names:
        _check_length(name, path)
    if len(names) > DEPTH_MAX:
        text = f"a path has at most {DEPTH_MAX} names"
        raise LimitExceeded(text, path=path, depth=len(names))
    return names


def _check_length(name: str, path: str) -> None:
    if len(name) > NAME_LENGTH_MAX:
        text = f"a name in a path has at most {NAME_LENGTH_MAX} characters"
        raise LimitExceeded(text, path=path[:80], length=len(name))


def _too_long(path: str) -> LimitExceeded:
    text = f"a path has at most {PATH_LENGTH_MAX} characters"
    return LimitExceeded(text, path=path[:80], length=len(path))
