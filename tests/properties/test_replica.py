"""Whatever owners do, and whenever the replica crashes, its store on a disk keeps the promises.

`unit.replication.owners` has the owners, the messages that get lost or come late, and the promises.
"""

import tempfile
from pathlib import Path

import pytest

from dodona_replication.shell.replica_check import verify_replica
from dodona_replication.shell.replica_store import ReplicaStore
from suite.levels import share
from unit.replication.owners import History
from unit.replication.replicas import CLUSTER


class _Disk:
    """A folder with the store of one replica."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = ReplicaStore.open(folder, CLUSTER)

    def reopen(self) -> ReplicaStore:
        """Open the store again after a crash, which brings nothing more into the file."""
        self.store._has_failed = True
        self.store.close()
        self.store = ReplicaStore.open(self._folder, CLUSTER)
        return self.store


@pytest.mark.parametrize("seed", share(range(40), one_in=10))
def test_histories_on_a_disk_break_no_promise(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        disk = _Disk(Path(folder))
        History(seed, disk.store, disk.reopen).run(250)
        disk.store.close()
        assert verify_replica(Path(folder)).damages == ()
