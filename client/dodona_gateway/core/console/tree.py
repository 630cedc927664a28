"""The tree for a browser: the entries of a directory that the caller may see. Pure.

Owns: how directories follow from the paths of tables. A caller sees a directory if the caller may
read a table in it, at any depth. The caller sees nothing else in that directory.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dodona_gateway.core.access.paths import node_names

ENTRIES_MAX: Final = 1_000


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    path: str
    is_table: bool
    table_count: int
    """The number of tables in a directory, at any depth."""


class Crumb(NamedTuple):
    """A directory on the way to a node."""

    name: str
    path: str


def entries_of(directory: str, tables: Iterable[str], names: Iterable[str] = ()) -> list[Entry]:
    """Return the entries of a directory. `tables` are paths of tables: each table is an entry, or
    the next directory on the way to it is one. `names` adds directories without tables. Raises
    InvalidRequest, LimitExceeded."""
    above = node_names(directory)
    counts: dict[str, int] = dict.fromkeys(names, 0)
    here: dict[str, None] = {}
    for path in tables:
        parts = tuple(path.removeprefix("//").split("/"))
        if parts[: len(above)] != above or len(parts) == len(above):
            continue
        name = parts[len(above)]
        counts[name] = counts.get(name, 0) + 1
        if len(parts) == len(above) + 1:
            here[name] = None
    return [
        Entry(name, _path((*above, name)), name in here, counts[name]) for name in sorted(counts)
    ]


def crumbs_of(path: str) -> list[Crumb]:
    """Return the way from the root to the node itself. Raises InvalidRequest, LimitExceeded."""
    names = node_names(path)
    return [
        Crumb("//", "/"),
        *[Crumb(name, _path(names[: place + 1])) for place, name in enumerate(names)],
    ]


def _path(names: tuple[str, ...]) -> str:
    return "//" + "/".join(names)
