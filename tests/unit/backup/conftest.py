"""What tests of backups share: two embedded databases, and a folder between them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import dodona
from dodona.client import Client


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Client]:
    with dodona.open(tmp_path / "db") as client:
        yield client


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Client]:
    """Where to restore."""
    with dodona.open(tmp_path / "other") as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "backup"
