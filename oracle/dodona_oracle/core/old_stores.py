"""Convert stores of releases without a tree: they have tables with paths, and no nodes. Pure.

Owns: the nodes that such tables get, with the directories above them. A path that is not possible
in a tree is changed. This happens if a table has the path of a directory of other tables, or if a
name is too long.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from dodona_oracle.core.journal import Journal
from dodona_oracle.core.nodes import ROOT
from dodona_oracle.core.paths import DEPTH_MAX, NAME_LENGTH_MAX, below
from dodona_oracle.core.records import MasterState, StoredNode, StoredTable, put_node
from dodona_oracle.core.tables import Tables
from dodona_wire.messages.tree import NodeKind
from dodona_wire.types import NO_TREE_TRANSACTION, Now

_NAME_LENGTH: Final = NAME_LENGTH_MAX - 16
"""Leaves room for a number after the name."""


def nodes_for(
    state: MasterState, journal: Journal, tables: Tables, now: Now
) -> Iterator[StoredNode]:
    """Yield new nodes for all tables that have none, each after the directory that contains it."""
    known = {node.node for owner, node in state.nodes if owner == NO_TREE_TRANSACTION}
    homeless = [table for table in state.tables if table.table not in known]
    assert not homeless or not known, "either all tables have a node, or none has"
    builder = _Builder(journal, now)
    for table in homeless:
        builder.add_directories(table)
    for table in homeless:
        path = builder.add_table(table)
        if path != table.path:
            tables.store(replace(table, path=path))
    for node in builder.nodes:
        journal.add(put_node(NO_TREE_TRANSACTION, node))
    yield from builder.nodes


class _Builder:
    """Makes nodes. Directories come first, so a table never takes a name that a directory needs."""

    def __init__(self, journal: Journal, now: Now) -> None:
        self._journal = journal
        self._now_us = now.unix_us
        self.nodes: list[StoredNode] = []
        self._ids: dict[str, int] = {"/": ROOT}

    def add_directories(self, table: StoredTable) -> None:
        path = "/"
        for name in _names_of(table)[:-1]:
            parent = self._ids[path]
            path = below(path, name)
            if path not in self._ids:
                self._add(self._journal.take_ids(), parent, name, path, is_table=False)

    def add_table(self, table: StoredTable) -> str:
        """Add the node of a table. Return the path that the table has from now on."""
        *above, name = _names_of(table)
        directory = "/"
        for each in above:
            directory = below(directory, each)
        free, number = name, 1
        while below(directory, free) in self._ids:
            number += 1
            free = f"{name}-{number}"
        path = below(directory, free)
        self._add(table.table, self._ids[directory], free, path, is_table=True)
        return path

    def _add(self, node_id: int, parent: int, name: str, path: str, *, is_table: bool) -> None:
        self._ids[path] = node_id
        kind: NodeKind = "table" if is_table else "directory"
        node = StoredNode(node_id, parent, name, kind, self._now_us, self._now_us)
        self.nodes.append(node)


def _names_of(table: StoredTable) -> list[str]:
    names = table.path[2:].split("/")
    names[DEPTH_MAX - 1 :] = [".".join(names[DEPTH_MAX - 1 :])] if names[DEPTH_MAX - 1 :] else []
    return [name if len(name) <= NAME_LENGTH_MAX else name[:_NAME_LENGTH] for name in names]
