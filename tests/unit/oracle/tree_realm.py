"""A catalog with the calls that the tests of master transactions make most."""

from typing import Any

import msgspec
import pytest

from dodona.errors import (
    NodeLocked,
)
from dodona.types import NO_TREE_TRANSACTION, TreeTransactionId
from dodona_wire.messages.catalog import CatalogRequest, Done
from dodona_wire.messages.tree import (
    AbortTreeTransaction,
    BeginTreeTransaction,
    CommitTreeTransaction,
    CreateDirectory,
    GetNode,
    LockNode,
    NodeExists,
    SetNode,
)
from unit.oracle.realm import Realm, create

ALL = NO_TREE_TRANSACTION


class Tree(Realm):
    """Calls are everybody's unless a transaction is given."""

    def begin(self, parent: TreeTransactionId = ALL, title: str = "") -> TreeTransactionId:
        begun: TreeTransactionId = self.ask(BeginTreeTransaction(5000, parent, title)).transaction
        return begun

    def commit(self, transaction: TreeTransactionId) -> None:
        assert self.ask(CommitTreeTransaction(transaction)) == Done()

    def abort(self, transaction: TreeTransactionId) -> None:
        assert self.ask(AbortTreeTransaction(transaction)) == Done()

    def make(self, path: str, transaction: TreeTransactionId = ALL) -> None:
        self.ask(CreateDirectory(path, transaction=transaction))

    def make_table(self, path: str, transaction: TreeTransactionId = ALL) -> None:
        self.ask(msgspec.structs.replace(create(path), transaction=transaction))

    def put(self, path: str, value: Any, transaction: TreeTransactionId = ALL) -> None:
        self.ask(SetNode(path, msgspec.msgpack.encode(value), transaction))

    def get(self, path: str, transaction: TreeTransactionId = ALL) -> Any:
        return msgspec.msgpack.decode(self.ask(GetNode(path, transaction)).value)

    def exists(self, path: str, transaction: TreeTransactionId = ALL) -> bool:
        return bool(msgspec.msgpack.decode(self.ask(NodeExists(path, transaction)).value))

    def lock(self, path: str, mode: Any, transaction: TreeTransactionId, **part: str) -> int:
        node: int = self.ask(LockNode(path, mode, transaction, **part)).node
        return node

    def refused(self, *requests: CatalogRequest) -> None:
        for request in requests:
            record_count = len(self.records)
            with pytest.raises(NodeLocked):
                self.ask(request)
            assert len(self.records) == record_count
