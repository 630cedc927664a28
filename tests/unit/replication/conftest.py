"""What tests of stores with a journal share: a folder, and a store that has begun there."""

from pathlib import Path

import pytest

from dodona_replication.shell.replica_store import ReplicaStore
from unit.replication.journals import begun


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.fixture
def store(here: Path) -> ReplicaStore:
    return begun(here)
