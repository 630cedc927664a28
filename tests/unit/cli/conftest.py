"""What tests of commands share: a folder for an embedded database, and a table in it."""

from pathlib import Path

import pytest

from unit.cli.commands import ACCOUNTS, TABLE, Commands


@pytest.fixture
def dodona(tmp_path: Path) -> Commands:
    return Commands(tmp_path / "db")


@pytest.fixture
def bank(dodona: Commands) -> Commands:
    dodona.said("create", TABLE, "--schema", ACCOUNTS)
    return dodona
