"""The catalog's tree: directories, tables, their attributes, and the master transactions under
which they change. A path is `//name/name`; `//name/@attribute` is one attribute of a node, and
`//name/@` all of them. Values are MessagePack, so that they stay what they were in JSON as well."""

from typing import Literal

from dodona_wire.messages.base import Message
from dodona_wire.types import NO_TREE_TRANSACTION, TreeTransactionId

NodeKind = Literal["directory", "table"]
LockMode = Literal["exclusive", "shared", "snapshot"]


# Nodes


class CreateDirectory(Message, frozen=True, array_like=True, gc=False, tag=90):
    """→ Done. With `is_recursive` missing directories above it are made too; with
    `ignore_existing` it is no error if there is such a directory."""

    path: str
    attributes: bytes = b"\x80"
    is_recursive: bool = False
    ignore_existing: bool = False
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class RemoveNode(Message, frozen=True, array_like=True, gc=False, tag=91):
    """→ Done. A directory must be empty unless `is_recursive`; with `is_forced` it is no error if
    there is no such node. Tables are unmounted. Also removes an attribute."""

    path: str
    is_recursive: bool = False
    is_forced: bool = False
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class MoveNode(Message, frozen=True, array_like=True, gc=False, tag=92):
    """→ Done. All that is in a directory goes along. Nothing may be at `destination` yet; with
    `is_recursive` missing directories above it are made. Tables on the way must be unmounted."""

    source: str
    destination: str
    is_recursive: bool = False
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class CopyNode(Message, frozen=True, array_like=True, gc=False, tag=93):
    """→ Done. As MoveNode, and the source stays. Copies of tables have their rows of now."""

    source: str
    destination: str
    is_recursive: bool = False
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class ListNodes(Message, frozen=True, array_like=True, gc=False, tag=94):
    """The names in a directory, sorted; of `//name/@` the names of all attributes. → NodeNames."""

    path: str
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class NodeExists(Message, frozen=True, array_like=True, gc=False, tag=95):
    """Whether there is such a node, or such an attribute. → NodeValue, of a boolean."""

    path: str
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class GetNode(Message, frozen=True, array_like=True, gc=False, tag=96):
    """One attribute, all of them, or for a directory what is in it as nested maps (a table is
    null there). → NodeValue."""

    path: str
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class SetNode(Message, frozen=True, array_like=True, gc=False, tag=97):
    """Set one attribute, or all that users may set: then a user's own that are not given are
    removed, and settings that are not given stay. → Done."""

    path: str
    value: bytes
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class NodeValue(Message, frozen=True, array_like=True, gc=False, tag=98):
    value: bytes


class NodeNames(Message, frozen=True, array_like=True, gc=False, tag=99):
    names: tuple[str, ...]


# Master transactions


class BeginTreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=100):
    """→ TreeTransaction. It ends by itself when it was not pinged for `timeout_ms`."""

    timeout_ms: int
    parent: TreeTransactionId = NO_TREE_TRANSACTION
    title: str = ""


class PingTreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=101):
    """→ Done. Its parents are pinged too."""

    transaction: TreeTransactionId


class CommitTreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=102):
    """→ Done. What it changed is its parent's from now on, or everybody's. Those inside it that
    have not ended are aborted. May be repeated."""

    transaction: TreeTransactionId


class AbortTreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=103):
    """→ Done. It and those inside it leave nothing behind. One that is not there any more is no
    error, but one that is known to be committed is."""

    transaction: TreeTransactionId


class TreeTransaction(Message, frozen=True, array_like=True, gc=False, tag=104):
    transaction: TreeTransactionId
    timeout_ms: int


class LockNode(Message, frozen=True, array_like=True, gc=False, tag=105):
    """→ NodeLock. A shared lock may be on one child's name or one attribute alone. With a snapshot
    lock the transaction reads the node as it is now, at this path, whatever becomes of it."""

    path: str
    mode: LockMode
    transaction: TreeTransactionId
    child: str | None = None
    attribute: str | None = None


class NodeLock(Message, frozen=True, array_like=True, gc=False, tag=106):
    """`node` is the id of the node that was locked."""

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
