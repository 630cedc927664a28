"""The tree as a browser walks it: what is in a directory, of what somebody may read. Pure.

Owns: how directories come of the paths of tables. So a directory is seen by whoever may read a
table in it, however deep, and nothing else of it is.
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
    """In a directory, at any depth."""


class Crumb(NamedTuple):
    """A directory on the way."""

    name: str
    path: str


def entries_of(directory: str, tables: Iterable[str], names: Iterable[str] = ()) -> list[Entry]:
    """What is in a directory: tables by their paths, directories by what is in them, and, by
    `names`, those that have none. Raises InvalidRequest, LimitExceeded."""
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
    """From the root to the node itself. Raises InvalidRequest, LimitExceeded."""
    names = node_names(path)
    return [
        Crumb("//", "/"),
        *[Crumb(name, _path(names[: place + 1])) for place, name in enumerate(names)],
    ]


def _path(names: tuple[str, ...]) -> str:
    return "//" + "/".join(names)
