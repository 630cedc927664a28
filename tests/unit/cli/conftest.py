"""What tests of commands share: a folder for an embedded database, and a table in it."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from typer.main import get_command

from unit.cli.commands import ACCOUNTS, TABLE, Commands


@pytest.fixture(autouse=True, scope="session")
def _made_once() -> Iterator[None]:
    """typer's runner makes all commands anew for each call, which takes longer than most calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(get_command))
        yield


@pytest.fixture
def dodona(tmp_path: Path) -> Commands:
    return Commands(tmp_path / "db")


@pytest.fixture
def bank(dodona: Commands) -> Commands:
    dodona.said("create", TABLE, "--schema", ACCOUNTS)
    return dodona
