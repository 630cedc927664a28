"""The catalog's tree: directories, tables, their attributes, and master transactions.

A path is `//name/name`. `//name/@attribute` is one attribute of a node, and `//name/@` all of them.
Values are MessagePack, so that they stay what they were in JSON as well.
"""

from typing import Literal

from dodona_wire.messages.base import Message
from dodona_wire.types import NO_TREE_TRANSACTION, TreeTransactionId

NodeKind = Literal["directory", "table"]
LockMode = Literal["exclusive", "shared", "snapshot"]


# Nodes


class CreateDirectory(Message, frozen=True, array_like=True, gc=False, tag=90):
    """Make a directory. → Done. With `is_recursive` missing directories above it are made, too.
    With `ignore_existing` an existing directory is no error."""

    path: str
    attributes: bytes = b"\x80"
    is_recursive: bool = False
    ignore_existing: bool = False
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class RemoveNode(Message, frozen=True, array_like=True, gc=False, tag=91):
    """Remove a node or an attribute. → Done. A directory must be empty unless `is_recursive`. With
    `is_forced` a missing node is no error. Tables are unmounted."""

    path: str
    is_recursive: bool = False
    is_forced: bool = False
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class MoveNode(Message, frozen=True, array_like=True, gc=False, tag=92):
    """Move a node, with all that is in it. → Done. Nothing may be at `destination` yet. With
    `is_recursive` missing directories above it are made. Tables that move must be unmounted."""

    source: str
    destination: str
    is_recursive: bool = False
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class CopyNode(Message, frozen=True, array_like=True, gc=False, tag=93):
    """Copy a node, as MoveNode, but the source stays. → Done. Tables get the rows of now."""

    source: str
    destination: str
    is_recursive: bool = False
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class ListNodes(Message, frozen=True, array_like=True, gc=False, tag=94):
    """List the names in a directory, or with `//name/@` all attributes; sorted. → NodeNames."""

    path: str
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class NodeExists(Message, frozen=True, array_like=True, gc=False, tag=95):
    """Ask whether there is such a node or attribute. → NodeValue, with a boolean."""

    path: str
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class GetNode(Message, frozen=True, array_like=True, gc=False, tag=96):
    """Get one attribute, all of them, or the content of a directory as nested maps (a table is null
    there). → NodeValue."""

    path: str
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class SetNode(Message, frozen=True, array_like=True, gc=False, tag=97):
    """Set one attribute, or all that users may set. With all, a user's own attributes that are not
    given are removed, and settings that are not given stay. → Done."""

    path: str
    value: bytes
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class NodeValue(Message, frozen=True, array_like=True, gc=False, tag=98):
    value: bytes


class NodeNames(Message, frozen=True, array_like=True, gc=False, tag=99):
    names: tuple[str, ...]


# Master transactions


class BeginTreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=100):
    """Begin a transaction. → TreeTransaction. It ends if it gets no ping for `timeout_ms`."""

    timeout_ms: int
    parent: TreeTransactionId = NO_TREE_TRANSACTION
    title: str = ""


class PingTreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=101):
    """Ping a master transaction and its parents. → Done."""

    transaction: TreeTransactionId


class CommitTreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=102):
    """Commit a master transaction. → Done. Its changes become its parent's, or visible to all.
    Transactions inside it that have not ended are aborted. May be repeated."""

    transaction: TreeTransactionId


class AbortTreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=103):
    """Abort a master transaction and those inside it. → Done. They leave nothing behind. A missing
    transaction is no error, but one that is known to be committed is."""

    transaction: TreeTransactionId


class TreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=104):
    transaction: TreeTransactionId
    timeout_ms: int


class LockNode(Message, frozen=True, array_like=True, gc=False, tag=105):
    """Lock a node. → NodeLock. A shared lock may be on one child's name or one attribute alone.
    With a snapshot lock the transaction reads the node as it is now, at this path, even if it
    changes later."""

    path: str
    mode: LockMode
    transaction: TreeTransactionId
    child: str | None = None
    attribute: str | None = None


class NodeLock(Message, frozen=True, array_like=True, gc=False, tag=106):
    """The lock is taken. `node` is the id of the locked node."""

    node: int


TreeRequest = (
    CreateDirectory
    | RemoveNode
    | MoveNode
    | CopyNode
    | ListNodes
    | NodeExists
    | GetNode
    | SetNode
    | BeginTreeTransaction
    | PingTreeTransaction
    | CommitTreeTransaction
    | AbortTreeTransaction
    | LockNode
)
